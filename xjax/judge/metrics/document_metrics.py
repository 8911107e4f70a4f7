"""Defines the metrics that are computed for each document, each by one class.

- g is the document's number of gold labels.
- A hit is a gold label in the list.
- DCG is a sum over hits. A hit at place i adds 1 / log2(i + 1).

Metrics at a cut-off are 0 for a document without gold.
"""

from jaxtyping import Bool, Float, Int
import numpy as np
import scipy.sparse

from xjax.judge.metrics.diversity import intra_list_diversity
from xjax.judge.metrics.metric import (
  DocumentMetric,
  Needs,
  Numbers,
  PSnDCGVariant,
  PSRDenominator,
  Value,
)
from xjax.judge.metrics.ranked_lists import RankedLists, discounts


class Precision(DocumentMetric):
  """Divides the hits among the first k labels by k, also in a shorter list."""

  name = 'P@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.hits_BJ

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    return over / (k * under)


class Recall(DocumentMetric):
  """Computes recall: the share of gold labels among the first k labels."""

  name = 'R@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.hits_BJ / lists.some_gold_B1


class RecallAtMost(DocumentMetric):
  """Divides hits by min(k, g): RP@k of Chalkidis et al. 2019, eq. 3."""

  name = 'RP@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.hits_BJ / lists.best_hits_BJ


class NDCG(DocumentMetric):
  """Divides the DCG by the DCG of a list of min(k, g) hits."""

  name = 'nDCG@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.dcg_BJ / lists.ideal_BJ


class RPrecision(DocumentMetric):
  """Computes precision at cut-off g (Bertalis et al., section 4.5)."""

  name = 'R-Precision'

  def over(self, lists: RankedLists) -> Float[np.ndarray, ' B']:
    among_BK = np.arange(lists.hits_BK.shape[1]) < lists.gold_B[:, None]
    hits_B = (lists.hits_BK & among_BK).sum(-1)
    return hits_B / lists.some_gold_B1[:, 0]

  def known(self, lists: RankedLists) -> Bool[np.ndarray, ' B']:
    return (lists.listed_B >= lists.gold_B) | lists.complete_B


class Hit(DocumentMetric):
  """Is 1 if a label up to k is gold (Schultheis et al. 2022, eq. 12)."""

  name = 'Hit@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return (lists.hits_BJ > 0).astype(np.float64)


class FullNDCG(DocumentMetric):
  """Divides DCG by that of k hits for any g (Schultheis et al. 2022, eq. 2)."""

  name = 'nDCG-full@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.dcg_BJ

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    return over / (discounts(k).sum() * under)


class _PropensityMetric(DocumentMetric):
  """Is the base class of metrics that weight labels by inverse propensity."""

  needs = Needs.PROPENSITIES


class PSP(_PropensityMetric):
  """Divides propensity-scored hits by their maximum (Jain et al. 2016).

  A hit adds the label's inverse propensity. Hits and maxima are summed over
  documents before the division.
  """

  name = 'PSP@k'

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_hits_BJ

  def under(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_best_BJ


class RawPSP(_PropensityMetric):
  """Divides propensity-scored hits by k."""

  name = 'PSP-raw@k'
  over = PSP.over
  value = Precision.value


class PSnDCG(_PropensityMetric):
  """Divides the propensity-scored DCG by its maximum (Bhatia et al.).

  DCGs and maxima are summed over documents before the division.
  """

  name = 'PSnDCG@k'
  follows = PSnDCGVariant.SUMS

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_dcg_BJ

  def under(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_best_dcg_BJ


class PSnDCGOfMeans(_PropensityMetric):
  """Computes PSnDCG of terms that are divided by the DCG of min(k, g) hits."""

  name = 'PSnDCG@k'
  follows = PSnDCGVariant.MEANS

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_dcg_BJ / lists.ideal_BJ

  def under(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_best_dcg_BJ / lists.ideal_BJ


class FullPSnDCG(_PropensityMetric):
  """Divides the propensity-scored DCG by the DCG of a list of k hits."""

  name = 'PSnDCG-full@k'
  over = PSnDCG.over
  value = FullNDCG.value


class PSR(_PropensityMetric):
  """Divides propensity-scored hits by the sum of the gold labels' weights."""

  name = 'PSR@k'
  follows = PSRDenominator.WEIGHT

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_hits_BJ / lists.gold_weight_B1


class NormalPSR(PSR):
  """Divides PSR@k by the PSR@k of the best possible list."""

  name = 'PSR-norm@k'

  def under(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_best_BJ / lists.gold_weight_B1


class PSRByCount(_PropensityMetric):
  """Divides propensity-scored hits by the number of gold labels."""

  name = 'PSR@k'
  follows = PSRDenominator.COUNT

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_hits_BJ / lists.some_gold_B1


class NormalPSRByCount(PSRByCount):
  """Divides PSR@k, as in PSRByCount, by that of the best possible list."""

  name = 'PSR-norm@k'

  def under(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.weighed_best_BJ / lists.some_gold_B1


class Diversity(DocumentMetric):
  """Computes intra-list diversity: how dissimilar the labels of a list are."""

  name = 'ILD@k'
  needs = Needs.SIMILARITY
  least_k = 2  # a list of one label has no pair of labels

  def from_lists(
    self,
    ids_NK: Int[np.ndarray, 'N K'],
    ks: tuple[int, ...],
    vectors_LD: scipy.sparse.csr_array,
  ) -> Float[np.ndarray, 'N J']:
    diversity = intra_list_diversity(ids_NK, ks, vectors_LD)
    return np.stack([diversity[k] for k in ks], axis=1)

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    return lists.outside[self.name]

  def known(self, lists: RankedLists) -> Bool[np.ndarray, 'B J']:
    return lists.deep_BJ | lists.whole_B[:, None]


class RankWeighted(DocumentMetric):
  """Sums the user's W[label, place] of hits (Schultheis et al. 2022, eq. 4)."""

  name = 'weighted@k'
  needs = Needs.RANK_WEIGHTS

  def over(self, lists: RankedLists) -> Float[np.ndarray, 'B J']:
    ranks_LK = lists.ranks_LK
    depth = min(ranks_LK.shape[1], lists.ids_BK.shape[1])
    ids_BK, hits_BK = lists.ids_BK[:, :depth], lists.hits_BK[:, :depth]
    gain_BK = ranks_LK[np.maximum(ids_BK, 0), np.arange(depth)]
    return lists.first(np.where(hits_BK, gain_BK, 0))
