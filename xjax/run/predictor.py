"""A trained model from its workdir alone."""

from collections.abc import Iterable, Sequence
import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from xjax.config.run import Config
from xjax.core.config_part import kinds
from xjax.core.distributed import rank_documents
from xjax.core.errors import ConfigError
from xjax.core.progress import progress
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Document, Label, LabelSpace, Split
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.prediction_lines import AttendedWord, attended_words
from xjax.run.added_labels import describe, widen_scorer
from xjax.score.config import ExactMatchModel
from xjax.score.heads.contract import HeadConfig
from xjax.score.text_model import NeuralModel
from xjax.select.model_scorer import ModelScorer
from xjax.train.inputs import Inputs, features_from_arrays
from xjax.train.sparse_inputs import SparseInputs
from xjax.train.workdir import Workdir


@dataclasses.dataclass(frozen=True, eq=False)
class LabelExplanations:
  """What the labels of N documents attend to.

  Attributes:
    at_NKW: int32, the W tokens with the most attention of each label, most
      first, ties to the first in the text. Where a document has fewer tokens,
      what follows is beyond them.
    weights_NKW: float32, their weights.
    words: how many to tell of each label, at most W.
    first: for each of the first documents float32 [K, T], the weights of all
      its words (and of padding: 0).
  """

  at_NKW: np.ndarray
  weights_NKW: np.ndarray
  words: int
  first: list[np.ndarray]


def attention_of(
  scorer: ModelScorer,
  batches: Iterable[Batch],
  ids_NK: np.ndarray,
  words: int,
  n_special: int = 0,
  n_first: int = 0,
) -> LabelExplanations:
  """Goes over the documents once more, for labels that are known.

  Args:
    scorer: whose labels attend to words.
    batches: every document once.
    ids_NK: int32, the labels of each document, PAD beyond a list.
    words: how many to tell of a label.
    n_special: tokens of a document that are none of its words; W is as many
      more.
    n_first: documents of which all weights are kept.
  """
  shape = (*ids_NK.shape, words + n_special)
  at_NKW = np.full(shape, np.iinfo(np.int32).max, np.int32)
  weights_NKW = np.zeros(shape, np.float32)
  first = [np.zeros(0, np.float32)] * min(n_first, len(ids_NK))
  with progress(batches, 'explaining', unit='batch') as shown:
    for batch in shown:
      alpha_BKT = scorer.attention(batch, ids_NK[batch.doc_B])
      at_BKW = np.argsort(-alpha_BKT, axis=2, kind='stable')[:, :, : shape[2]]
      found = at_BKW.shape[2]
      real_B = batch.doc_B != PAD
      rows = batch.doc_B[real_B]
      at_NKW[rows, :, :found] = at_BKW[real_B]
      weights_NKW[rows, :, :found] = np.take_along_axis(
        alpha_BKT, at_BKW, axis=2
      )[real_B]
      for row, alpha_KT in zip(rows.tolist(), alpha_BKT[real_B], strict=True):
        if row < len(first):
          first[row] = alpha_KT
  return LabelExplanations(at_NKW, weights_NKW, words, first)


def check_explains(config: Config) -> None:
  """Refuses to say to which words labels attend where they do not.

  Raises:
    ConfigError: which heads can; or that the model reads no words one by one.
  """
  if not isinstance(config.model, NeuralModel):
    raise ConfigError(
      f'labels of {_names([type(config.model)])} cannot be explained: they do '
      'not attend to words'
    )
  head, tokens = config.model.head, config.data.tokens
  if not head.attends:
    able = _names(kind for kind in kinds(HeadConfig) if kind.attends)
    raise ConfigError(
      f'labels of the head {_names([type(head)])} cannot be explained: they do '
      f'not attend to words; those of these heads can: {able}'
    )
  if tokens.dense:
    raise ConfigError('labels cannot be explained: this run reads no words')
  if tokens.by_zone:
    raise ConfigError(
      'labels cannot be explained by words: in this run they attend to zones '
      '(data.tokens.by_zone)'
    )


def check_describes(config: Config) -> None:
  """Refuses to add labels by name where they are not known by descriptors.

  Raises:
    ConfigError: which heads can.
  """
  if isinstance(config.model, ExactMatchModel):
    return
  if not isinstance(config.model, NeuralModel):
    raise ConfigError(
      f'{_names([type(config.model)])} cannot score new labels: it knows labels'
      ' by their documents'
    )
  head = config.model.head
  if not head.describes:
    able = _names(kind for kind in kinds(HeadConfig) if kind.describes)
    raise ConfigError(
      f'the head {_names([type(head)])} cannot score new labels: it does not '
      f'read their names; these heads can: {able}'
    )
  if config.data.tokens.dense:
    raise ConfigError(
      'new labels cannot be scored by name: this run knows labels by vectors '
      'of an outside encoder'
    )


def _names(parts: Iterable[type]) -> str:
  return ', '.join(part.__name__ for part in parts)


class Prediction(NamedTuple):
  """A label predicted for a document.

  Attributes:
    id: of the label.
    name: its descriptor.
    score: a probability, calibrated where the run is; a margin that is not
      calibrated stays one.
  """

  id: str
  name: str
  score: float


class ExplainedPrediction(NamedTuple):
  """A label predicted for a document, and why.

  Attributes:
    id, name, score: as of Prediction.
    why: the words that it attends to most, most first.
  """

  id: str
  name: str
  score: float
  why: tuple[AttendedWord, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
  """Scores labels for text (a core.types.Scorer).

  Attributes:
    config: of the run.
    space: its labels.
    inputs: makes batches as the run did.
    scorer: the model.
    step: of its checkpoint.
    workdir: its files.
    calibration: of the scores that predict shows; topk gives them raw.
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
    """What the scores of topk are."""
    return self.scorer.score_kind

  @property
  def n_labels(self) -> int:
    """Labels that it ranks, the first ones of the space."""
    return self.scorer.n_labels

  @property
  def assigned_above(self) -> float | None:
    """As of core.types.Scorer."""
    return self.scorer.assigned_above

  @property
  def selected_by(self) -> str:
    """As of its scorer."""
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
    """(ids_GBK, scores_GBK) as in core.types.Scorer."""
    return self.scorer.topk(batch, k, weights, slices, allowed, sigmoid)

  def batches(self, split: Split) -> Iterable[Batch]:
    """Batches of a split, every document once, for the evaluator."""
    return self.inputs.split_batches(split)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> Iterable[Batch]:
    """Batches of texts, every one once; no larger than they need."""
    return self.inputs.text_batches(documents, features)

  def predict(
    self,
    documents: Sequence[str | Document],
    k: int = 20,
    features: Sequence[np.ndarray] | None = None,
  ) -> list[list[Prediction]]:
    """The k best labels of each document.

    Args:
      documents: texts, or documents, of which the zones of the run are read.
      k: length of the lists; shorter where labels run out.
      features: of each document, where the run reads such: float [D], or
        [tokens, D].

    Returns:
      For each document its labels, best first.

    Raises:
      ConfigError: features are missing, not read, or of another size.
      DataError: features that cannot be.
    """
    rows = features_from_arrays(features, len(documents), self.config)
    ids_NK, scores_NK = self._lists(documents, k, rows)
    return [
      self._predictions(ids_K, scores_K)
      for ids_K, scores_K in zip(ids_NK, scores_NK, strict=True)
    ]

  def explain(
    self, documents: Sequence[str | Document], k: int = 20, words: int = 5
  ) -> list[list[ExplainedPrediction]]:
    """As predict, with the words that each label attends to most.

    Args:
      documents, k: as of predict.
      words: at most so many of each label.

    Raises:
      ConfigError: labels of this run do not attend to words.
    """
    check_explains(self.config)
    ids_NK, scores_NK = self._lists(documents, k)
    found = self.attention(documents, ids_NK, words)
    return [
      [
        ExplainedPrediction(*label, why)
        for label, why in zip(
          self._predictions(ids_NK[row], scores_NK[row]),
          self.why(document, found, row),
        )
      ]
      for row, document in enumerate(documents)
    ]

  def attention(
    self,
    documents: Sequence[str | Document],
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """What labels attend to, as attention_of; goes over all documents."""
    # No document has more words: a large number takes no more memory.
    words = min(words, self.config.data.tokens.max_tokens)
    batches = self.text_batches(documents)
    special = self.inputs.vocab.n_special
    return attention_of(self.scorer, batches, ids_NK, words, special, n_first)

  def why(
    self, document: str | Document, attention: LabelExplanations, row: int
  ) -> list[tuple[AttendedWord, ...]]:
    """The words that the K labels of a row attend to most."""
    read, words = self.inputs.document(document), self.inputs.words(document)
    return [
      attended_words(read, words, at_W, weights_W)[: attention.words]
      for at_W, weights_W in zip(
        attention.at_NKW[row], attention.weights_NKW[row], strict=True
      )
    ]

  def with_labels(self, labels: Sequence[Label]) -> 'Predictor':
    """A predictor that scores these labels beside the run's, by their names.

    Args:
      labels: with names, and ids that the run does not score.

    Raises:
      ConfigError: labels of this run are not known by their names.
      DataError: an id or a name cannot be.
    """
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

  def _lists(
    self,
    documents: Sequence[str | Document],
    k: int,
    features: FeatureRows | None = None,
  ) -> tuple[np.ndarray, np.ndarray]:
    """(ids_NK, scores_NK) over all labels."""
    batches = self.text_batches(documents, features)
    topk = functools.partial(self.topk, k=k)
    lists = rank_documents(batches, topk, len(documents), k)
    return lists[0][0], lists[1][0]

  def _predictions(
    self, ids_K: np.ndarray, scores_K: np.ndarray
  ) -> list[Prediction]:
    real = ids_K != PAD
    scores = readable_scores(scores_K[real], self.score_kind, self.calibration)
    labels = (self.space.labels[i] for i in ids_K[real])
    return [
      Prediction(label.id, label.name, float(score))
      for label, score in zip(labels, scores)
    ]
