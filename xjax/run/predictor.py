"""Predicts labels for text with a trained model."""

from collections.abc import Iterable, Sequence
import dataclasses
import functools
import typing
from typing import NamedTuple

import numpy as np
from scipy import sparse

from xjax.config.run import Config
from xjax.core.allocation import power_of_two
from xjax.core.config_part import kinds
from xjax.core.distributed import rank_documents
from xjax.core.errors import ConfigError
from xjax.core.progress import progress
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Document, Label, LabelSpace, Split
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.predict import check_scores
from xjax.judge.prediction_lines import AttendedWord, attended_words
from xjax.judge.predictions import (
  Lists,
)
from xjax.score.config import ExactMatchModel, is_neural
from xjax.train.inputs import Inputs, features_from_arrays
from xjax.train.sparse_inputs import SparseInputs
from xjax.train.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.select.model_scorer import ModelScorer

EXPLAINED = 8  # at least so many labels of a document are explained together


@dataclasses.dataclass(frozen=True, eq=False)
class LabelExplanations:
  """Holds the tokens to which the K labels of each of N documents attend.

  Attributes:
    at_NKW: int32, places of the W tokens to which each label attends most. The
      places are in descending order of attention weight; places with equal
      weights are in ascending order. If a document has fewer than W tokens, the
      last entries are places after the end of the document.
    weights_NKW: float32, attention weights of these tokens.
    words: int, how many words to show for each label, at most W.
    first: for each of the first few documents, the attention weights of all
      tokens, float32 [K, T]. Padding has weight 0.
  """

  at_NKW: np.ndarray
  weights_NKW: np.ndarray
  words: int
  first: list[np.ndarray]


def attention_of(
  scorer: 'ModelScorer',
  batches: Iterable[Batch],
  ids_NK: np.ndarray,
  words: int,
  n_special: int = 0,
  n_first: int = 0,
) -> LabelExplanations:
  """Computes to which tokens of a document the labels of the document attend.

  Args:
    scorer: model whose labels attend to words.
    batches: batches with every document once.
    ids_NK: int32, the labels of each document, PAD after the last label.
    words: int, how many words to show for each label.
    n_special: int, number of tokens of a document that are not words; W is
      words + n_special.
    n_first: int. For the first n_first documents, the weights of all tokens are
      kept.

  Returns:
    The tokens with the most attention and their weights.
  """
  shape = (*ids_NK.shape, words + n_special)
  at_NKW = np.full(shape, np.iinfo(np.int32).max, np.int32)
  weights_NKW = np.zeros(shape, np.float32)
  first = [np.zeros(0, np.float32)] * min(n_first, len(ids_NK))
  # A program is compiled for each length of the lists, so few lengths are used.
  wider = max(EXPLAINED, power_of_two(ids_NK.shape[1])) - ids_NK.shape[1]
  padded_NK = np.pad(ids_NK, ((0, 0), (0, wider)), constant_values=PAD)
  with progress(batches, 'explaining', unit='batch') as shown:
    for batch in shown:
      alpha_BKT = scorer.attention(batch, padded_NK[batch.doc_B])
      alpha_BKT = alpha_BKT[:, : ids_NK.shape[1]]
      at_BKW = np.argsort(-alpha_BKT, axis=2, kind='stable')[:, :, : shape[2]]
      width = at_BKW.shape[2]
      real_B = batch.doc_B != PAD
      rows = batch.doc_B[real_B]
      at_NKW[rows, :, :width] = at_BKW[real_B]
      weights_NKW[rows, :, :width] = np.take_along_axis(
        alpha_BKT, at_BKW, axis=2
      )[real_B]
      for row, alpha_KT in zip(rows.tolist(), alpha_BKT[real_B], strict=True):
        if row < len(first):
          first[row] = alpha_KT
  return LabelExplanations(at_NKW, weights_NKW, words, first)


def check_explains(config: Config) -> None:
  """Checks that the labels of a run attend to words.

  Raises:
    ConfigError: the labels do not attend to words, or the model does not read
      single words.
  """
  if not is_neural(config.model):
    raise ConfigError(
      f'labels of {_names([type(config.model)])} cannot be explained: they do '
      'not attend to words'
    )
  head, tokens = config.model.head, config.data.tokens
  if not head.attends:
    from xjax.score.heads.contract import HeadConfig

    able = _names(kind for kind in kinds(HeadConfig) if kind.attends)
    raise ConfigError(
      f'labels of the head {_names([type(head)])} cannot be explained: they do '
      f'not attend to words; heads whose labels attend to words: {able}'
    )
  if tokens.dense:
    raise ConfigError(
      'labels cannot be explained: this run reads vectors, not words'
    )
  if tokens.by_zone:
    raise ConfigError(
      'labels cannot be explained by words: the labels of this run attend to '
      'zones (data.tokens.by_zone)'
    )


def check_describes(config: Config) -> None:
  """Checks that the model of a run can score new labels by their names.

  Raises:
    ConfigError: the model does not read label names.
  """
  if isinstance(config.model, ExactMatchModel):
    return
  if not is_neural(config.model):
    raise ConfigError(
      f'{_names([type(config.model)])} cannot score new labels: it can only '
      'learn a label from training documents of that label'
    )
  head = config.model.head
  if not head.describes:
    from xjax.score.heads.contract import HeadConfig

    able = _names(kind for kind in kinds(HeadConfig) if kind.describes)
    raise ConfigError(
      f'the head {_names([type(head)])} cannot score new labels: it does not '
      f'read label names; heads that read label names: {able}'
    )
  if config.data.tokens.dense:
    raise ConfigError(
      'new labels cannot be scored by name: this run reads vectors from files, '
      'so the names of new labels have no vectors; use a run that reads text'
    )


def _names(parts: Iterable[type]) -> str:
  return ', '.join(part.__name__ for part in parts)


class Prediction(NamedTuple):
  """Holds a label predicted for a document.

  Attributes:
    id: id of the label.
    name: name of the label.
    score: float, the probability of the label, calibrated if the run has a
      calibration. If the model computes margins and the run has no calibration,
      the score is the margin of the label.
  """

  id: str
  name: str
  score: float


class ExplainedPrediction(NamedTuple):
  """Holds a label predicted for a document, and the words that explain it.

  Attributes:
    id, name, score: as in Prediction.
    why: the words to which the label attends most, in descending order of
      attention.
  """

  id: str
  name: str
  score: float
  why: tuple[AttendedWord, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
  """Predicts labels for text with a trained model.

  A predictor is also a core.types.Scorer.

  Attributes:
    config: config of the run.
    space: label space.
    inputs: makes batches; documents are read as in training.
    scorer: model that scores batches.
    step: int, step of the model's checkpoint.
    workdir: folder of the run.
    calibration: calibration of the scores that predict returns; None for
      uncalibrated scores. The scores of topk are never calibrated.
  """

  config: Config
  space: LabelSpace
  inputs: Inputs | SparseInputs
  scorer: Scorer
  step: int
  workdir: Workdir
  calibration: Calibration | None = None

  @property
  def score_kind(self) -> ScoreKind:
    """Returns the kind of the scores that topk computes."""
    return self.scorer.score_kind

  @property
  def n_labels(self) -> int:
    """Returns n; the first n labels of the space are ranked."""
    return self.scorer.n_labels

  @property
  def assigned_above(self) -> float | None:
    """Returns the score above which the model assigns labels (see Scorer)."""
    return self.scorer.assigned_above

  @property
  def selected_by(self) -> str:
    """Returns how the scorer searches for the best labels, such as `exact`."""
    return self.scorer.selected_by

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best labels (ids_GBK, scores_GBK); see core.types.Scorer."""
    return self.scorer.topk(batch, k, weights, slices, allowed, sigmoid)

  def batches(self, split: Split) -> Iterable[Batch]:
    """Returns batches of a split with every document once, for judging."""
    return self.inputs.split_batches(split)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> Iterable[Batch]:
    """Returns batches with every text once; for few texts, batches are small.

    Args:
      documents: texts, or documents whose zones are read as in training.
      features: vectors of the documents, if the run reads vectors.
    """
    return self.inputs.text_batches(documents, features)

  def predict(
    self,
    documents: Sequence[str | Document],
    k: int = 20,
    features: Sequence[np.ndarray] | None = None,
  ) -> list[list[Prediction]]:
    """Returns the k best labels of each document.

    Args:
      documents: texts, or documents whose zones are read as in training.
      k: int, length of the lists; if the run has fewer labels, the lists are
        shorter.
      features: an array per document, float [D] or [tokens, D]; None if the run
        does not read vectors.

    Returns:
      A list of labels for each document, best label first.

    Raises:
      ConfigError: features are missing, have a wrong size, or are not read by
        the run.
      DataError: features have a fault, such as another number of documents.
    """
    rows = features_from_arrays(features, len(documents), self.config)
    return self.predictions(self.lists(documents, k, rows))

  def explain(
    self, documents: Sequence[str | Document], k: int = 20, words: int = 5
  ) -> list[list[ExplainedPrediction]]:
    """Predicts labels, and finds the words to which each label attends most.

    Args:
      documents, k: as in predict.
      words: int, maximum number of words for each label.

    Returns:
      A list of labels with words for each document, best label first.

    Raises:
      ConfigError: the labels of this run do not attend to words.
    """
    check_explains(self.config)
    lists = self.lists(documents, k)
    attention = self.attention(documents, lists.ids, words)
    return [
      [
        ExplainedPrediction(*label, why)
        for label, why in zip(labels, self.why(documents[row], attention, row))
      ]
      for row, labels in enumerate(self.predictions(lists))
    ]

  def attention(
    self,
    documents: Sequence[str | Document],
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """Computes to which tokens of a document the labels of the document attend.

    Args:
      documents: texts, or documents whose zones are read as in training.
      ids_NK: int32, the labels of each document, PAD after the last label.
      words: int, how many words to show for each label.
      n_first: int. For the first n_first documents, the weights of all tokens
        are kept.
    """
    # No document has more than max_tokens words, so a larger number would waste
    # memory.
    words = min(words, self.config.data.tokens.max_tokens)
    batches = self.text_batches(documents)
    special = self.inputs.vocab.n_special
    return attention_of(self.scorer, batches, ids_NK, words, special, n_first)

  def why(
    self, document: str | Document, attention: LabelExplanations, row: int
  ) -> list[tuple[AttendedWord, ...]]:
    """Returns the words to which the K labels of a document attend most.

    Args:
      document: the text or document.
      attention: explanations of many documents.
      row: int, row of this document in `attention`.
    """
    zones, words = self.inputs.document(document), self.inputs.words(document)
    return [
      attended_words(zones, words, at_W, weights_W)[: attention.words]
      for at_W, weights_W in zip(
        attention.at_NKW[row], attention.weights_NKW[row], strict=True
      )
    ]

  def with_labels(self, labels: Sequence[Label]) -> 'Predictor':
    """Returns a predictor that scores new labels too, by their names.

    Args:
      labels: labels with names, and with ids that the run does not score yet.

    Raises:
      ConfigError: the model of this run does not read label names.
      DataError: an id or a name has a fault.
    """
    from xjax.run.added_labels import describe, widen_scorer

    check_describes(self.config)
    space = add_new_labels(self.space, labels)
    vocab = self.inputs.vocab
    rows = describe(labels, self.space, self.config, vocab, self.workdir)
    scorer = widen_scorer(
      self.scorer,
      self.config,
      space,
      self.inputs.vocab_size,
      rows,
      self.workdir.architecture(),
    )
    return dataclasses.replace(self, space=space, scorer=scorer)

  def lists(
    self,
    documents: Sequence[str | Document],
    k: int,
    features: FeatureRows | None = None,
  ) -> Lists:
    """Returns the k best labels of each document, with uncalibrated scores.

    If the run has fewer than k labels, the lists are shorter than k.

    Args:
      documents: texts, or documents whose zones are read as in training.
      k: int, length of the lists.
      features: vectors of the documents, if the run reads vectors.
    """
    k = min(k, self.space.n_inside)
    size = self._compiled_size(k)
    batches = self.text_batches(documents, features)
    topk = functools.partial(self.topk, k=size)
    ids, scores, _ = rank_documents(batches, topk, len(documents), size)
    check_scores(ids, scores, range(len(documents)), 'the documents')
    return Lists(ids[0, :, :k], scores[0, :, :k])

  def _compiled_size(self, k: int) -> int:
    """Returns the length of the lists that are computed for k labels.

    A neural model compiles a program for each length, so few lengths are used.
    """
    if not is_neural(self.config.model):
      return k
    size = self.config.eval.depth
    while size < k:
      size *= 2
    return min(size, self.space.n_inside)

  def warmup(self, explain: bool = False) -> None:
    """Compiles all programs that predict needs, so that no later call compiles.

    The programs are for lists of at most eval.depth labels.

    Args:
      explain: whether to compile the programs of `explain` too, for lists of at
        most 8 labels.
    """
    if not isinstance(self.inputs, Inputs):
      # Linear models compile their search once, for all sizes of batches.
      example = ['']
      if self.inputs.reads_rows:
        rows = sparse.csr_array((1, self.inputs.n_features), dtype=np.float32)
        example = SparseDocuments('example', rows)
      self.lists(example, 1)
      return
    if explain:
      check_explains(self.config)
    size = self._compiled_size(1)
    batches = self.inputs.example_batches()
    with progress(batches, 'compiling', unit='batch') as shown:
      for batch in shown:
        self.topk(batch, size)
        if explain:
          shape = len(batch.doc_B), EXPLAINED
          self.scorer.attention(batch, np.full(shape, PAD, np.int32))

  def predictions(self, lists: Lists) -> list[list[Prediction]]:
    """Returns lists in the form that users see, with calibrated scores."""
    return [
      self._predictions(ids_K, scores_K)
      for ids_K, scores_K in zip(lists.ids, lists.scores, strict=True)
    ]

  def _predictions(
    self, ids_K: np.ndarray, scores_K: np.ndarray
  ) -> list[Prediction]:
    real = ids_K != PAD
    scores = self.readable(ids_K[real], scores_K[real])
    labels = (self.space.labels[i] for i in ids_K[real])
    return [
      Prediction(label.id, label.name, float(score))
      for label, score in zip(labels, scores)
    ]

  def readable(self, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns the scores that users see; see calibration.readable_scores.

    Args:
      ids: int, labels; any number where there is PAD.
      scores: float, scores of these labels, with the same shape.
    """
    counts = np.asarray(self.space.train_counts)[ids]
    return readable_scores(scores, self.score_kind, self.calibration, counts)
