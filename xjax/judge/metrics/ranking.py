"""Computes the hits and gains of top-k lists, for document metrics."""

from collections.abc import Mapping
import dataclasses
import functools
import types

import jax
from jaxtyping import Bool, Float, Int, Shaped
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.exact import Array, namespace, real_dtype

# JAX sorts rows of at most this many values by comparing all pairs of values.
# For short rows on a CPU, this is many times faster than jnp.sort.
_PAIRS = 64


def hits(
  ids_BK: Int[Array, 'B K'],
  gold_BP: Int[Array, 'B P'],
) -> Bool[Array, 'B K']:
  """Returns which entries of the lists are gold; PAD is never gold."""
  # Labels are compared as integers, because different labels above 2^24 may be
  # equal as float32.
  same = ids_BK[:, :, None] == gold_BP[:, None, :]
  return same.any(-1) & (ids_BK != PAD)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Weights:
  labels_L: Array | None = None  # float64, inverse propensities or a user's
  ranks_LK: Array | None = None  # float64 by place, for weighted@k


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RankedLists:
  """Holds the ranked and the gold labels of documents, padded with PAD.

  The weight of a label is its inverse propensity (Jain et al. 2016), or a
  weight that the user supplies.
  """

  ids_BK: Array  # int32
  gold_BP: Array  # each once, in any order
  whole_B: Array  # whether every listable label is listed
  hits_BK: Array  # whether the entry is gold
  gold_B: Array  # g
  listed_B: Array  # length of the list
  weights: Weights
  outside: Mapping[str, Array]  # float64 [B, J] from a metric's from_lists
  ks: tuple[int, ...] = dataclasses.field(metadata={'static': True})

  @classmethod
  def of(
    cls,
    ids_BK: Int[Array, 'B K'],
    gold_BP: Int[Array, 'B P'],
    whole_B: Bool[Array, ' B'],
    ks: tuple[int, ...] = (),
    weights: Weights | None = None,
    outside: Mapping[str, Array] | None = None,
  ) -> 'RankedLists':
    return cls(
      ids_BK=ids_BK,
      gold_BP=gold_BP,
      whole_B=whole_B,
      hits_BK=hits(ids_BK, gold_BP),
      gold_B=(gold_BP != PAD).sum(-1),
      listed_B=(ids_BK != PAD).sum(-1),
      weights=weights or Weights(),
      outside=outside or {},
      ks=ks,
    )

  @property
  def xp(self) -> types.ModuleType:
    return namespace(self.ids_BK)

  @property
  def _real(self) -> type:
    return real_dtype(self.xp)

  def first(self, values_BK: Shaped[Array, 'B K']) -> Float[Array, 'B J']:
    """Sums the first k values for each cut-off k, exactly for integers."""
    places = np.arange(values_BK.shape[1])[:, None]
    prefix_KJ = (places < np.asarray(self.ks)).astype(self._real)
    return values_BK.astype(self._real) @ prefix_KJ

  def discounted(self, values_BK: Shaped[Array, 'B K']) -> Float[Array, 'B J']:
    """Sums the first k values, where place i is divided by log2(i + 1)."""
    return self.first(
      values_BK * discounts(values_BK.shape[1]).astype(self._real)
    )

  @functools.cached_property
  def hits_BJ(self) -> Float[Array, 'B J']:
    """Returns the number of hits: gold labels among the first k labels."""
    return self.first(self.hits_BK)

  @functools.cached_property
  def dcg_BJ(self) -> Float[Array, 'B J']:
    """Returns DCG, the sum of 1 / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.hits_BK)

  @functools.cached_property
  def some_gold_B1(self) -> Int[Array, 'B 1']:
    """Returns the number of gold labels, or 1 for a document without gold."""
    return self.xp.maximum(self.gold_B, 1)[:, None]

  @functools.cached_property
  def best_hits_BJ(self) -> Int[Array, 'B J']:
    """Returns min(k, g), the largest number of hits, for g of at least 1."""
    return self.xp.minimum(self.some_gold_B1, np.asarray(self.ks))

  @functools.cached_property
  def ideal_BJ(self) -> Float[Array, 'B J']:
    """Returns the DCG of a list of min(k, g) hits, where g is at least 1."""
    ideal = np.cumsum(np.append(0, discounts(max(self.ks))))
    return self.xp.asarray(ideal, self._real)[self.best_hits_BJ]

  def weights_of(self, ids_BK: Int[Array, 'B K']) -> Float[Array, 'B K']:
    weights_L = self.xp.asarray(self.weights.labels_L, self._real)
    weights_BK = weights_L[self.xp.maximum(ids_BK, 0)]
    return self.xp.where(ids_BK != PAD, weights_BK, 0)

  @functools.cached_property
  def gains_BK(self) -> Float[Array, 'B K']:
    """Returns the label weight of each gold entry, and 0 for other entries."""
    return self.xp.where(self.hits_BK, self.weights_of(self.ids_BK), 0)

  @functools.cached_property
  def gold_weights_BP(self) -> Float[Array, 'B P']:
    return self.weights_of(self.gold_BP)

  @functools.cached_property
  def best_gains_BK(self) -> Float[Array, 'B K']:
    """Returns the largest weights of gold labels, descending, padded with 0."""
    return _largest_first(self.gold_weights_BP, max(self.ks))

  @functools.cached_property
  def weighed_hits_BJ(self) -> Float[Array, 'B J']:
    """Returns the sum of the weights of the hits among the first k labels."""
    return self.first(self.gains_BK)

  @functools.cached_property
  def weighed_best_BJ(self) -> Float[Array, 'B J']:
    """Returns the sum of the k largest weights of gold labels."""
    return self.first(self.best_gains_BK)

  @functools.cached_property
  def weighed_dcg_BJ(self) -> Float[Array, 'B J']:
    """Returns the sum of weight / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.gains_BK)

  @functools.cached_property
  def weighed_best_dcg_BJ(self) -> Float[Array, 'B J']:
    """Returns the weighted DCG of gold labels in descending order of weight."""
    return self.discounted(self.best_gains_BK)

  @functools.cached_property
  def gold_weight_B1(self) -> Float[Array, 'B 1']:
    """Returns the sum of the gold labels' weights, always above 0."""
    # Documents without gold get the smallest normal float, to divide by.
    tiny = float(np.finfo(self._real).tiny)
    return self.xp.maximum(self.gold_weights_BP.sum(-1, keepdims=True), tiny)

  @functools.cached_property
  def complete_B(self) -> Bool[Array, ' B']:
    """Returns whether the list has all gold labels, or all listable labels."""
    return self.whole_B | (self.hits_BK.sum(-1) == self.gold_B)

  @functools.cached_property
  def deep_BJ(self) -> Bool[Array, 'B J']:
    return self.listed_B[:, None] >= np.asarray(self.ks)

  @functools.cached_property
  def known_BJ(self) -> Bool[Array, 'B J']:
    """Returns whether all hits among the first k are known.

    They are if the list has k entries, all listable labels, or all gold labels.
    """
    return self.deep_BJ | self.complete_B[:, None]


def discounts(n: int) -> Float[np.ndarray, ' n']:
  """Returns the discounts 1 / log2(i + 1) of the places i = 1 .. n."""
  return 1 / np.log2(np.arange(2, n + 2))


def _largest_first(
  values_BP: Float[Array, 'B P'], n: int
) -> Float[Array, 'B n']:
  """Returns the n largest values of each row, descending, padded with 0."""
  xp, width = namespace(values_BP), values_BP.shape[1]
  if xp is np or width > _PAIRS:
    largest = -xp.sort(-values_BP, axis=-1)[:, :n]
    return xp.pad(largest, ((0, 0), (0, max(n - width, 0))))
  values, others = values_BP[:, :, None], values_BP[:, None, :]
  earlier = xp.arange(width) < xp.arange(width)[:, None]
  rank_BP = ((others > values) | ((others == values) & earlier)).sum(-1)
  # Each place has one value, and a sum of one number and zeros is exact.
  at_place = rank_BP[:, :, None] == xp.arange(n)
  return xp.where(at_place, values, 0).sum(1)
