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
