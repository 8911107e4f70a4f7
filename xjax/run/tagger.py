"""Predicts the labels of many documents, block by block."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import pathlib
import tempfile
import typing
from typing import IO, Any

import numpy as np

from xjax.core.atomic import writing
from xjax.core.progress import Progress, hidden_progress
from xjax.core.texts import known_name
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.load import read_input, stream_input
from xjax.data.schema import Document, LabelSpace, Split
from xjax.data.vectors.feature_files import read_features
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import joined, predict
from xjax.judge.metrics.slices import ALL
from xjax.judge.prediction_lines import (
  ExplainedDocument,
  ExplainedLabel,
  prediction_line,
)
from xjax.judge.predictions import Predictions
from xjax.models.explanations import LabelExplanations
from xjax.run.open_run import OpenRun

if typing.TYPE_CHECKING:
  from xjax.run.evaluate_split import Threshold
  from xjax.run.strategies.strategy_request import StrategyRequest

INPUT = 'input'  # the split of documents that are predicted
COLUMNS = 'id', 'rank', 'label', 'name', 'score', 'why'
_SHOWN = 500  # a page of explanations shows at most this many documents
# Documents are predicted in blocks of at most so many documents and characters.
_BLOCK, _CHARACTERS = 4096, 1 << 24


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
    """Yields a row of COLUMNS per label, and one for a document without."""
    for id_, ids_K, scores_K, whys in self.labels():
      real = ids_K != PAD
      if not real.any():
        yield [id_, *[None] * (len(COLUMNS) - 2 + (whys is not None))]
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
    space = self.run.space
    if gold is not None:
      gold = {known_name(id_, space.ids) for id_ in gold}
    features = explanations.features(row) or [()] * len(ids_K)
    labels = [
      ExplainedLabel(
        id=(id_ := space.ids[at]),
        name=space.labels.shown(at),
        score=float(score),
        is_gold=None if gold is None else id_ in gold,
        why=why,
        weights_T=weights_T[: len(words)] * is_word_T,
        features=parts,
      )
      for at, score, why, weights_T, parts in zip(
        ids_K[real], scores, whys, explanations.first[row][real], features
      )
    ]
    return ExplainedDocument(document, words, labels)


@dataclasses.dataclass(eq=False)
class Tagger:
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
    split = Split(INPUT, ids, none, documents, '', vectors)
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
      if not self.runner:  # which has an order of its own
        lists = run.shown(lists)
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

  def predictions(self, split: Split, space: LabelSpace) -> Predictions:
    """Returns those of all documents, with their gold labels and lists."""
    lists = {}
    for name, first in self._first.lists.items():
      shape, (ids, scores) = (len(split), first.ids.shape[1]), self._files[name]
      lists[name] = LabelLists(
        np.asarray(np.memmap(ids, first.ids.dtype, 'r', shape=shape)),
        np.asarray(np.memmap(scores, first.scores.dtype, 'r', shape=shape)),
      )
    return joined(self._first, lists, split, space)
