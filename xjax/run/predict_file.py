"""Uses a finished run to predict the labels of documents in a file.

The code of metrics and strategies is imported only if it is used. So a label
tree tags documents without loading JAX.
"""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import itertools
import os
import pathlib
import sys
import typing

from absl import logging
import numpy as np

from xjax.core.allocation import enough_memory
from xjax.core.atomic import atomic_write, write_json
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Heartbeat, hidden_progress
from xjax.core.types import Ragged
from xjax.data.files.faults import plural
from xjax.data.files.file_set import check_unlisted, writing_set
from xjax.data.files.tables import write_csv
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.labels import add_outside, ids_of_names, read_new_labels
from xjax.data.schema import Document, LabelSpace, Split
from xjax.judge.calibration import shown_probabilities
from xjax.judge.prediction_lines import Explanations
from xjax.run.open_run import OpenRun, open_run
from xjax.run.tagger import COLUMNS, INPUT, Tagger

if typing.TYPE_CHECKING:
  from xjax.run.strategies.strategy_request import StrategyRequest

_MARK = '.judged.json'
_FORMATS = '.jsonl', '.csv'  # of the output
STREAM = '-'  # standard input or output


@enough_memory('choose a smaller --k, or give fewer documents at a time')
def predict_file(
  workdir: str | os.PathLike,
  source: str,
  output: str,
  k: int | None,
  labels: str = '',
  explain: int = 0,
  features: str = '',
  strategy: 'StrategyRequest | None' = None,
  step: int | None = None,
  page: Callable[[Explanations], str] | None = None,
  threshold: str = '',
  skip_bad_lines: bool = False,
) -> Explanations | None:
  """Writes the k best labels of each document of a file, as JSON lines or CSV.

  The workdir of the run is needed, but not the run's corpus. If the output is
  X.jsonl or X.csv, X.npz, X.metrics.json, X.html (with `explain` and `page`)
  and X.judged.json are written with it, as one set; see docs/workdir.md. X.npz
  has gold labels only if those of all documents are known, because it cannot
  mark unknown gold labels.

  Documents are read, predicted and written in blocks. Memory holds a block, and
  what X.npz will have. On standard output, those that came through a pipe are
  answered before more of them are waited for.

  The arguments are those of `xjax predict`, but k may be None for the length of
  the run's saved lists, and `page` returns the HTML of X.html. The labels of a
  strategy are in its order, also in the lists over all labels of X.npz. Returns
  the contents of X.html; None if `explain` is 0 or the output is '-'.
  """
  source, output = os.path.expanduser(source), os.path.expanduser(output)
  _check(source, output, k, explain)
  if output != STREAM:
    _check_beside(pathlib.Path(output), bool(explain and page))
  if threshold and strategy:
    raise ConfigError(
      f'--threshold={threshold}: a strategy chooses the number of labels; give '
      'only one of --threshold and --strategy'
    )
  with Heartbeat('opening the model'):
    run = open_with_labels(workdir, labels, step)
  k = k or run.config.eval.depth
  if explain:
    run.check_explains()
  if features:
    run.check_reads_features()
  tagger = Tagger(run, k, explain, features, strategy)
  if threshold:
    from xjax.run.evaluate_split import Threshold

    tagger.threshold = Threshold.of(threshold, run)
  if output == STREAM:
    _answer(tagger, source, skip_bad_lines)
    logging.info('standard output: %s', tagger.size)
    return None
  return _write_set(tagger, pathlib.Path(output), source, skip_bad_lines, page)


def _write_set(
  tagger: Tagger,
  path: pathlib.Path,
  source: str,
  skip_bad_lines: bool,
  page: Callable[[Explanations], str] | None,
) -> Explanations | None:
  """Writes X.jsonl or X.csv, and the files beside it."""
  explanations, explain = None, tagger.words
  beside = {path.with_suffix(suffix).name for suffix in _FORMATS}
  mark = path.with_suffix(_MARK)
  with (
    Heartbeat('xjax predict'),
    writing_set(mark, {}, beside) as new,
    tagger.open_files,
  ):
    tagger.beside = (new / path.name).with_suffix('.npz')
    predicted = map(tagger.predict, tagger.blocks(source, skip_bad_lines))
    if path.suffix == '.csv':
      columns = COLUMNS if explain else COLUMNS[:-1]
      rows = itertools.chain.from_iterable(block.rows() for block in predicted)
      write_csv(new / path.name, columns, rows)
    else:
      with atomic_write(new / path.name) as file:
        for block in predicted:
          file.writelines(block.lines())
    _save_beside(tagger)
    if explain:
      attends, n = tagger.run.scorer.attends, len(tagger.ids)
      explanations = Explanations(
        path, tuple(tagger.shown), n, explain, attends
      )
    if explanations and page:
      with atomic_write((new / path.name).with_suffix('.html')) as file:
        file.write(page(explanations))
    others = sorted({file.name for file in new.iterdir()} - {path.name})
  logging.info('%s: %s; also written: %s', path, tagger.size, ', '.join(others))
  return explanations


class _Stopped(Exception):
  """Passes an error through BufferedReader, which would change an OSError."""


def _answer(tagger: Tagger, source: str, skip_bad_lines: bool) -> None:
  """Writes JSON lines on standard output, for a pipe as its lines come."""
  waiting: list[Document] = []

  def answer(documents: Sequence[Document]) -> None:
    sys.stdout.writelines(tagger.predict(documents).lines())
    sys.stdout.flush()

  def answer_waiting() -> None:
    documents = waiting.copy()
    waiting.clear()
    if documents:
      answer(documents)

  def on_wait() -> None:
    try:
      answer_waiting()
    except Exception as error:
      raise _Stopped from error

  quiet = source == STREAM or sys.stdout.isatty()
  with hidden_progress() if quiet else contextlib.nullcontext():
    try:
      for documents in tagger.blocks(source, skip_bad_lines, waiting, on_wait):
        answer(documents)
    except _Stopped as stopped:
      raise stopped.__cause__ from None
    except DataError:
      answer_waiting()  # they came before the fault
      raise


def open_with_labels(
  workdir: str | os.PathLike, labels: str = '', step: int | None = None
) -> OpenRun:
  """Opens the model of a run, and adds the new labels of a file, if any."""
  run = open_run(workdir, step)
  if not labels:
    return run
  run.check_reads_names()
  return run.with_labels(read_new_labels(labels, run.space))


def _save_beside(tagger: Tagger) -> None:
  """Writes X.npz, and X.metrics.json if any gold labels are known."""
  run, strategy, npz = tagger.run, tagger.strategy, tagger.beside
  labelled = np.array([labels is not None for labels in tagger.labels])
  split, space = labelled_split(tagger.ids, tagger.labels, run.space)
  predictions = tagger.predictions(split, space)
  if labelled.any():
    from xjax.judge.judge import judge
    from xjax.run.evaluate_split import saved_threshold

    criteria = run.config.eval.criteria()
    if strategy:
      criteria, threshold = strategy.criteria(criteria), None
    else:
      threshold = saved_threshold(run.workdir, run.step)
    judged, shown_NK = predictions.of_documents(labelled), None
    if not strategy:
      shown_NK = shown_probabilities(judged, run.calibration)
    metrics = judge(judged, criteria, threshold, shown_NK)
    write_json(npz.with_suffix('.metrics.json'), metrics)
  if not labelled.all():
    predictions = dataclasses.replace(predictions, gold=None)
  predictions.save(npz)


def _check(source: str, output: str, k: int | None, explain: int) -> None:
  if k is not None and k < 1:
    raise ConfigError(f'--k={k}: must be at least 1')
  if explain < 0:
    raise ConfigError(
      f'--explain={explain}: must be a number of words, at least 0'
    )
  if output == STREAM:
    return
  if not output.endswith(_FORMATS):
    raise ConfigError(f'--output={output}: must end in .jsonl or .csv, or be -')
  if source != STREAM and os.path.realpath(source) == os.path.realpath(output):
    raise ConfigError(
      f'--output={output}: this is the input file; choose another file'
    )


def _check_beside(path: pathlib.Path, has_page: bool) -> None:
  """Checks that the files beside X.jsonl replace no file of the user."""
  suffixes = '.npz', '.metrics.json', *(['.html'] if has_page else [])
  names = [path.with_suffix(suffix).name for suffix in suffixes]
  remedy = 'move it, or choose another --output'
  check_unlisted(path.with_suffix(_MARK), names, '`xjax predict`', remedy)


def labelled_split(
  ids: Sequence[str],
  labels: Sequence[Sequence[str] | None],
  space: LabelSpace,
) -> tuple[Split, LabelSpace]:
  """Returns documents as a split, and the space with their new labels last."""
  labels = ids_of_names(labels, space)
  used = dict.fromkeys(id_ for known in labels for id_ in known)
  left_out = set(space.left_out_ids)  # these are no misses
  unknown = [x for x in used if x not in space.index and x not in left_out]
  if unknown:
    logging.warning(
      'the model does not know %s of the documents, such as %s; each is a miss '
      'of the model in all metrics',
      plural(len(unknown), 'label'),
      ', '.join(f'{id_!a}' for id_ in unknown[:3]),
    )
  space = add_outside(space, SourceCorpus(INPUT, (), tuple(used), {}, ()))
  split = Split(
    name=INPUT,
    ids=tuple(ids),
    gold=Ragged.of(
      [sorted(space.index[id_] for id_ in known) for known in labels]
    ),
    documents=(),
    digest='',
  )
  return split, space
