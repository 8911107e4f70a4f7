"""Uses a finished run to predict the labels of documents in a file.

The code of metrics and strategies is imported only if it is used. So a label
tree tags documents without loading JAX.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import itertools
import os
import pathlib
import sys
import tempfile
import typing
from typing import IO, Any

from absl import logging
import numpy as np

from xjax.core.allocation import enough_memory
from xjax.core.atomic import atomic_write, write_json, writing
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Heartbeat, Progress, hidden_progress
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.files.file_set import check_unlisted, writing_set
from xjax.data.files.tables import write_csv
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.labels import add_outside, read_new_labels
from xjax.data.load import read_input, stream_input
from xjax.data.schema import Document, LabelSpace, Split
from xjax.data.vectors.feature_files import read_features
from xjax.judge.calibration import shown_probabilities
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import joined, predict
from xjax.judge.metrics.slices import ALL
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  Explanations,
  prediction_line,
)
from xjax.judge.predictions import Predictions
from xjax.models.explanations import LabelExplanations
from xjax.run.open_run import OpenRun, open_run

if typing.TYPE_CHECKING:
  from xjax.run.evaluate_split import Threshold
  from xjax.run.strategies.strategy_request import StrategyRequest


@dataclasses.dataclass(frozen=True, eq=False)
class PredictedDocuments:
  run: OpenRun  # that has predicted the labels
  lists: LabelLists  # with the model's scores before calibration
  documents: Sequence[Document]
  whys: LabelExplanations | None  # words, if they are asked for

  def labels(self) -> Iterator[tuple[str, np.ndarray, np.ndarray, Any]]:
    """Yields the id, labels [K], readable scores [K] and words of documents."""
    for row, document in enumerate(self.documents):
      ids_K = self.lists.ids[row]
      scores_K = self.run.readable(ids_K, self.lists.scores[row])
      yield document.id, ids_K, scores_K, self.whys and self.whys.why(row)

  def lines(self) -> Iterator[str]:
    """Yields a JSON line per document, with words if there are explanations."""
    for row, (id_, ids_K, scores_K, whys) in enumerate(self.labels()):
      features, shown = (), 0
      if self.whys is not None:
        features, shown = self.whys.features(row), self.whys.words
      labels = self.run.space.labels
      line = prediction_line(
        id_, ids_K, scores_K, labels, whys, features, shown
      )
      yield line + '\n'

  def rows(self) -> Iterator[list[Any]]:
    """Yields a row of _COLUMNS per label, and one for a document without."""
    for id_, ids_K, scores_K, whys in self.labels():
      real = ids_K != PAD
      if not real.any():
        yield [id_, *[None] * (len(_COLUMNS) - 2 + (whys is not None))]
      for at, (label, score) in enumerate(zip(ids_K[real], scores_K[real])):
        label, score = self.run.space.labels[label], float(f'{score:.6g}')
        words = whys and [', '.join(word.word for word in whys[at])]
        yield [id_, at + 1, label.id, label.name, score, *(words or [])]

  def explained(self, row: int) -> ExplainedDocument:
    """Returns a document for a page; `whys` must have all its words."""
    explanations = self.whys
    document, words = explanations.read(row)
    is_word_T = np.array([word.start < word.end for word in words], bool)
    ids_K = self.lists.ids[row]
    real = ids_K != PAD
    scores = self.run.readable(ids_K[real], self.lists.scores[row, real])
    gold, whys = self.documents[row].labels, explanations.why(row)
    features = explanations.features(row) or [()] * len(ids_K)
    labels = [
      ExplainedLabel(
        id=(label := self.run.space.labels[at]).id,
        name=label.name,
        score=float(score),
        is_gold=None if gold is None else label.id in gold,
        why=why,
        weights_T=weights_T[: len(words)] * is_word_T,
        features=parts,
      )
      for at, score, why, weights_T, parts in zip(
        ids_K[real], scores, whys, explanations.first[row][real], features
      )
    ]
    return ExplainedDocument(document, words, labels)


_MARK = '.judged.json'
_FORMATS = '.jsonl', '.csv'  # of the output
_COLUMNS = 'id', 'rank', 'label', 'name', 'score', 'why'
STREAM = '-'  # standard input or output
_INPUT = 'input'
_SHOWN = 500  # a page of explanations shows at most this many documents
# Documents are predicted in blocks of at most so many documents and characters.
_BLOCK, _CHARACTERS = 4096, 1 << 24


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

  Args:
    workdir: folder of the run.
    source: path of the documents, in the format of the run's corpus or as JSON
      lines; '-' is standard input.
    output: path X.jsonl or X.csv; '-' is standard output, as JSON lines.
    k: length of the lists; None for that of the run's saved lists.
    labels: path of further labels to score (read_new_labels), or ''.
    explain: number of words to show for each label.
    features: path, without its suffix, of the documents' vectors, or ''.
    strategy: chooses the labels in place of the k best scores. They are written
      in its order, and are the lists over all labels of X.npz.
    step: None for the best checkpoint.
    page: returns the HTML of X.html.
    threshold: 'tuned' or a probability: only the labels that it assigns are
      written to X.jsonl, at most k. '' writes all k labels.
    skip_bad_lines: whether faulty lines are left out.

  Returns:
    The contents of X.html; None if `explain` is 0 or the output is '-'.
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
  tagger = _Tagger(run, k, explain, features, strategy)
  if threshold:
    from xjax.run.evaluate_split import Threshold

    tagger.threshold = Threshold.of(threshold, run)
  if output == STREAM:
    _answer(tagger, source, skip_bad_lines)
    logging.info('standard output: %s', tagger.size)
    return None
  path, explanations = pathlib.Path(output), None
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
      columns = _COLUMNS if explain else _COLUMNS[:-1]
      rows = itertools.chain.from_iterable(block.rows() for block in predicted)
      write_csv(new / path.name, columns, rows)
    else:
      with atomic_write(new / path.name) as file:
        for block in predicted:
          file.writelines(block.lines())
    _save_beside(tagger)
    if explain:
      attends, n = run.scorer.attends, len(tagger.ids)
      explanations = Explanations(
        path, tuple(tagger.shown), n, explain, attends
      )
    if explanations and page:
      with atomic_write((new / path.name).with_suffix('.html')) as file:
        file.write(page(explanations))
    others = sorted({file.name for file in new.iterdir()} - {path.name})
  logging.info('%s: %s; also written: %s', path, tagger.size, ', '.join(others))
  return explanations


def _is_file(source: str) -> bool:
  if source == STREAM:
    return sys.stdin.buffer.seekable()
  return os.path.isfile(source) or os.path.isdir(source)


class _Stopped(Exception):
  """Passes an error through the reader of a pipe, which would change it."""


def _answer(tagger: '_Tagger', source: str, skip_bad_lines: bool) -> None:
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
      if not _is_file(source):
        answer_waiting()  # they came before the fault
      raise


@dataclasses.dataclass(eq=False)
class _Tagger:
  """Predicts blocks of documents, and keeps what the files beside X need."""

  run: OpenRun
  k: int
  words: int
  features: str
  strategy: 'StrategyRequest | None'
  threshold: 'Threshold | None' = None
  beside: pathlib.Path | None = None  # X.npz; None: nothing is kept

  def __post_init__(self) -> None:
    self.runner = None
    if self.strategy:
      from xjax.run.strategies.strategy_request import StrategyRunner

      self.runner = StrategyRunner.of(self.strategy, self.run)
    # A strategy compares all documents, and files of vectors are read once.
    data = self.run.config.data
    self.at_once = bool(data.sparse or self.strategy or self.features)
    self.n_documents, self.n_labels = 0, 0  # labels: those that were written
    self.ids: list[str] = []
    self.labels: list[tuple[str, ...] | None] = []  # gold; None: unknown
    self.shown: list[ExplainedDocument] = []
    self._first: Predictions | None = None
    self.open_files = contextlib.ExitStack()
    # Temporary files of ids and of scores, by slice.
    self._files: dict[str, list[IO[bytes]]] = {}
    self._label_ids: dict[str, str] = {}  # one text of each

  @property
  def size(self) -> str:
    documents = plural(self.n_documents, 'document')
    return f'{documents}, {plural(self.n_labels, "label")}'

  def blocks(
    self,
    source: str,
    skip_bad_lines: bool,
    waiting: list[Document] | None = None,
    on_wait: Callable[[], None] | None = None,
  ) -> Iterator[Sequence[Document]]:
    """Yields documents in blocks; `waiting` has the next block so far."""
    data, size = self.run.config.data, 0
    if self.at_once:
      yield read_input(data, source, skip_bad_lines)
      return
    waiting = [] if waiting is None else waiting
    documents = stream_input(data, source, skip_bad_lines, on_wait)
    with Progress('predicting', unit='document') as shown:
      for document in documents:
        waiting.append(document)
        size += sum(map(len, document.zones.values()))
        if len(waiting) >= _BLOCK or size >= _CHARACTERS:
          block, size = waiting.copy(), 0
          waiting.clear()
          yield block
          shown.update(len(block))
      if waiting:
        yield waiting.copy()

  def predict(self, documents: Sequence[Document]) -> PredictedDocuments:
    run, ids = self.run, tuple(document.id for document in documents)
    depth = max(self.k, run.config.eval.depth)
    vectors = read_features(self.features, ids) if self.features else None
    none = Ragged.of([()] * len(ids))
    split = Split(_INPUT, ids, none, documents, '', vectors)
    with contextlib.nullcontext() if self.at_once else hidden_progress():
      # The documents are of no split of the run, whose tokens would be cached.
      predictions = predict(
        run.scorer,
        split,
        run.space,
        depth,
        documents=Documents.of(documents, vectors),
      )
      lists, whys = predictions.lists[ALL].first(self.k), None
      if self.runner:
        predictions, lists = self.runner.choose(predictions, split)
      if self.threshold:
        lists = self.threshold.keep(lists, run)
      if self.words:
        n_first = max(0, _SHOWN - self.n_documents) if self.beside else 0
        whys = run.explanations(documents, lists.ids, self.words, n_first)
    predicted = PredictedDocuments(run, lists, documents, whys)
    if self.beside:
      with writing(self.beside):
        self._keep(documents, predictions)
      if whys:
        self.shown += map(predicted.explained, range(len(whys.first)))
    self.n_documents += len(ids)
    self.n_labels += int(lists.lengths.sum())
    return predicted

  def _keep(
    self, documents: Sequence[Document], predictions: Predictions
  ) -> None:
    self.ids += predictions.doc_ids
    one = self._label_ids.setdefault
    for labels in (document.labels for document in documents):
      known = None if labels is None else tuple(one(x, x) for x in labels)
      self.labels.append(known)
    self._first = self._first or predictions
    for name, lists in predictions.lists.items():
      if name not in self._files:
        self._files[name] = [
          self.open_files.enter_context(tempfile.TemporaryFile(dir=folder))
          for folder in [self.beside.parent] * 2
        ]
      for file, array in zip(self._files[name], (lists.ids, lists.scores)):
        file.write(np.ascontiguousarray(array).data)

  def predictions(self) -> Predictions:
    """Returns the predictions of all documents, with lists in files."""
    split, space = labelled_split(self.ids, self.labels, self.run.space)
    lists = {}
    for name, first in self._first.lists.items():
      shape, (ids, scores) = (len(split), first.ids.shape[1]), self._files[name]
      lists[name] = LabelLists(
        np.asarray(np.memmap(ids, first.ids.dtype, 'r', shape=shape)),
        np.asarray(np.memmap(scores, first.scores.dtype, 'r', shape=shape)),
      )
    return joined(self._first, lists, split, space)


def open_with_labels(
  workdir: str | os.PathLike, labels: str = '', step: int | None = None
) -> OpenRun:
  """Opens the model of a run, and adds the new labels of a file, if any."""
  run = open_run(workdir, step)
  if not labels:
    return run
  run.check_reads_names()
  return run.with_labels(read_new_labels(labels, run.space))


def _save_beside(tagger: _Tagger) -> None:
  """Writes X.npz, and X.metrics.json if any gold labels are known."""
  run, strategy, npz = tagger.run, tagger.strategy, tagger.beside
  labelled = np.array([labels is not None for labels in tagger.labels])
  predictions = tagger.predictions()
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
  used = dict.fromkeys(id_ for known in labels for id_ in known or ())
  left_out = set(space.left_out_ids)  # these are no misses
  unknown = [x for x in used if x not in space.index and x not in left_out]
  if unknown:
    logging.warning(
      'the model does not know %s of the documents, such as %s; each is a miss '
      'of the model in all metrics',
      plural(len(unknown), 'label'),
      ', '.join(f'{id_!a}' for id_ in unknown[:3]),
    )
  space = add_outside(space, SourceCorpus(_INPUT, (), tuple(used), {}, ()))
  split = Split(
    name=_INPUT,
    ids=tuple(ids),
    gold=Ragged.of(
      [sorted(space.index[id_] for id_ in known or ()) for known in labels]
    ),
    documents=(),
    digest='',
  )
  return split, space
