"""Predicts labels for text with a trained model."""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import functools
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from xjax.core.config_part import kinds
from xjax.core.distributed import rank_documents
from xjax.core.errors import ConfigError
from xjax.core.progress import progress
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind, Scorer
from xjax.data.config import TextVectorsConfig
from xjax.data.new_labels import add_new_labels
from xjax.data.schema import Document, Label, LabelSpace, Split
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.predict import check_scores
from xjax.judge.prediction_lines import (
  WeightedFeature,
  WeightedWord,
  weighted_words,
)
from xjax.judge.predictions import (
  Lists,
)
from xjax.models.config import Config
from xjax.models.explanations import (
  LabelExplanations,
  attention_of,
  contributions_of,
)
from xjax.models.model_configs import (
  EnsembleModel,
  ExactMatchModel,
  NamesModel,
  NeighboursModel,
  PrototypesModel,
  is_neural,
)
from xjax.models.sparse_inputs import SparseInputs
from xjax.models.staged.stack_config import StackModel
from xjax.models.workdir import Workdir
from xjax.train.batches.inputs import Inputs, features_from_arrays


def check_explains(config: Config) -> None:
  """Checks that words can explain the labels of a run.

  Raises:
    ConfigError: the model is neural and its labels do not attend to words, or
      the model does not read single words, or other documents decide.
  """
  if config.data.tokens.sparse:
    raise ConfigError(
      'labels cannot be explained: this run reads features, not words'
    )
  reads_vectors = isinstance(config.data.tokens, TextVectorsConfig)
  if reads_vectors and not isinstance(config.model, StackModel):
    raise ConfigError(
      'labels cannot be explained: this run reads vectors of texts, not words'
    )
  if isinstance(config.model, EnsembleModel):
    raise ConfigError(
      'labels of an ensemble cannot be explained: it averages lists of labels; '
      'explain the labels of one of its runs, such as the run in '
      'stages/member_0 of the workdir'
    )
  if isinstance(config.model, NeighboursModel):
    raise ConfigError(
      'labels of a NeighboursModel cannot be explained by words: the labels of '
      'the nearest training documents decide'
    )
  if not is_neural(config.model):
    return
  head, tokens = config.model.head, config.data.tokens
  if not head.attends:
    from xjax.networks.heads.head import HeadConfig

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
  if isinstance(config.model, ExactMatchModel | NamesModel):
    return
  if isinstance(config.model, PrototypesModel) and config.model.names:
    return
  if isinstance(config.model, StackModel):
    stages = [x.run_config(config) for x in config.model.proposers]
    if not any(map(describes, stages)):
      raise ConfigError(
        'this stack cannot score new labels: none of its proposers reads label '
        'names; add a proposer with NamesModel or PrototypesModel'
      )
    return
  if isinstance(config.model, EnsembleModel):
    raise ConfigError(
      'an ensemble cannot score new labels: it only lists the labels of its '
      'runs; give the labels to one of the runs, such as the run in '
      'stages/member_0 of the workdir'
    )
  if not is_neural(config.model):
    raise ConfigError(
      f'{_names([type(config.model)])} cannot score new labels: it can only '
      'learn a label from training documents of that label'
    )
  head = config.model.head
  if not head.describes:
    from xjax.networks.heads.head import HeadConfig

    able = _names(kind for kind in kinds(HeadConfig) if kind.describes)
    raise ConfigError(
      f'the head {_names([type(head)])} cannot score new labels: it does not '
      f'read label names; heads that read label names: {able}'
    )
  if config.model.shortlist.proposes:
    raise ConfigError(
      'new labels cannot be scored by name: this run ranks only labels that '
      'another model proposes, and that model does not know new labels'
    )
  if config.data.tokens.dense:
    raise ConfigError(
      'new labels cannot be scored by name: this run reads vectors from files, '
      'so the names of new labels have no vectors; use a run that reads text'
    )


def explains(config: Config) -> bool:
  """Returns whether words can explain the labels of a run."""
  return _passes(check_explains, config)


def describes(config: Config) -> bool:
  """Returns whether the model of a run can score new labels by their names."""
  return _passes(check_describes, config)


def _passes(check: Callable[[Config], None], config: Config) -> bool:
  """Returns whether a check of a config raises no ConfigError."""
  try:
    check(config)
  except ConfigError:
    return False
  return True


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
    why: the words that explain the label, largest weight first. The weight of
      a word is the label's attention to the word, or, if the model is linear,
      the contribution of the word to the label's score (see
      contributions_of). In a label tree, contributions add up to the scores of
      the classifiers on the label's path, which only approximate the score. In
      a stack, the words are those of the proposer that adds most to the score.
    features: in a stack, all features of the document and the label, largest
      share first. Their weights add up to the score before calibration. ()
      in other models.
  """

  id: str
  name: str
  score: float
  why: tuple[WeightedWord, ...]
  features: tuple[WeightedFeature, ...] = ()


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

  @property
  def stages(self) -> 'dict[str, Predictor]':
    """Returns the models that this model uses, by the name of their stage."""
    return getattr(self.inputs, 'stages', {})

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best labels (ids_GBK, scores_GBK); see core.types.Scorer.

    Labels that the run leaves out are in no list.
    """
    own = self.space.allowed
    if own is not None and allowed is not None:
      n = self.n_labels
      own = np.asarray(allowed)[..., :n] & own[:n]
    allowed = allowed if own is None else own
    return self.scorer.topk(batch, k, weights, slices, allowed, sigmoid)

  def leaving_out(self, ids: Sequence[str]) -> Self:
    """Returns a predictor that leaves out these labels, and no other labels.

    Args:
      ids: label ids. Ids that are not labels of the run are ignored.
    """
    space = dataclasses.replace(self.space, left_out_ids=ids)
    return dataclasses.replace(self, space=space)

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
    """Predicts labels, and finds the words that explain each label best.

    Args:
      documents, k: as in predict.
      words: int, maximum number of words for each label.

    Returns:
      A list of labels with words for each document, best label first.

    Raises:
      ConfigError: the labels of this run cannot be explained by words.
    """
    check_explains(self.config)
    lists = self.lists(documents, k)
    shown = self.explanations(documents, lists.ids, words)
    explained = []
    for row, labels in enumerate(self.predictions(lists)):
      whys = self.why(documents[row], shown, row)
      features = shown.features(row) or [()] * len(labels)
      parts = zip(labels, whys, features)
      explained.append([ExplainedPrediction(*x, y, z) for x, y, z in parts])
    return explained

  def explanations(
    self,
    documents: Sequence[str | Document],
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """Computes how well each word of a document explains the document's labels.

    Args:
      documents: texts, or documents whose zones are read as in training.
      ids_NK: int32, the labels of each document, PAD after the last label.
      words: int, how many words to show for each label.
      n_first: int. For the first n_first documents, the weights of all words
        are kept.

    Returns:
      Attention to words (attention_of), or contributions of words to scores
      (contributions_of).
    """
    if not isinstance(self.inputs, Inputs):
      shares = map(self.inputs.word_shares, documents)
      return contributions_of(self.scorer, shares, ids_NK, words, n_first)
    # No document has more than max_tokens words, so a larger number would waste
    # memory.
    words = min(words, self.config.data.tokens.max_tokens)
    batches = self.text_batches(documents)
    special = self.inputs.vocab.n_special
    width = self._compiled_size(ids_NK.shape[1])
    return attention_of(
      self.scorer, batches, ids_NK, words, special, n_first, width
    )

  def why(
    self, document: str | Document, explanations: LabelExplanations, row: int
  ) -> list[tuple[WeightedWord, ...]]:
    """Returns the words that explain the K labels of a document best.

    Args:
      document: the text or document.
      explanations: explanations of many documents.
      row: int, row of this document in `explanations`.
    """
    zones, words = self.inputs.document(document), self.inputs.words(document)
    return [
      weighted_words(zones, words, at_W, weights_W)[: explanations.words]
      for at_W, weights_W in zip(
        explanations.at_NKW[row], explanations.weights_NKW[row], strict=True
      )
    ]

  def with_labels(self, labels: Sequence[Label]) -> 'Predictor':
    """Returns a predictor that scores new labels too, by their names.

    Args:
      labels: labels with names, and with ids that the run does not score yet.

    Raises:
      ConfigError: the model of this run does not read label names.
      DataError: an id, a name or a parent has a fault.
    """
    from xjax.models.neural.added_labels import describe, widen_scorer

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
      self.workdir,
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

  def warmup(self, explain: bool = False, size: int | None = None) -> None:
    """Compiles all programs that predict needs, so that no later call compiles.

    Args:
      explain: whether to compile the programs of `explain` too. Models without
        programs have none to compile.
      size: length of the lists. None stands for lists of at most eval.depth
        labels.

    Raises:
      ConfigError: explain is True, but the labels cannot be explained.
    """
    if explain:
      check_explains(self.config)
    proposer = getattr(self.scorer, 'proposer', None)
    if proposer is not None:
      for stage in self.stages.values():
        stage.warmup(size=proposer.listed)
    if not isinstance(self.inputs, Inputs):
      # Linear models compile their search once, for all sizes of batches.
      example = ['']
      if self.inputs.reads_rows:
        rows = sparse.csr_array((1, self.inputs.n_features), dtype=np.float32)
        example = SparseDocuments('example', rows)
      self.inputs.warmup()
      self.lists(example, 1)
      return
    size = size or self._compiled_size(1)
    batches = self.inputs.example_batches()
    with progress(batches, 'compiling', unit='batch') as shown:
      for batch in shown:
        self.topk(batch, size)
        if explain:
          shape = len(batch.doc_B), size
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
