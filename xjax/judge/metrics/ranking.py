"""What top-k lists say of each document: hits, gains and weights.

Metrics of documents are made of it: values have a row per document and a
column per cut-off k.
"""

from collections.abc import Mapping
import functools

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped
import numpy as np

from xjax.core.types import PAD

# Up to here every pair of gold labels is compared, which is many times faster
# on a CPU than sorting short rows.
_PAIRS = 64


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
class Weights:
  """What labels count.

  Attributes:
    labels_L: float64, inverse propensities; None: no propensity terms.
    ranks_LK: float64, W of the metric weighted@k; None: not asked for.
  """

  labels_L: jax.Array | np.ndarray | None = None
  ranks_LK: jax.Array | np.ndarray | None = None


@struct.dataclass
class RankedLists:
  """Ranked labels beside the gold ones, as a metric of documents sees them.

  With g gold labels, hits(k) of them among the first k of the list, and w the
  inverse propensity of a label (Jain et al. 2016), or any weight of a user's.

  Attributes:
    ids_BK: int32 ranked labels, PAD beyond the list.
    gold_BP: int32 gold labels, each once, in any order, PAD beyond them.
    whole_B: bool, whether the list has every label that could be listed.
    hits_BK: bool, entries that are gold.
    gold_B: int, number of gold labels.
    listed_B: int, length of the list.
    weights: of labels, where there are any.
    outside: name of a metric -> float64 [B, J], computed from the lists before.
    ks: the cut-offs, ascending.
  """

  ids_BK: jax.Array
  gold_BP: jax.Array
  whole_B: jax.Array
  hits_BK: jax.Array
  gold_B: jax.Array
  listed_B: jax.Array
  weights: Weights
  outside: Mapping[str, jax.Array]
  ks: tuple[int, ...] = struct.field(pytree_node=False)

  @classmethod
  def of(
    cls,
    ids_BK: Int[Array | np.ndarray, 'B K'],
    gold_BP: Int[Array | np.ndarray, 'B P'],
    whole_B: Bool[Array | np.ndarray, ' B'],
    ks: tuple[int, ...] = (),
    weights: Weights | None = None,
    outside: Mapping[str, jax.Array | np.ndarray] | None = None,
  ) -> 'RankedLists':
    """Compares the lists with gold."""
    ids_BK, gold_BP = jnp.asarray(ids_BK), jnp.asarray(gold_BP)
    return cls(
      ids_BK=ids_BK,
      gold_BP=gold_BP,
      whole_B=jnp.asarray(whole_B),
      hits_BK=hits(ids_BK, gold_BP),
      gold_B=(gold_BP != PAD).sum(-1),
      listed_B=(ids_BK != PAD).sum(-1),
      weights=weights or Weights(),
      outside=outside or {},
      ks=ks,
    )

  def first(
    self, values_BK: Shaped[Array | np.ndarray, 'B K']
  ) -> Float[Array, 'B J']:
    """Sums of the first k values; whole numbers add up exactly."""
    places = jnp.arange(values_BK.shape[1])[:, None]
    prefix_KJ = (places < jnp.asarray(self.ks)).astype(real_dtype())
    values_BK = jnp.asarray(values_BK, real_dtype())
    return jnp.matmul(values_BK, prefix_KJ, precision='highest')

  def discounted(
    self, values_BK: Shaped[Array | np.ndarray, 'B K']
  ) -> Float[Array, 'B J']:
    """The same of values that count 1 / log2(i + 1) at place i."""
    return self.first(values_BK * discounts(values_BK.shape[1]))

  @functools.cached_property
  def hits_BJ(self) -> Float[Array, 'B J']:
    """hits(k)."""
    return self.first(self.hits_BK)

  @functools.cached_property
  def dcg_BJ(self) -> Float[Array, 'B J']:
    """The sum of 1 / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.hits_BK)

  @functools.cached_property
  def some_gold_B1(self) -> Int[Array, 'B 1']:
    """g, and 1 where g is 0."""
    return jnp.maximum(self.gold_B, 1)[:, None]

  @functools.cached_property
  def best_hits_BJ(self) -> Int[Array, 'B J']:
    """min(k, g), and 1 where g is 0."""
    return jnp.minimum(self.some_gold_B1, jnp.asarray(self.ks))

  @functools.cached_property
  def ideal_BJ(self) -> Float[Array, 'B J']:
    """The discounted gain of a list whose first min(k, g) entries are gold.

    A document without gold is treated as one with a gold label.
    """
    ideal = jnp.pad(jnp.cumsum(discounts(max(self.ks))), (1, 0))
    return ideal[self.best_hits_BJ]

  def weights_of(self, ids_BK: Int[Array, 'B K']) -> Float[Array, 'B K']:
    """The weights w of labels, 0 for PAD."""
    weights_L = jnp.asarray(self.weights.labels_L).astype(real_dtype())
    return jnp.where(ids_BK != PAD, weights_L[jnp.maximum(ids_BK, 0)], 0)

  @functools.cached_property
  def gains_BK(self) -> Float[Array, 'B K']:
    """W of the entries that are gold, 0 for others."""
    return jnp.where(self.hits_BK, self.weights_of(self.ids_BK), 0)

  @functools.cached_property
  def gold_weights_BP(self) -> Float[Array, 'B P']:
    """W of the gold labels."""
    return self.weights_of(self.gold_BP)

  @functools.cached_property
  def best_gains_BK(self) -> Float[Array, 'B K']:
    """The largest w of gold labels, descending: the gains of the best list."""
    return _largest_first(self.gold_weights_BP, max(self.ks))

  @functools.cached_property
  def weighed_hits_BJ(self) -> Float[Array, 'B J']:
    """The sum of w over hits among the first k."""
    return self.first(self.gains_BK)

  @functools.cached_property
  def weighed_best_BJ(self) -> Float[Array, 'B J']:
    """The sum of the k largest w of gold."""
    return self.first(self.best_gains_BK)

  @functools.cached_property
  def weighed_dcg_BJ(self) -> Float[Array, 'B J']:
    """The sum of w / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.gains_BK)

  @functools.cached_property
  def weighed_best_dcg_BJ(self) -> Float[Array, 'B J']:
    """The largest that there can be, with w in descending order."""
    return self.discounted(self.best_gains_BK)

  @functools.cached_property
  def gold_weight_B1(self) -> Float[Array, 'B 1']:
    """The sum of w over gold, above 0 where there is none."""
    tiny = float(jnp.finfo(real_dtype()).tiny)
    return jnp.maximum(self.gold_weights_BP.sum(-1, keepdims=True), tiny)

  @functools.cached_property
  def complete_B(self) -> Bool[Array, ' B']:
    """Whether nothing gold is missing from the list that could be in it."""
    return self.whole_B | (self.hits_BK.sum(-1) == self.gold_B)

  @functools.cached_property
  def deep_BJ(self) -> Bool[Array, 'B J']:
    """Whether the list has k entries."""
    return self.listed_B[:, None] >= jnp.asarray(self.ks)

  @functools.cached_property
  def known_BJ(self) -> Bool[Array, 'B J']:
    """Whether no hit among the first k is hidden.

    None is where the list has k entries, or every label, or all that is gold.
    """
    return self.deep_BJ | self.complete_B[:, None]


def discounts(n: int) -> Float[Array, ' n']:
  """1 / log2(i + 1) for the places i = 1 .. n."""
  return 1 / jnp.log2(jnp.arange(2, n + 2, dtype=real_dtype()))


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
