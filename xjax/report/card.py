"""Writes the model card of a run: README.md in its workdir."""

from collections.abc import Iterator, Sequence
import dataclasses
import datetime
import json
import math
import pathlib
import shlex
from typing import Any

from absl import logging
import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.config_part import ConfigPart, modules_of
from xjax.data.files.faults import plural
from xjax.data.overlaps import find_overlaps
from xjax.data.quality import twins_warning
from xjax.data.schema import FREQUENT_FROM, LabelSpace
from xjax.judge.criteria import USUAL_K
from xjax.judge.files.evaluation import PREDICTIONS
from xjax.judge.judge import INTERVALS, PROTOCOL, Metrics
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.config_check import named_parts
from xjax.models.config_json import to_json
from xjax.models.contract import Config, load_config
from xjax.report.card_probabilities import probability_blocks
from xjax.report.table import escape_markdown, rows_table
from xjax.report.terminal.judged import plain_slice_table
from xjax.run.fit import FitResult
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir
from xjax.version import __version__

CARD = 'README.md'
_TABLES = '.csv', '.tsv', '.parquet'
# A file without this first line is the user's, so it is never replaced.
MARK = (
  '<!-- written by xjax at the end of each run; to edit, remove this line -->'
)
# Metrics that have an interval; each is a mean over documents.
_METRICS = ('P@1', *(f'{kind}@{USUAL_K}' for kind in ('P', 'RP', 'nDCG')))
_WIDE = 1.96  # a 95 % interval has this many standard errors on each side


def write_card(
  result: FitResult, command: Sequence[str] = ()
) -> pathlib.Path | None:
  """Writes the model card of a finished run, and returns its path.

  A README.md that xjax did not write is kept: the log says so, and the result
  is None. `command` has the words that started the run; () if they are not
  known.
  """
  path = result.workdir / CARD
  if (path.exists() or path.is_symlink()) and not is_card(path):
    logging.warning(
      '%s was not written by xjax, so it is kept and there is no model card',
      path,
    )
    return None
  text = card_text(result, command)
  with atomic_write(path) as file:
    file.write(f'{MARK}\n\n{text}')
  return path


def is_card(path: pathlib.Path) -> bool:
  """Returns whether xjax wrote this file, by its first line."""
  try:
    with path.open('rb') as file:
      return file.readline(len(MARK) + 1).rstrip(b'\n') == MARK.encode()
  except OSError:
    return False


def card_text(result: FitResult, command: Sequence[str] = ()) -> str:
  """Returns the model card of a finished run, as Markdown."""
  config = load_config(Workdir.at(result.workdir).config)
  sections = {
    'Use': _use(result, config),
    'Data': _data(result, config),
    'Metrics': _metrics(result),
    'Probabilities': probability_blocks(result),
    'Labels that training has not seen': _unseen(result, config),
    'Configuration': _configuration(result, config, command),
  }
  parts = [
    f'# {escape_markdown(result.workdir.name)}',
    f'{_article(type(config.model).__name__)} that tags documents with '
    f'{plural(result.corpus.label_space.n_inside, "label")}. '
    f'xjax {__version__} finished the run on {_date(result)}.',
  ]
  for title, blocks in sections.items():
    parts += [f'## {title}', *blocks]
  return '\n\n'.join(parts) + '\n'


def _article(noun: str) -> str:
  return f'An {noun}' if noun[0] in 'AEIOU' else f'A {noun}'


def _date(result: FitResult) -> str:
  record = RunRecord.read(Workdir.at(result.workdir))
  return (record and record.finished or _now())[:10]


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat()


def _use(result: FitResult, config: Config) -> Iterator[str]:
  judged = ' and '.join(result.metrics)
  judged = f'It was judged on {judged}' if judged else 'It was not judged'
  what = 'rows of features' if config.data.sparse else 'texts'
  yield (
    f'The model ranks labels for {what} like those that it was trained on. '
    f'{judged}. On other kinds of documents or other languages its quality is '
    'not known. A list may lack right labels and have wrong ones, so decisions '
    'that matter need a person.'
  )
  yield 'On the command line, in this folder:'
  more = ' --features=FILES' if config.data.tokens.dense else ''
  modules = modules_of(config)  # they must be importable wherever this is read
  imports = ''.join(f' --import={name}' for name in modules)
  yield _code(
    f'xjax predict{imports} --workdir=. --input={_input_name(config)}{more} '
    '--output=tagged.jsonl --k=5'
  )
  yield 'In Python:'
  documents = "['a text']"
  if config.data.sparse or config.data.tokens.dense:
    documents = 'documents'
  imports = ''.join(f'import {name}\n' for name in ('xjax', *modules))
  yield _code(
    f"{imports}model = xjax.load('.')\nmodel.predict({documents}, k=5)"
  )


def _input_name(config: Config) -> str:
  """Returns a name for new documents, in the format of the run's data."""
  data = config.data
  suffix = pathlib.PurePath(data.dir).suffix.lower()
  if data.sparse:
    return 'FILE'
  if data.tables and suffix in _TABLES:
    return f'docs{suffix}'
  return 'docs.jsonl'


def _data(result: FitResult, config: Config) -> Iterator[str]:
  corpus, data = result.corpus, config.data
  source = f' from {_quoted(data.dir)}' if data.dir else ''
  yield f'{type(data).__name__}{source}, fingerprint `{corpus.fingerprint}`.'
  rows = [('split', 'documents', 'labels per document', 'chosen by')]
  for name, split in corpus.splits.items():
    drawn = name in corpus.drawn or data.generated
    chosen = 'xjax, by a seed' if drawn else 'the data'
    mean = f'{split.gold.lengths.mean():.2f}' if len(split) else '-'
    rows.append((name, f'{len(split):,}', mean, chosen))
  yield rows_table(rows)
  yield rows_table([('labels', 'number'), *_label_rows(corpus.label_space)])
  messages = [m for o in find_overlaps(corpus) for m in o.warnings()]
  messages += [twins_warning(corpus.label_space), corpus.left_out]
  for message in filter(None, messages):
    yield f'**Warning:** {escape_markdown(message)}.'


def _label_rows(space: LabelSpace) -> Iterator[tuple[str, str]]:
  names = {
    'frequent': f'frequent: at least {FREQUENT_FROM} training documents',
    'few': f'few: 1 to {FREQUENT_FROM - 1} training documents',
    'zero': 'zero: no training documents',
    'held_out': 'held out of training (also in zero)',
  }
  for name, mask in space.masks().items():
    yield names[name], f'{mask.sum():,}'
  if space.n_outside:
    yield 'never predicted (also in zero)', f'{space.n_outside:,}'
  if len(space.left_out):
    yield 'neither predicted nor judged', f'{len(space.left_out):,}'


def _metrics(result: FitResult) -> Iterator[str]:
  if not result.metrics:
    yield 'There is no split dev or test.'
  if 'dev' in result.metrics:
    yield 'Thresholds, and checkpoints if there are several, are chosen on dev.'
  for name, metrics in result.metrics.items():
    yield f'### {name}'
    yield _code(plain_slice_table(metrics, result.prior.get(name)))
    shown = ', '.join(
      f'{metric} [{low:.3f}, {high:.3f}]'
      for metric, (low, high) in _intervals(result, name).items()
    )
    if shown:
      yield f'95 % intervals over documents, slice {ALL}: {shown}'


def _intervals(result: FitResult, name: str) -> dict[str, tuple[float, float]]:
  """Returns intervals of a split's metrics in the slice `all`.

  Without saved intervals, those of means over documents are computed.
  """
  metrics = result.metrics[name]
  saved = metrics.get(INTERVALS, {}).get(PROTOCOL, {}).get(ALL)
  if saved:
    return {name: tuple(saved[name]) for name in _METRICS if name in saved}
  predictions = Predictions.load(result.paths[name] / PREDICTIONS)
  return document_intervals(predictions, metrics)


def document_intervals(
  predictions: Predictions, metrics: Metrics
) -> dict[str, tuple[float, float]]:
  """Computes 95 % intervals of means over documents, by standard errors.

  The predictions have gold. A metric that `metrics` defines in another way than
  here gets no interval; nor does a metric with the same value for all
  documents.
  """
  values = metrics[PROTOCOL][ALL]
  gold = predictions.gold
  hits_NK = predictions.lists[ALL].hits(gold, len(predictions.labels))
  hits_NK, n_gold_N = hits_NK[gold.lengths > 0], gold.lengths[gold.lengths > 0]
  values_of = {}
  for k in (1, USUAL_K):
    first_NK = hits_NK[:, :k].astype(np.float64)
    discounts = 1 / np.log2(np.arange(2, first_NK.shape[1] + 2))
    best_N = np.cumsum(discounts)[np.minimum(n_gold_N, len(discounts)) - 1]
    values_of |= {
      f'P@{k}': first_NK.sum(1) / k,
      f'RP@{k}': first_NK.sum(1) / np.minimum(n_gold_N, k),
      f'nDCG@{k}': first_NK @ discounts / best_N,
    }
  return {
    metric: _interval(values_N)
    for metric in _METRICS
    if len(set(values_N := values_of[metric])) > 1
    and values.get(metric) is not None
    and abs(values_N.mean() - values[metric]) < 1e-6
  }


def _interval(values_N: np.ndarray) -> tuple[float, float]:
  mean = float(values_N.mean())
  half = _WIDE * float(values_N.std(ddof=1)) / math.sqrt(len(values_N))
  return max(mean - half, 0.0), min(mean + half, 1.0)


def _unseen(result: FitResult, config: Config) -> Iterator[str]:
  space = result.corpus.label_space
  unseen = int((space.train_counts[: space.n_inside] == 0).sum())
  told = config.model.about_unseen(config)
  yield (
    f'{told} In the label space of this run, {plural(unseen, "label")} '
    f'{"has" if unseen == 1 else "have"} no training document. Labels outside '
    f'the label space ({space.n_outside:,} in dev and test) are never '
    'predicted, and count as missed in the metrics.'
  )


def _configuration(
  result: FitResult, config: Config, command: Sequence[str]
) -> Iterator[str]:
  if result.steps:
    yield (
      f'The run took {plural(result.steps, "step")}; the checkpoint of step '
      f'{result.best_step:,} is used.'
    )
  if command:
    yield 'Command:'
    yield _code(shlex.join(command))
  yield 'Kinds, and fields with other values than by default:'
  rows = [('field', 'value'), ('seed', _quoted(config.seed))]
  yield rows_table(
    rows + [row for row in _fields(config, '') if row[0] != 'seed']
  )


def _fields(part: ConfigPart, path: str) -> Iterator[tuple[str, str]]:
  """Yields the kinds of parts, and the fields without default values."""
  for field in dataclasses.fields(part):
    value, where = getattr(part, field.name), f'{path}{field.name}'
    if parts := named_parts(value, where):
      for inner, part_of in parts:
        if kind := to_json(part_of).get('kind'):
          yield inner, _quoted(kind)
        yield from _fields(part_of, f'{inner}.')
    elif value != _default(field):
      yield where, _quoted(value)


def _quoted(value: Any) -> str:
  text = value
  if not isinstance(value, str):
    text = json.dumps(to_json(value), ensure_ascii=False)
  safe = (c for c in text if c.isprintable() and c != '`')
  return f'`{"".join(safe)}`'


def _default(field: dataclasses.Field) -> Any:
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return field.default


def _code(text: str) -> str:
  return f'```\n{text}\n```'
