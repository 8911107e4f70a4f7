"""Two metrics that are not of the library: one of documents, one of labels."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from xjax.judge.metrics.contract import DocumentMetric, LabelMetric, PerLabel
from xjax.judge.metrics.ranking import RankedLists


class ReciprocalRank(DocumentMetric):
  """1 over the place of the first hit among the first k; 0 without one."""

  name = 'MRR@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    places_K = jnp.arange(1, lists.hits_BK.shape[1] + 1)
    is_first_BK = lists.hits_BK & (jnp.cumsum(lists.hits_BK, -1) == 1)
    return lists.first(is_first_BK / places_K)


class MacroJaccard(LabelMetric):
  """The mean over labels of TP / (TP + FP + FN), 0 for 0 / 0."""

  name = 'macro-Jaccard@k'

  def over(self, labels: PerLabel) -> Float[Array, '*R L']:
    either_L = labels.predicted_L + labels.gold_L - labels.correct_L
    return labels.correct_L / jnp.maximum(either_L, 1)
