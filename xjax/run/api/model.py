"""Defines the model that Python users work with."""

from collections.abc import Sequence
import numbers
import os
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.formats.xc_features import scale_rows
from xjax.data.in_memory import documents_of
from xjax.data.memory_folder import labelled_documents
from xjax.data.schema import Document, Label, Labels
from xjax.judge.calibration import shown_probabilities
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import predict
from xjax.models.contract import Config
from xjax.models.run_copies import (
  TemporaryFolder,
  pack_run,
  save_run,
  unpack_run,
)
from xjax.run.evaluate_split import Threshold, saved_threshold
from xjax.run.open_run import ExplainedPrediction, OpenRun, Prediction, open_run
from xjax.run.predict_file import labelled_split
from xjax.train.workdir import Workdir


class Model:
  """Predicts labels of texts, and is judged, explained, saved and pickled.

  A model comes from `xjax.fit` or `xjax.load`. The argument `texts` of its
  methods can have one of these forms:

  - one text (a str) or one Document, which counts as a list of one;
  - a list, tuple, generator, NumPy array or Series of texts, or of Documents;
  - a DataFrame, of which the columns are read that the model was trained on;
  - a matrix of features [N, D], for a model that was trained on features.

  A pickle of a model has its saved files. The unpickled model has a temporary
  folder of its own.

  Attributes:
    run: the part of the library that does the work. Its methods may change
      with any version of xjax.
  """

  def __init__(
    self, run: OpenRun, folder: TemporaryFolder | None = None
  ) -> None:
    """Wraps a run; its last model deletes a temporary folder, if any."""
    self.run = run
    self._folder = folder
    self._added: tuple[Label, ...] = ()

  @property
  def config(self) -> Config:
    return self.run.config

  @property
  def workdir(self) -> Workdir:
    """Returns the folder of the run; it may be temporary."""
    return self.run.workdir

  @property
  def labels(self) -> Labels:
    return self.run.space.labels[: self.run.n_labels]

  def __repr__(self) -> str:
    kind = type(self.config.model).__name__
    path = 'a temporary folder' if self._folder else self.workdir.path
    return f'<xjax.Model: {kind} with {len(self.labels)} labels, in {path}>'

  def predict(
    self,
    texts: Any,
    k: int | None = 5,
    threshold: str | float | None = None,
    features: Sequence[np.ndarray] | None = None,
  ) -> list[list[Prediction]]:
    """Returns the best labels of each document, best label first.

    Args:
      texts: the documents; see the class.
      k: the largest number of labels of a document; None means
        config.eval.depth.
      threshold: a probability from 0 to 1. Only labels with at least this
        probability are returned. 'tuned' means the threshold with the best
        micro-F1 on dev. None returns k labels.
      features: an array per document, float [D] or [tokens, D], for a run that
        reads vectors of an outside encoder.

    Raises:
      ConfigError: k or the threshold is impossible, the run has no such
        threshold, or the model does not read such documents.
      DataError: an item of `texts` or `features` has a fault.
    """
    documents = self.documents(texts)
    rows = self.run.vectors(features, len(documents))
    size = self.config.eval.depth if k is None else check_k(k)
    lists = self.run.lists(documents, size, rows)
    if threshold is not None:
      lists = Threshold.of(threshold, self.run).keep(lists, self.run)
    return self.run.predictions(lists)

  def predict_proba(self, texts: Any) -> sparse.csr_array:
    """Returns the probabilities of the best labels of each document.

    Only the config.eval.depth (usually 50) best labels of a document have an
    entry. Entries of other labels are 0. Column j is the label `labels[j]`.

    Raises:
      ConfigError: the scores of this model are not probabilities.
      DataError: an item of `texts` has a fault.
    """
    run = self.run
    if not run.has_probabilities():
      raise ConfigError(
        'the scores of this model are margins, not probabilities: train it '
        'with a dev split, on which margins are calibrated, or with a logistic '
        'loss'
      )
    lists = run.lists(self.documents(texts), self.config.eval.depth)
    scores_NK = run.readable(lists.ids, lists.scores)
    return score_matrix(lists, scores_NK, run.n_labels)

  def evaluate(self, texts: Any, labels: Any = None) -> dict[str, Any]:
    """Computes the metrics of the model on documents with gold labels.

    `labels` have one of the forms of xjax.fit; an indicator matrix has a column
    for each label of the model. None uses the labels of Documents. A label that
    the model does not know is always a miss.

    Returns:
      {slice: {metric: value}} under the protocol of xjax, such as
      metrics['all']['P@1']. docs/judging.md describes all metrics.

    Raises:
      ConfigError: the model does not read such documents.
      DataError: the texts or the labels have a fault, or their numbers differ.
    """
    texts = _as_list(texts)
    is_matrix = sparse.issparse(labels) or getattr(labels, 'ndim', 1) == 2
    names = None
    if is_matrix and not hasattr(labels, 'columns'):
      names = list(self.labels.ids)
    judged = labelled_documents(
      texts,
      labels,
      names,
      known_ids=self.run.space.ids,
      zones=self._zones(texts),
    )
    documents = self._scaled(judged.documents)
    ids = judged.labels.rows
    if not ids:
      raise DataError('texts is empty: there are no documents to judge')
    run, config = self.run, self.config.eval
    doc_ids = [document.id for document in documents]
    split, space = labelled_split(doc_ids, ids, run.space)
    # The documents are of no split of the run, whose tokens would be cached.
    documents = Documents.of(documents)
    predictions = predict(
      run.scorer, split, space, config.depth, documents=documents
    )
    threshold = saved_threshold(run.workdir, run.step)
    shown_NK = shown_probabilities(predictions, run.calibration)
    return judge(predictions, config.criteria(), threshold, shown_NK)[PROTOCOL]

  def explain(
    self, texts: Any, k: int = 5, words: int = 5
  ) -> list[list[ExplainedPrediction]]:
    """Predicts labels, and finds the words that explain each label.

    The weight of a word is the label's attention to the word. If the model is
    linear, it is how much the word adds to the score of the label before
    calibration; in a label tree, it is how much the word adds to the scores of
    the classifiers on the label's path, which only approximates this. Then only
    words that raise the score are returned. Each document gets k labels, best
    label first, each with at most `words` words.

    Raises:
      ConfigError: k or words is impossible, or the labels of this model cannot
        be explained, for example because it reads features instead of words.
      DataError: an item of `texts` has a fault.
    """
    size, words = check_k(k), check_k(words, 'words')
    return self.run.explain(self.documents(texts), size, words)

  def with_labels(self, labels: Sequence[Label]) -> 'Model':
    """Returns a model that scores new labels too, by their names.

    The labels have names, and ids that the model does not score yet.

    Raises:
      ConfigError: the model does not read label names.
      DataError: an id or a name has a fault.
    """
    model = Model(self.run.with_labels(labels), self._folder)
    model._added = (*self._added, *labels)
    return model

  def save(self, folder: str | os.PathLike) -> None:
    """Saves the model to a new folder, which xjax.load reads.

    The folder has all that predicting needs, and nothing else of the run. It
    must not exist, or be empty.

    Raises:
      ConfigError: with_labels has added labels.
      DataError: the workdir was moved or deleted after the model was loaded.
      WriteError: the folder is not empty, or cannot be written.
    """
    if self._added:
      raise ConfigError(
        'labels that with_labels has added are not saved: save the model '
        'without them, and call with_labels after loading it'
      )
    save_run(self.run.run, self.run.step, folder)

  def warmup(self, explain: bool = False) -> None:
    """Compiles all programs of a neural model, so that no later call waits.

    Afterwards, predict compiles nothing, for texts of any number and length,
    and k up to config.eval.depth. Models that read zones one by one (HAN) are
    an exception: they compile a program for each number of zones. `explain`
    compiles the programs of that method too.
    """
    self.run.warmup(explain)

  def __reduce__(self) -> tuple[Any, ...]:
    return _unpickle, (pack_run(self.run.run, self.run.step), self._added)

  def documents(self, texts: Any) -> list[Document] | SparseDocuments:
    """Returns `texts` (see the class) as documents that the model reads."""
    texts, facts = _as_list(texts), self.config.data.facts
    zones = self._zones(texts)
    return self._scaled(documents_of(texts, zones=zones, facts=facts))

  def _zones(self, texts: Any) -> Sequence[str]:
    """Returns the columns of a DataFrame that the model reads."""
    data, columns = self.config.data, getattr(texts, 'columns', ())
    if zones := data.text_zones:
      return zones
    # Lists of texts and JSON lines name no columns.
    if 'text' in columns and len(columns) > 1:
      return ('text',)
    return [zone for zone in columns if zone not in ('id', data.label_field)]

  def _scaled(
    self, documents: list[Document] | SparseDocuments
  ) -> list[Document] | SparseDocuments:
    """Scales features as in training; texts stay as they are."""
    tokens = self.config.data.tokens
    if not isinstance(documents, SparseDocuments) or not tokens.sparse:
      return documents
    rows = scale_rows(documents.rows, tokens.norm)
    return SparseDocuments(documents.source, rows)


def load(workdir: str | os.PathLike, step: int | None = None) -> Model:
  """Loads the best model of a run, or a model that Model.save has saved.

  Args:
    workdir: the folder of the run; nothing else is needed.
    step: step of the checkpoint to load; None for the best checkpoint.

  Raises:
    ConfigError: `step` is set, but the model has no optimizer steps.
    DataError: the folder has no run, or a file of the run is missing or
      damaged. If the newest or the best checkpoint is damaged, no other
      checkpoint is loaded instead, unless `step` asks for it.
  """
  return Model(open_run(workdir, step))


def check_k(k: Any, name: str = 'k') -> int:
  """Returns k as an int; ConfigError if it is no integer of at least 1."""
  is_number = isinstance(k, numbers.Integral) and not isinstance(k, bool)
  if not is_number or k < 1:
    raise ConfigError(f'{name}={k!r}: must be an integer of at least 1')
  return int(k)


def _as_list(texts: Any) -> Any:
  return [texts] if isinstance(texts, str | Document) else texts


def score_matrix(
  lists: LabelLists, scores_NK: np.ndarray, n_labels: int
) -> sparse.csr_array:
  """Returns scores of listed labels as [N, L], with an entry for each."""
  real_NK = lists.ids != PAD
  rows = np.nonzero(real_NK)[0]
  entries = scores_NK[real_NK], (rows, lists.ids[real_NK])
  shape = len(lists.ids), n_labels
  return sparse.csr_array(sparse.coo_array(entries, shape=shape))


def _unpickle(packed: bytes, added: Sequence[Label]) -> Model:
  folder = unpack_run(packed)
  model = Model(open_run(folder.path), folder)
  return model.with_labels(added) if added else model
