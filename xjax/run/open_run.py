"""Opens a finished run, and predicts labels with it."""

from collections.abc import Sequence
import dataclasses
import os
from typing import NamedTuple, Self

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.labels import add_new_labels
from xjax.data.schema import Document, Label, LabelSpace
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.calibration import (
  Calibration,
  Method,
  by_shown,
  readable_scores,
)
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import check_scores
from xjax.judge.prediction_lines import WeightedFeature, WeightedWord
from xjax.models.contract import Config, Run, open_folder, saved_calibration
from xjax.models.explanations import LabelExplanations
from xjax.models.scorer import Scorer
from xjax.train.workdir import Workdir

TextsOrDocuments = Documents | Sequence[str | Document]


class Prediction(NamedTuple):
  """Holds a label predicted for a document.

  The score is the calibrated probability of the label if the run has a
  calibration. Otherwise, it is the model's probability or margin.
  """

  id: str
  name: str
  score: float


class ExplainedPrediction(NamedTuple):
  """Holds a label predicted for a document, and the words that explain it.

  The weight of a word is the label's attention to it, or, in a linear model,
  its contribution to the label's score (FeatureScorer.explain). In a label
  tree, contributions add up to the scores of the classifiers on the label's
  path, which only approximate the score. In a stack, the words are those of the
  proposer that adds most to the score.
  """

  id: str
  name: str
  score: float
  why: tuple[WeightedWord, ...]  # largest weight first
  # In a stack, all features of the document and the label, largest share first.
  # Their weights add up to the score before calibration.
  features: tuple[WeightedFeature, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class OpenRun:
  """Predicts labels of documents with the trained model of a run.

  New labels may follow those of the run in `space`. `calibration` is that of
  the scores of predict, or None. Scores of `rank` are never calibrated.
  """

  run: Run
  space: LabelSpace
  scorer: Scorer
  calibration: Calibration | None = None

  @property
  def config(self) -> Config:
    return self.run.config

  @property
  def workdir(self) -> Workdir:
    return self.run.folder

  @property
  def step(self) -> int:
    return self.scorer.step

  @property
  def score_kind(self) -> ScoreKind:
    return self.scorer.score_kind

  @property
  def n_labels(self) -> int:
    """Returns n; the first n labels of the space are ranked."""
    return self.scorer.n_labels

  @property
  def assigned_above(self) -> float | None:
    return self.scorer.assigned_above

  @property
  def selected_by(self) -> str:
    return self.scorer.selected_by

  @property
  def ranks_unseen(self) -> bool:
    return self.scorer.ranks_unseen

  def has_probabilities(self) -> bool:
    calibrated = self.calibration and self.calibration.method is not Method.NONE
    return bool(calibrated) or self.score_kind is not ScoreKind.MARGIN

  def rank(self, documents: Documents, query: Query) -> Lists:
    """Ranks labels (see Scorer), without those that the run leaves out."""
    return self.scorer.rank(documents, query.only(self.space.allowed))

  def predict(
    self,
    documents: TextsOrDocuments,
    k: int = 5,
    features: Sequence[np.ndarray] | None = None,
  ) -> list[list[Prediction]]:
    """Returns the k best labels of each document, best label first.

    Zones of documents are read as in training. `features` has an array per
    document, [D] or [tokens, D], only if the run reads vectors; else
    ConfigError. With fewer than k labels, the lists are shorter.
    """
    vectors = self.vectors(features, len(documents))
    return self.predictions(self.lists(documents, k, vectors))

  def vectors(
    self, features: Sequence[np.ndarray] | None, n: int
  ) -> FeatureRows | None:
    """Returns the vectors of n documents, checked as by predict, or None."""
    if features is None:
      return None
    self.check_reads_features()
    ids = [f'documents[{row}]' for row in range(n)]
    size = self.config.model.embedding.dim
    return FeatureRows.from_arrays('features', ids, features, size)

  def check_reads_features(self) -> None:
    if not self.config.data.tokens.dense:
      raise ConfigError(
        'this run reads the words of documents; do not give it features'
      )

  def explain(
    self, documents: TextsOrDocuments, k: int = 5, words: int = 5
  ) -> list[list[ExplainedPrediction]]:
    """Predicts labels, each with at most `words` words that explain it best."""
    self.check_explains()
    lists = self.shown(self.lists(documents, k))
    shown = self.explanations(documents, lists.ids, words)
    explained = []
    for row, labels in enumerate(self.predictions(lists)):
      features = shown.features(row) or [()] * len(labels)
      parts = zip(labels, shown.why(row), features)
      explained.append([ExplainedPrediction(*x, y, z) for x, y, z in parts])
    return explained

  def check_explains(self) -> None:
    if self.scorer.unexplained:
      raise ConfigError(self.scorer.unexplained)

  def explanations(
    self,
    documents: TextsOrDocuments,
    ids_NK: np.ndarray,
    words: int,
    n_first: int = 0,
  ) -> LabelExplanations:
    """Computes how well the words of documents explain labels; see Scorer."""
    documents = Documents.of(documents)
    return self.scorer.explain(documents, ids_NK, words, n_first)

  def with_labels(self, labels: Sequence[Label]) -> Self:
    """Returns a run that scores new labels too, by their names.

    ConfigError: the model reads no names. DataError: a label has a fault.
    """
    self.check_reads_names()
    space = add_new_labels(self.space, labels)
    scorer = self.scorer.with_labels(space)
    return dataclasses.replace(self, space=space, scorer=scorer)

  def check_reads_names(self) -> None:
    if self.scorer.fixed_labels:
      raise ConfigError(self.scorer.fixed_labels)

  def lists(
    self,
    documents: TextsOrDocuments,
    k: int,
    features: FeatureRows | None = None,
  ) -> LabelLists:
    """Returns the k best labels, or all, with uncalibrated scores."""
    k = min(k, self.space.n_inside)
    documents = Documents.of(documents, features)
    lists = self.rank(documents, Query(k))
    ids, scores = lists.ids_GNK, lists.scores_GNK
    check_scores(ids, scores, range(len(documents)), 'the documents')
    return LabelLists(ids[0], scores[0])

  def warmup(self, explain: bool = False) -> None:
    """Compiles all programs of predict, and of `explain` if it is True."""
    if explain:
      self.check_explains()
    self.scorer.warmup(Query(1).only(self.space.allowed), explain)

  def shown(self, lists: LabelLists) -> LabelLists:
    """Sorts lists by the scores that users see; ties keep their order.

    Frequent and other labels are calibrated differently, so a label may have a
    higher probability than a label that is ranked before it.
    """
    shown_NK = self.readable(lists.ids, lists.scores)
    return lists.take(by_shown(lists.ids, shown_NK))

  def predictions(self, lists: LabelLists) -> list[list[Prediction]]:
    """Returns lists in the form that users see: with and by shown scores."""
    lists = self.shown(lists)
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
    """Returns the scores that users see; ids may be any number for PAD."""
    counts = np.asarray(self.space.train_counts)[ids]
    return readable_scores(scores, self.score_kind, self.calibration, counts)


def open_run(workdir: str | os.PathLike, step: int | None = None) -> OpenRun:
  """Opens the model of a run; only files of the workdir are read.

  `step` None is the best checkpoint. If it or the newest one is damaged, that
  is a DataError: no other is opened instead, unless `step` asks for it.
  """
  run, scorer = open_folder(Workdir.at(workdir), step)
  calibration = load_calibration(
    run.folder, run.config.eval.calibration, scorer.step, scorer.score_kind
  )
  return OpenRun(run, run.label_space(), scorer, calibration)


def load_calibration(
  folder: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """Returns the calibration of a model that is opened, or warns."""
  calibration, why = saved_calibration(folder, method, step, kind)
  if why and not folder.is_stage:
    logging.warning('scores are not calibrated: %s', why)
  return calibration
