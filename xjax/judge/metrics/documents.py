"""Metrics of documents: a class each, which is all there is to one.

All of them gain 1 / log2(i + 1) for a hit at place i, divide nDCG by an ideal
list of min(k, g), P@k by k however short a list is, and PSP as a ratio of sums
over documents. Those at a cut-off are 0 for a document without gold.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np
import scipy.sparse

from xjax.judge.metrics.contract import (
  DocumentMetric,
  Needs,
  Protocol,
  Ratio,
  Recalled,
  Value,
)
from xjax.judge.metrics.diversity import intra_list_diversity
from xjax.judge.metrics.ranking import RankedLists, real_dtype


def ideal(k: int) -> float:
  """The discounted gain of k hits among the first k."""
  return float((1 / np.log2(np.arange(2, k + 2))).sum())


class Precision(DocumentMetric):
  """Hits over k."""

  name = 'P@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.hits_BJ

  def value(self, over: np.ndarray, under: np.ndarray, k: int) -> Value:
    return over / (k * under)


class Recall(DocumentMetric):
  """Hits over g."""

  name = 'R@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.hits_BJ / lists.some_gold_B1


class RecallAtMost(DocumentMetric):
  """Hits over min(k, g) (Chalkidis et al. 2019, eq. 3)."""

  name = 'RP@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.hits_BJ / lists.best_hits_BJ


class NDCG(DocumentMetric):
  """DCG over that of a list whose first min(k, g) are gold."""

  name = 'nDCG@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.dcg_BJ / lists.ideal_BJ


class RPrecision(DocumentMetric):
  """Hits among the first g, over g (Bertalis et al., section 4.5)."""

  name = 'R-Precision'

  def over(self, lists: RankedLists) -> Float[Array, ' B']:
    among_BK = jnp.arange(lists.hits_BK.shape[1]) < lists.gold_B[:, None]
    found_B = (lists.hits_BK & among_BK).sum(-1)
    return found_B.astype(real_dtype()) / lists.some_gold_B1[:, 0]

  def known(self, lists: RankedLists) -> Bool[Array, ' B']:
    return (lists.listed_B >= lists.gold_B) | lists.complete_B


class Hit(DocumentMetric):
  """1 where any of the first k is gold (Schultheis et al. 2022, eq. 12)."""

  name = 'Hit@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return (lists.hits_BJ > 0).astype(lists.hits_BJ.dtype)


class FullNDCG(DocumentMetric):
  """DCG over that of a list of k hits (Schultheis et al. 2022, eq. 2)."""

  name = 'nDCG-full@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.dcg_BJ

  def value(self, over: np.ndarray, under: np.ndarray, k: int) -> Value:
    return over / (ideal(k) * under)


class _Weighed(DocumentMetric):
  """Labels count their inverse propensities."""

  needs = Needs.PROPENSITIES


class PSP(_Weighed):
  """Propensity-scored hits over the most there can be (Jain et al. 2016)."""

  name = 'PSP@k'

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_hits_BJ

  def under(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_best_BJ


class RawPSP(_Weighed):
  """Propensity-scored hits over k."""

  name = 'PSP-raw@k'
  over = PSP.over
  value = Precision.value


class PSnDCG(_Weighed):
  """Propensity-scored DCG over the largest there can be (Bhatia et al.)."""

  name = 'PSnDCG@k'

  def applies(self, protocol: Protocol) -> bool:
    return protocol.psndcg is Ratio.SUMS

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_dcg_BJ

  def under(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_best_dcg_BJ


class PSnDCGOfMeans(_Weighed):
  """The same where both sides first divide every document by its ideal DCG."""

  name = 'PSnDCG@k'

  def applies(self, protocol: Protocol) -> bool:
    return protocol.psndcg is Ratio.MEANS

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_dcg_BJ / lists.ideal_BJ

  def under(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_best_dcg_BJ / lists.ideal_BJ


class FullPSnDCG(_Weighed):
  """Propensity-scored DCG over the DCG of a list of k hits."""

  name = 'PSnDCG-full@k'
  over = PSnDCG.over
  value = FullNDCG.value


class NormalPSR(_Weighed):
  """PSR over that of the best list."""

  name = 'PSR-norm@k'

  def applies(self, protocol: Protocol) -> bool:
    return protocol.psr is Recalled.WEIGHT

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_hits_BJ / lists.gold_weight_B1

  def under(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_best_BJ / lists.gold_weight_B1


class PSR(_Weighed):
  """Propensity-scored hits over the weight of gold."""

  name = 'PSR@k'
  applies = NormalPSR.applies
  over = NormalPSR.over


class NormalPSRByCount(_Weighed):
  """PSR-norm@k where a document is divided by its number of gold labels."""

  name = 'PSR-norm@k'

  def applies(self, protocol: Protocol) -> bool:
    return protocol.psr is Recalled.COUNT

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_hits_BJ / lists.some_gold_B1

  def under(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.weighed_best_BJ / lists.some_gold_B1


class PSRByCount(_Weighed):
  """PSR@k where a document is divided by its number of gold labels."""

  name = 'PSR@k'
  applies = NormalPSRByCount.applies
  over = NormalPSRByCount.over


class Diversity(DocumentMetric):
  """How little a list's labels resemble each other; see diversity.py."""

  name = 'ILD@k'
  needs = Needs.SIMILARITY
  least_k = 2  # one label has nobody to differ from

  def from_lists(
    self,
    ids_NK: np.ndarray,
    ks: tuple[int, ...],
    vectors_LD: scipy.sparse.csr_array,
  ) -> np.ndarray:
    found = intra_list_diversity(ids_NK, ks, vectors_LD)
    return np.stack([found[k] for k in ks], axis=1)

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    return lists.outside[self.name]

  def known(self, lists: RankedLists) -> Bool[Array, 'B J']:
    return lists.deep_BJ | lists.whole_B[:, None]


class Weighted(DocumentMetric):
  """Sums over hits of W[label, place] (Schultheis et al. 2022, eq. 4)."""

  name = 'weighted@k'
  needs = Needs.RANK_WEIGHTS

  def over(self, lists: RankedLists) -> Float[Array, 'B J']:
    ranks_LK = jnp.asarray(lists.weights.ranks_LK)
    depth = min(ranks_LK.shape[1], lists.ids_BK.shape[1])
    ids_BK, hits_BK = lists.ids_BK[:, :depth], lists.hits_BK[:, :depth]
    gain_BK = ranks_LK[jnp.maximum(ids_BK, 0), jnp.arange(depth)]
    return lists.first(jnp.where(hits_BK, gain_BK, 0))
