"""What a sweep has come to: a table of its trials, and what is next."""

from collections.abc import Iterator, Mapping, Sequence
import shlex
from typing import Any

from xjax.report.tables.plain import align
from xjax.sweep.overrides import fields_of
from xjax.sweep.session import SweepSession
from xjax.sweep.store import Outcome, TrialStatus, best_trial

_ORDER = list(TrialStatus)
_WIDTH = 24  # of a cell; zones, or several fields at once, may be longer
_REPORTED = 10  # systems that still make a readable page


def sweep_summary(session: SweepSession, outcomes: Sequence[Outcome]) -> str:
  """Trials by value, how many came to what, errors, and commands.

  Args:
    session: whose trials they are.
    outcomes: of all trials.

  Returns:
    Lines of text, without a newline at the end.
  """
  ranked = sorted(outcomes, key=_rank)
  counts = ', '.join(
    f'{sum(one.state is state for one in outcomes)} {state.value}'
    for state in _ORDER
  )
  table = '\n'.join(align(list(_rows(session, ranked)), 2))
  parts = [f'dev {session.metric}: {counts}\n{table}']
  if failed := [one for one in outcomes if one.state is TrialStatus.FAILED]:
    parts.append('\n'.join(_failure(session, one) for one in failed))
  if best := best_trial(outcomes):
    parts.append(
      f'The best, trial {best.number}, trains again with\n'
      f'  {session.train_again(session.folder.best)}\n'
      f'{_report(session, ranked)}'
    )
  return '\n\n'.join(parts)


def _rank(outcome: Outcome) -> tuple[int, float, int]:
  value = 0.0 if outcome.value is None else outcome.value
  return _ORDER.index(outcome.state), -value, outcome.number


def _rows(
  session: SweepSession, outcomes: Sequence[Outcome]
) -> Iterator[list[str]]:
  keys = list(dict.fromkeys(key for one in outcomes for key in one.parameters))
  names = short_names(keys)
  several = ['sd'] if session.seeds > 1 else []
  yield ['trial', 'state', 'value', *several, *(names[key] for key in keys)]
  for one in outcomes:
    shown = [_number(one.deviation)] if several else []
    cells = [_cell(one.parameters, key) for key in keys]
    yield [str(one.number), one.state.value, _number(one.value), *shown, *cells]


def short_names(keys: Sequence[str]) -> dict[str, str]:
  """Fields by their last parts, where these tell them apart."""
  short = {
    key: '/'.join(dict.fromkeys(f.rpartition('.')[2] for f in fields_of(key)))
    for key in keys
  }
  names = list(short.values())
  return {k: v if names.count(v) == 1 else k for k, v in short.items()}


def _number(value: float | None) -> str:
  return '-' if value is None else f'{value:.4f}'


def _cell(parameters: Mapping[str, Any], key: str) -> str:
  value = parameters.get(key, '-')
  text = f'{value:.4g}' if isinstance(value, float) else str(value)
  return text if len(text) <= _WIDTH else f'{text[: _WIDTH - 3]}...'


def _failure(session: SweepSession, outcome: Outcome) -> str:
  logs = session.folder.path / 'logs'
  return (
    f'! trial {outcome.number} failed: {outcome.error:.160} '
    f'({logs}/{outcome.number:04d}*.txt)'
  )


def _report(session: SweepSession, ranked: Sequence[Outcome]) -> str:
  """The command that puts the best of the complete trials on a page."""
  complete = [one for one in ranked if one.state is TrialStatus.COMPLETE][
    :_REPORTED
  ]
  seeds = range(session.config.seed, session.config.seed + session.seeds)
  folders = [
    str(
      session.folder.place(
        one.number, seed if session.seeds > 1 else None
      ).workdir
    )
    for one in complete
    for seed in seeds
  ]
  several = 'The best of them' if len(complete) == _REPORTED else 'All of them'
  words = [*session.import_flags, *folders]
  output = shlex.quote(f'--output={session.folder.path / "report.html"}')
  return (
    f'{several} on one page\n'
    f'  python -m experiments.report {shlex.join(words)} {output}'
  )
