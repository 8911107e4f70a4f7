"""What propensity-scored metrics sum: hits weighted by label.

The weights w_l are inverse propensities (data/propensity.py; Jain et al. 2016),
or any others a user brings.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.ranking import (
  Ranked,
  discounts,
  ideal_gains,
  real_dtype,
)

# Up to here every pair of gold labels is compared, which is many times faster
# on a CPU than sorting short rows.
_PAIRS = 64

# What propensity_terms gives.
KINDS = (
  *('w-hits', 'w-best', 'w-DCG', 'w-best-DCG', 'w-nDCG', 'w-best-nDCG'),
  *('PSR', 'PSR-best', 'w-R', 'w-best-R'),
)


def weights_of(
  weights_L: Float[Array, ' L'], ids_BK: Int[Array, 'B K']
) -> Float[Array, 'B K']:
  """The weights of labels, 0 for PAD."""
  found_BK = weights_L.astype(real_dtype())[jnp.maximum(ids_BK, 0)]
  return jnp.where(ids_BK != PAD, found_BK, 0)


def propensity_terms(
  ranked: Ranked,
  weights_L: Float[Array | np.ndarray, ' L'],
  ks: tuple[int, ...],
) -> dict[str, Float[Array, 'B J']]:
  """Terms of the metrics in which label l counts w_l.

  `w-hits` sums w over hits among the first k, `w-best` over the k largest w of
  gold; `w-DCG` and `w-best-DCG` discount both by 1 / log2(i + 1), the best in
  descending order (Bhatia et al., section on evaluation); `w-nDCG` and
  `w-best-nDCG` are those over the ideal gain of min(k, g) hits; `PSR` is
  w-hits over the sum of w of gold and `PSR-best` w-best over it; `w-R` and
  `w-best-R` are both over g. All are 0 without gold.

  Args:
    ranked: the lists beside gold.
    weights_L: positive.
    ks: cut-offs.

  Returns:
    kind -> float [B, len(ks)].
  """
  weights_L = jnp.asarray(weights_L)
  gain_BK = jnp.where(ranked.hits_BK, weights_of(weights_L, ranked.ids_BK), 0)
  gold_BP = weights_of(weights_L, ranked.gold_BP)
  best_BK = _largest_first(gold_BP, max(ks))
  total_B1 = jnp.maximum(gold_BP.sum(-1, keepdims=True), _tiny())
  ideal_BJ = ideal_gains(ranked, ks)
  gold_B1 = jnp.maximum(ranked.gold_B, 1)[:, None]
  hits_BJ, best_BJ = ranked.first(gain_BK, ks), ranked.first(best_BK, ks)
  dcg_BJ = ranked.first(gain_BK * discounts(gain_BK.shape[1]), ks)
  best_dcg_BJ = ranked.first(best_BK * discounts(best_BK.shape[1]), ks)
  return {
    'w-hits': hits_BJ,
    'w-best': best_BJ,
    'w-DCG': dcg_BJ,
    'w-best-DCG': best_dcg_BJ,
    'w-nDCG': dcg_BJ / ideal_BJ,
    'w-best-nDCG': best_dcg_BJ / ideal_BJ,
    'PSR': hits_BJ / total_B1,
    'PSR-best': best_BJ / total_B1,
    'w-R': hits_BJ / gold_B1,
    'w-best-R': best_BJ / gold_B1,
  }


def _tiny() -> float:
  return float(jnp.finfo(real_dtype()).tiny)


def _largest_first(values_BP: Float[Array, 'B P'], n: int) -> Array:
  """The n largest of each row, in descending order; 0 beyond P."""
  width = values_BP.shape[1]
  if width > _PAIRS:
    largest = jnp.sort(values_BP, axis=-1, descending=True)[:, :n]
    return jnp.pad(largest, ((0, 0), (0, max(n - width, 0))))
  ours, theirs = values_BP[:, :, None], values_BP[:, None, :]
  earlier = jnp.arange(width) < jnp.arange(width)[:, None]
  rank_BP = ((theirs > ours) | ((theirs == ours) & earlier)).sum(-1)
  # Each place is held by one value: a sum of one number and zeros is exact.
  at = rank_BP[:, :, None] == jnp.arange(n)
  return jnp.where(at, ours, 0).sum(1)
