"""Writes the model card of a run: README.md in its workdir."""

from collections.abc import Iterator, Sequence
import datetime
import json
import pathlib
import shlex
from typing import Any

from absl import logging

from xjax.core.atomic import atomic_write
from xjax.core.config_part import modules_of
from xjax.data.files.faults import plural
from xjax.data.quality import find_overlaps, similar_names_warning
from xjax.data.schema import FREQUENT_FROM, LabelSpace
from xjax.judge.calibration import Method
from xjax.judge.judge import ECE, ECE_ABOVE, PROTOCOL
from xjax.judge.metrics.calibration_error import ABOVE
from xjax.judge.metrics.slices import ALL
from xjax.models.config_json import diff, to_json
from xjax.models.contract import DEV, Config, load_config
from xjax.report.table import escape_markdown, rows_table
from xjax.report.terminal.judgement import plain_slice_table
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


def write_card(
  result: FitResult, command: Sequence[str] = ()
) -> pathlib.Path | None:
  """Writes a run's model card; None if a README.md by others is kept."""
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
  home = Workdir.at(result.workdir)
  config = load_config(home.config)
  sections = {
    'Use': _use(result, config),
    'Data': _data(result, config),
    'Metrics': _metrics(result),
    'Probabilities': _probabilities(result),
    'Labels that training has not seen': _unseen(result, config),
    'Configuration': _configuration(result, config, command),
  }
  kind, record = type(config.model).__name__, RunRecord.read(home)
  now = datetime.datetime.now(datetime.UTC).isoformat()
  parts = [
    f'# {escape_markdown(result.workdir.name)}',
    f'{"An" if kind[0] in "AEIOU" else "A"} {kind} that tags documents with '
    f'{plural(result.corpus.label_space.n_inside, "label")}. xjax '
    f'{__version__} finished the run on '
    f'{(record and record.finished or now)[:10]}.',
  ]
  for title, blocks in sections.items():
    parts += [f'## {title}', *blocks]
  return '\n\n'.join(parts) + '\n'


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
  messages += [similar_names_warning(corpus.label_space), corpus.left_out]
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
  if DEV in result.metrics:
    yield 'Thresholds, and checkpoints if there are several, are chosen on dev.'
  for name, metrics in result.metrics.items():
    yield f'### {name}'
    yield _code(plain_slice_table(metrics, result.prior.get(name)))


def _probabilities(result: FitResult) -> Iterator[str]:
  calibration = result.calibration
  if calibration is None or calibration.method is Method.NONE:
    yield 'Scores are not calibrated.'
  else:
    yield (
      'Scores are shown as probabilities. They are calibrated by the method '
      f'{calibration.method.value}, which was fitted on '
      f'{plural(calibration.n_documents, "document")} of dev.'
    )
  rows = [
    (name, *(f'{values[metric]:.3f}' for metric in (ECE, ECE_ABOVE)))
    for name, metrics in result.metrics.items()
    if None not in map((values := metrics[PROTOCOL][ALL]).get, (ECE, ECE_ABOVE))
  ]
  if rows:
    yield (
      'Mean difference between probabilities and the share of right labels, '
      'over all listed labels, most of which are surely wrong, and over those '
      f'with a probability above {ABOVE}:'
    )
    yield rows_table([('split', 'all', f'above {ABOVE}'), *rows])


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
  yield 'Seed, kinds, and the fields with other values than their defaults:'
  # A config without kinds would be that of a neural model, and load JAX.
  model, train = type(config.model), type(config.train)
  plain = Config(seed=config.seed, model=model(), train=train())
  yield rows_table(
    [
      ('field', 'value'),
      ('seed', _quoted(config.seed)),
      ('model', _quoted(model.__name__)),
      ('train', _quoted(train.__name__)),
      *((x.path, _quoted(x.new)) for x in diff(plain, config)),
    ]
  )


def _quoted(value: Any) -> str:
  text = value
  if not isinstance(value, str):
    text = json.dumps(to_json(value), ensure_ascii=False)
  safe = (c for c in text if c.isprintable() and c != '`')
  return f'`{"".join(safe)}`'


def _code(text: str) -> str:
  return f'```\n{text}\n```'
