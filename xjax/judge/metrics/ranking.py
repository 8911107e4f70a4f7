"""What top-k lists say of each document: hits and discounted gains.

A metric is made of sums, and a *term* is what one document adds to such a sum.
Terms have a row per document and a column per cut-off k.
"""

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from xjax.core.types import PAD

R_PRECISION = 'R-Precision'
# What ranking_terms gives.
KINDS = ('hits', 'hit', 'R', 'RP', 'DCG', 'nDCG')


def hits(
  ids_BK: Int[Array | np.ndarray, 'B K'],
  gold_BP: Int[Array | np.ndarray, 'B P'],
) -> Bool[Array, 'B K']:
  """Which entries of the lists are gold; PAD never is.

  Labels are compared as integers: as float32, ids above 2^24 would collide.
  """
  same = jnp.asarray(ids_BK)[:, :, None] == jnp.asarray(gold_BP)[:, None, :]
  return same.any(-1) & (jnp.asarray(ids_BK) != PAD)


def real_dtype() -> type:
  """float64 where JAX is in 64 bits, as under metrics.exact, else float32."""
  return jnp.float64 if jax.config.jax_enable_x64 else jnp.float32


@struct.dataclass
class Ranked:
  """Ranked labels beside the gold ones.

  Attributes:
    ids_BK: int32 ranked labels, PAD beyond the list.
    gold_BP: int32 gold labels, each once, in any order, PAD beyond them.
    whole_B: bool, whether the list has every label that could be listed.
    hits_BK: bool, entries that are gold.
    gold_B: int, number of gold labels.
    listed_B: int, length of the list.
  """

  ids_BK: jax.Array
  gold_BP: jax.Array
  whole_B: jax.Array
  hits_BK: jax.Array
  gold_B: jax.Array
  listed_B: jax.Array

  @classmethod
  def of(
    cls,
    ids_BK: Int[Array | np.ndarray, 'B K'],
    gold_BP: Int[Array | np.ndarray, 'B P'],
    whole_B: Bool[Array | np.ndarray, ' B'],
  ) -> 'Ranked':
    """Compares the lists with gold."""
    ids_BK, gold_BP = jnp.asarray(ids_BK), jnp.asarray(gold_BP)
    return cls(
      ids_BK=ids_BK,
      gold_BP=gold_BP,
      whole_B=jnp.asarray(whole_B),
      hits_BK=hits(ids_BK, gold_BP),
      gold_B=(gold_BP != PAD).sum(-1),
      listed_B=(ids_BK != PAD).sum(-1),
    )

  def first(
    self, values_BK: Float[Array, 'B K'], ks: tuple[int, ...]
  ) -> Float[Array, 'B J']:
    """Sums of the first k values; whole numbers add up exactly."""
    places = jnp.arange(values_BK.shape[1])[:, None]
    prefix_KJ = (places < jnp.asarray(ks)).astype(values_BK.dtype)
    return jnp.matmul(values_BK, prefix_KJ, precision='highest')


def discounts(n: int) -> Float[Array, ' n']:
  """1 / log2(i + 1) for the places i = 1 .. n."""
  return 1 / jnp.log2(jnp.arange(2, n + 2, dtype=real_dtype()))


def ideal_gains(ranked: Ranked, ks: tuple[int, ...]) -> Float[Array, 'B J']:
  """The discounted gain of a list whose first min(k, g) entries are gold.

  A document without gold is treated as one with a gold label; it never hits.
  """
  ideal = jnp.pad(jnp.cumsum(discounts(max(ks))), (1, 0))
  return ideal[best_hits(ranked, ks)]


def best_hits(ranked: Ranked, ks: tuple[int, ...]) -> Int[Array, 'B J']:
  """min(k, g), and 1 where g is 0."""
  return jnp.minimum(jnp.maximum(ranked.gold_B, 1)[:, None], jnp.asarray(ks))


def ranking_terms(
  ranked: Ranked, ks: tuple[int, ...]
) -> dict[str, Float[Array, 'B J']]:
  """Terms of the metrics in which every label counts the same.

  With g gold labels and hits(k) of them among the first k of the list:
  `hits` is hits(k); `hit` 1 if there are any (Schultheis et al. 2022, eq. 12);
  `R` hits(k) / g; `RP` hits(k) / min(k, g) (Chalkidis et al. 2019, eq. 3);
  `DCG` the sum of 1 / log2(i + 1) over hits i <= k; `nDCG` that over the same
  of a list whose first min(k, g) are gold. All are 0 without gold.

  Returns:
    kind -> float [B, len(ks)].
  """
  hits_BK = ranked.hits_BK.astype(real_dtype())
  found_BJ = ranked.first(hits_BK, ks)
  gain_BJ = ranked.first(hits_BK * discounts(hits_BK.shape[1]), ks)
  return {
    'hits': found_BJ,
    'hit': (found_BJ > 0).astype(found_BJ.dtype),
    'R': found_BJ / jnp.maximum(ranked.gold_B, 1)[:, None],
    'RP': found_BJ / best_hits(ranked, ks),
    'DCG': gain_BJ,
    'nDCG': gain_BJ / ideal_gains(ranked, ks),
  }


def r_precision(ranked: Ranked) -> Float[Array, ' B']:
  """hits(g) / g (Bertalis et al., section 4.5), 0 without gold."""
  among_BK = jnp.arange(ranked.hits_BK.shape[1]) < ranked.gold_B[:, None]
  found_B = (ranked.hits_BK & among_BK).sum(-1)
  return found_B.astype(real_dtype()) / jnp.maximum(ranked.gold_B, 1)


def known(ranked: Ranked, ks: tuple[int, ...]) -> Bool[Array, 'B J']:
  """Whether the list tells the terms at k: no hit among the first k is hidden.

  It does where it has k entries, or every label, or all that is gold.
  """
  deep_BJ = ranked.listed_B[:, None] >= jnp.asarray(ks)
  return deep_BJ | complete(ranked)[:, None]


def r_precision_known(ranked: Ranked) -> Bool[Array, ' B']:
  """The same for R-Precision, which needs g entries."""
  return (ranked.listed_B >= ranked.gold_B) | complete(ranked)


def complete(ranked: Ranked) -> Bool[Array, ' B']:
  """Whether nothing gold is missing from the list that could be in it."""
  return ranked.whole_B | (ranked.hits_BK.sum(-1) == ranked.gold_B)


# Up to here every pair of gold labels is compared, which is many times faster
# on a CPU than sorting short rows.
_PAIRS = 64

# What propensity_terms gives.
PROPENSITY_KINDS = (
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
