"""Judges the results of accelerator.py, and prints them as Markdown tables."""

from collections.abc import Iterator, Sequence
from typing import Any

GIB = 2**30
LEAST_SHARE = 0.45  # of the peak, BERT-base
# ELMO's minutes of an epoch of Amazon-3M, by the storage of the head.
ELMO_MINUTES = {'bfloat16': 25 + 15 / 60, 'float8': 18 + 2 / 60}


def bounds(results: dict[str, Any]) -> list[dict[str, Any]]:
  """Returns the bounds of what has run, with 'ok'."""
  sections, found = results['sections'], []

  def bound(name: str, value: float, limit: float, ok: bool) -> None:
    found.append({'name': name, 'value': value, 'bound': limit, 'ok': bool(ok)})

  rows = sections.get('checks', {}).get('xjax', {}).get('rows')
  if rows is not None:
    missed = sum(not row['ok'] for row in rows)
    bound('checks beyond their tolerance', missed, 0, not missed)
  if results['tiny'] or results['device']['platform'] == 'cpu':
    return found
  bert = sections.get('bert', {})
  ours = bert.get('xjax', {})
  if 'share_of_peak' in ours:
    share = ours['share_of_peak']
    bound(
      'BERT-base, share of the peak', share, LEAST_SHARE, share >= LEAST_SHARE
    )
  peers = [
    side['documents_per_second']
    for name, side in bert.items()
    if name != 'xjax' and 'documents_per_second' in side
  ]
  if peers and 'documents_per_second' in ours:
    rate = ours['documents_per_second']
    bound('BERT-base, documents/s', rate, max(peers), rate > max(peers))
  for storage, minutes in ELMO_MINUTES.items():
    step = sections.get('ova_head', {}).get(f'{storage}, BERT', {})
    if 'epoch_minutes' in step:
      epoch = step['epoch_minutes']
      name = f'Amazon-3M, {storage}, minutes an epoch'
      bound(name, epoch, minutes / 2, epoch <= minutes / 2)
  return found


def markdown(results: dict[str, Any]) -> str:
  """Returns the tables of a file of results."""
  blocks = [_device(results)]
  for name, section in results['sections'].items():
    blocks += [f'### {name}', *_SECTIONS[name](section), *_notes(section)]
  bounds = [
    (
      x['name'],
      f'{x["value"]:.3g}',
      f'{x["bound"]:.3g}',
      'ok' if x['ok'] else 'MISSED',
    )
    for x in results.get('bounds', [])
  ]
  blocks += ['### bounds', _table(('', 'value', 'bound', ''), bounds)]
  return '\n\n'.join(block for block in blocks if block)


def _device(results: dict[str, Any]) -> str:
  device = results['device']
  versions = ', '.join(f'{n} {v}' for n, v in device['versions'].items())
  form = 'small form' if results['tiny'] else 'full sizes'
  minutes = results.get('minutes', 0)
  return f'{device["kind"]}; {versions}; {form}; {minutes:.1f} minutes in all.'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  if not rows:
    return ''
  lines = [header, ['---'] * len(header), *rows]
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def _notes(section: dict[str, Any]) -> Iterator[str]:
  """Yields why a part has no results, or not all."""
  for side, part in section.items():
    reason = part.get('skipped') or part.get('error')
    if reason:
      yield f'{side}: {part["status"]}: {reason.splitlines()[-1]}'


def _number(value: float | None, form: str, factor: float = 1) -> str:
  return '' if value is None else format(factor * value, form)


def _checks(section: dict[str, Any]) -> Iterator[str]:
  rows = [
    (
      row['check'],
      row['dtype'],
      _number(row.get('difference'), '.1e'),
      row.get('in', '') + row.get('error', '').replace('\n', ' ')[:80],
      f'{row["tolerance"]:.0e}',
      'ok' if row['ok'] else 'MISSED',
    )
    for row in section['xjax'].get('rows', [])
  ]
  header = 'check', 'dtype', 'difference', 'in', 'tolerance', ''
  yield _table(header, rows)


def _bert(section: dict[str, Any]) -> Iterator[str]:
  ours, rows = section.get('xjax', {}), []
  for side, part in section.items():
    if 'seconds' not in part:
      continue
    share = part.get('share_of_peak')
    if share is None and 'share_of_peak' in ours:  # the same operations
      share = ours['share_of_peak'] * ours['seconds'] / part['seconds']
    rows.append(_step_row(side, part | {'share_of_peak': share}))
  yield _table(_STEP, rows)


_STEP = (
  '',
  'documents/s',
  'ms a step',
  'share of peak',
  'peak GiB',
  'compiled in s',
)


def _step_row(name: str, step: dict[str, Any]) -> tuple[str, ...]:
  return (
    name,
    _number(step.get('documents_per_second'), ',.0f'),
    _number(step['seconds'], '.2f', 1e3),
    _number(step.get('share_of_peak'), '.0%'),
    _number(step.get('peak_bytes'), '.2f', 1 / GIB),
    _number(step.get('compile_seconds'), '.0f'),
  )


def _ova_head(section: dict[str, Any]) -> Iterator[str]:
  heads, steps = [], []
  for side, part in section.items():
    if side.endswith('BERT') and 'seconds' in part:
      row = f'{side}, chunks of {part["chunk"]:,}', part
      steps.append((*_step_row(*row), f'{part["epoch_minutes"]:.2f}'))
      continue
    heads += [
      (
        side,
        f'{head["chunk"]:,}',
        _number(head['seconds'], '.2f', 1e3),
        _number(head.get('epoch_minutes'), '.2f'),
        _number(head.get('share_of_bandwidth'), '.0%'),
        _number(head.get('share_of_peak'), '.0%'),
        _number(head.get('program_bytes'), '.2f', 1 / GIB),
        _number(head.get('peak_bytes'), '.2f', 1 / GIB),
      )
      for head in part.get('heads', [part])
      if 'seconds' in head
    ]
  header = 'the head alone', 'labels a chunk', 'ms a step', 'minutes an epoch'
  header += 'share of bandwidth', 'share of peak', 'GiB by the compiler'
  yield _table((*header, 'peak GiB'), heads)
  yield _table(('with BERT-base', *_STEP[1:], 'minutes an epoch'), steps)


def _bigru_lwan(section: dict[str, Any]) -> Iterator[str]:
  rows = [
    _step_row(f'{side}, {dtype}', part[dtype])
    for side, part in section.items()
    for dtype in ('bfloat16', 'float32')
    if 'seconds' in part.get(dtype, {})
  ]
  yield _table(_STEP, rows)
  for side, part in section.items():
    for dtype in ('bfloat16', 'float32'):
      if 'error' in part.get(dtype, {}):
        yield f'{side}, {dtype}: {part[dtype]["error"]}'


def _runs(section: dict[str, Any]) -> Iterator[str]:
  rows = [
    (
      side,
      f'{run["minutes"]:.2f}',
      _number(run.get('milliseconds_per_step'), '.1f'),
      ', '.join(f'{n} {x:.3f}' for n, x in run.get('metrics', {}).items()),
    )
    for side, run in section.items()
    if 'minutes' in run
  ]
  yield _table(('', 'minutes', 'ms a step', 'metrics'), rows)


def _plan(section: dict[str, Any]) -> Iterator[str]:
  rows = [
    (
      row['step'],
      _number(row.get('planned_seconds'), '.2f', 1e3)
      + f' ({row.get("planned_bound", row.get("error", "")[:80])})',
      f'{1e3 * row["seconds"]:.2f}',
      *(
        _number(row.get(name), '.2f', 1 / GIB)
        for name in ('planned_bytes', 'program_bytes', 'peak_bytes')
      ),
    )
    for row in section['xjax'].get('rows', [])
  ]
  header = 'step', 'planned ms', 'measured ms', 'planned GiB'
  yield _table((*header, 'GiB by the compiler', 'peak GiB'), rows)


_SECTIONS = {
  'checks': _checks,
  'bert': _bert,
  'ova_head': _ova_head,
  'bigru_lwan': _bigru_lwan,
  'minilm': _runs,
  'quickstart': _runs,
  'plan': _plan,
}
