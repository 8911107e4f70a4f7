"""Proposes labels to a model that ranks them: the first of two stages."""

from collections.abc import Iterable, Sequence
import dataclasses
import enum

from jaxtyping import Float32, Int32
import numpy as np

from xjax.core.ranking import (
  Query,
  RankWeights,
  kept_gold,
  mask_of,
  measured_masks,
)
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.label_trees.levels import LabelLevels
from xjax.models.scorer import Scorer, documents_for
from xjax.train.batches.candidates import children_of


class Combination(enum.Enum):
  """Says how a label's own score and its prior are combined.

  The product is of two probabilities. The prior is the logarithm of the first.
  The second is the sigmoid of a logit, or exp(-max(0, 1 - z)^3) of a margin z,
  as in XR-Linear.
  """

  SUM = 'sum'  # the score plus the prior, times a weight
  PRODUCT = 'product'


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterMap:
  """Holds the clusters of labels that a model proposes, in place of labels."""

  children: np.ndarray  # int32 [clusters, most], PAD after the last label
  parent_L: np.ndarray  # int32, the cluster of each label

  @classmethod
  def above_labels(cls, levels: LabelLevels) -> 'ClusterMap':
    return cls(levels.children[-1], levels.parents[-1])

  def best(self, values_L: np.ndarray) -> np.ndarray:
    """Returns the largest value of each cluster's labels, [..., clusters].

    Values are masks or weights of at least 0, [L or more] or [N, L or more].
    """
    real = self.children != PAD
    # 0 is the least value, and hides padding.
    below = np.where(real, values_L[..., self.children], 0)
    return below.max(axis=-1).astype(values_L.dtype)

  def of(self, labels: Ragged) -> Ragged:
    """Returns the cluster of each label that is in one."""
    known = labels.keep(mask_of(labels.values, self.parent_L != PAD))
    return Ragged(known.indptr, self.parent_L[known.values])


@dataclasses.dataclass(frozen=True, eq=False)
class Proposer:
  """Lists the labels of each document that a second model should rank.

  Each list of the second model has a shortlist of its own. So the labels of a
  slice are not lost to labels outside the slice.
  """

  scorer: Scorer  # ranks labels, or clusters of labels
  kept: int  # labels or clusters that are listed for a document
  clusters: ClusterMap | None = None  # None if the scorer ranks labels
  # Whether the log score of a margin z is -max(0, 1 - z)^3, as in Link.L3_HINGE
  # of tree_search. Otherwise, a margin counts as a log score.
  hinged: bool = False

  @property
  def size(self) -> int:
    return self.listed * (1 if self.clusters is None else self._most)

  @property
  def listed(self) -> int:
    return min(self.kept, self.scorer.n_labels)

  @property
  def _most(self) -> int:
    return self.clusters.children.shape[1]

  def asked(self, query: Query) -> Query:
    """Returns what the scorer is asked, to answer a query about labels."""
    # A cluster is asked for with the largest weight of its labels, and may be
    # listed if one of its labels may.
    query = dataclasses.replace(query, k=self.listed, measured=None)
    if query.weights is not None:
      weights = RankWeights(self._best(query.weights.values))
      query = dataclasses.replace(query, weights=weights)
    if query.allowed is not None:
      query = dataclasses.replace(query, allowed=self._best(query.allowed))
    return dataclasses.replace(
      query, slices=tuple(map(self._best, query.slices))
    )

  def _best(self, values_L: np.ndarray) -> np.ndarray:
    return values_L if self.clusters is None else self.clusters.best(values_L)

  def nodes(
    self, documents: Documents, query: Query
  ) -> tuple[Int32[np.ndarray, 'G N K'], Float32[np.ndarray, 'G N K']]:
    """Returns the best labels or clusters of documents, and their log scores.

    There is a list for each list of the query, whose k does not count. Short
    lists end with PAD and -inf.
    """
    asked = self.asked(query)
    lists = self.scorer.rank(documents_for(self.scorer, documents), asked)
    ids, weights = lists.ids_GNK, asked.weights
    values = None if weights is None else weights.values
    return ids, self._logs(ids, lists.scores_GNK, values)

  def _logs(
    self, ids: np.ndarray, scores: np.ndarray, weights: np.ndarray | None
  ) -> Float32[np.ndarray, '*shape']:
    """Returns the log scores of listed nodes, without their weights."""
    kind, real = self.scorer.score_kind, ids != PAD
    logs = np.where(real, scores, 1)
    if kind is ScoreKind.PROBABILITY:
      logs = np.log(logs)
    elif weights is None and kind is ScoreKind.LOGIT:
      # log sigmoid, which does not overflow.
      logs = -np.logaddexp(0, -logs)
    if weights is not None:
      # With weights, scores are log weight + log probability.
      logs = logs - np.log(np.where(real, weights[ids], 1))
    if kind is ScoreKind.MARGIN:
      if weights is not None:  # these are logarithms of sigmoids of margins
        logs = logs - np.log(-np.expm1(np.minimum(logs, -1e-30)))
      if self.hinged:
        logs = -(np.maximum(0, 1 - logs) ** 3)
    return np.where(real, logs, -np.inf).astype(np.float32)

  def labels(
    self, documents: Documents, query: Query
  ) -> tuple[Int32[np.ndarray, 'G N A'], Float32[np.ndarray, 'G N A']]:
    """Returns shortlists of labels, and the log scores as priors.

    A prior is the log score of a label or of its cluster. Ids are PAD where the
    query allows no label; priors are any number there.
    """
    ids_GNK, logs_GNK = self.nodes(documents, query)
    if self.clusters is None:
      return ids_GNK, logs_GNK
    weights = query.weights
    # Children of all listed clusters, next to each other: a shortlist has the
    # same length for all documents, so one program ranks all of them.
    ids_GNA = np.stack(
      [children_of(self.clusters.children, x) for x in ids_GNK]
    )
    for ids_NA, mask_L in zip(ids_GNA, [None, *query.slices]):
      # A cluster is on a list because of some of its labels; the others go.
      _drop(ids_NA, mask_L)
      _drop(ids_NA, None if weights is None else weights.values > 0)
      _drop(ids_NA, query.allowed)
    return ids_GNA, np.repeat(logs_GNK, self._most, axis=2)

  def measured(
    self, documents: Documents, query: Query, ids_GNA: np.ndarray
  ) -> dict[str, Int32[np.ndarray, 'M N']]:
    """Counts the gold labels that each step of the search keeps.

    The query measures some slices, with exactly L entries per label. For the
    shortlist `ids_GNA`, and for each level of clusters from fine to coarse,
    there is a number for each document, of all labels and then of these slices.
    """
    masks = measured_masks(query)
    gold = documents.gold
    golds = [
      gold if mask is None else gold.keep(mask_of(gold.values, mask))
      for mask in masks
    ]
    listed = _counts(golds, ids_GNA)
    steps = {f'shortlist recall@{self.size}': listed}
    if self.clusters is None:
      return steps
    # The labels of the last kept clusters are the shortlist, so both steps keep
    # the same gold labels.
    steps[f'level {self._depth} recall@{self.listed}'] = listed
    slices = query.slices[: query.measured]
    query = dataclasses.replace(query, slices=slices, weights=None)
    return steps | self._kept_above(documents, query, golds)

  @property
  def _above(self) -> 'Proposer | None':
    """Returns what proposes clusters of clusters; None if nothing does so."""
    above = getattr(self.scorer, 'proposer', None)
    return None if above is None or above.clusters is None else above

  @property
  def _depth(self) -> int:
    return 0 if self._above is None else 1 + self._above._depth

  def _kept_above(
    self, documents: Documents, query: Query, golds: Sequence[Ragged]
  ) -> dict[str, np.ndarray]:
    """Counts the gold labels that the levels above the clusters keep.

    A cluster occurs in `golds` as often as it has gold labels of the slice.
    """
    above = self._above
    if above is None:
      return {}
    query, golds = self.asked(query), list(map(self.clusters.of, golds))
    ids_GNK, _ = above.nodes(documents, query)
    counts = _counts(map(above.clusters.of, golds), ids_GNK)
    step = f'level {above._depth} recall@{above.listed}'
    return {step: counts} | above._kept_above(documents, query, golds)


def _counts(
  golds: Iterable[Ragged], ids_GNK: np.ndarray
) -> Int32[np.ndarray, 'M N']:
  """Counts gold nodes in the first lists; each list has gold of its own."""
  return np.concatenate(
    [
      kept_gold(gold, ids_NK[None], [None])
      for gold, ids_NK in zip(golds, ids_GNK)
    ]
  )


def _drop(ids_NA: np.ndarray, mask: np.ndarray | None) -> None:
  """Replaces labels outside a mask [L] or [N, L] by PAD, in place."""
  if mask is None:
    return
  at = np.where(ids_NA == PAD, 0, ids_NA)
  inside = mask[at] if mask.ndim == 1 else np.take_along_axis(mask, at, axis=1)
  ids_NA[~inside] = PAD
