"""Computes the hits and gains of top-k lists, for document metrics."""

from collections.abc import Mapping
import dataclasses
import functools

from jaxtyping import Bool, Float, Int, Shaped
import numpy as np

from xjax.core.types import PAD


@dataclasses.dataclass(frozen=True, eq=False)
class RankedLists:
  """Holds the ranked and the gold labels of documents, padded with PAD.

  The weight of a label is its inverse propensity (Jain et al. 2016), or a
  weight that the user supplies.
  """

  ids_BK: Int[np.ndarray, 'B K']
  hits_BK: Bool[np.ndarray, 'B K']  # whether each entry is gold
  gold_BP: Int[np.ndarray, 'B P']  # each once, in any order
  whole_B: Bool[np.ndarray, ' B']  # whether every listable label is listed
  ks: tuple[int, ...]
  weights_L: Float[np.ndarray, ' L'] | None = None
  # Weights by place, for weighted@k.
  ranks_LK: Float[np.ndarray, 'L places'] | None = None
  # By name of the metric: [B, J], from DocumentMetric.from_lists.
  outside: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def gold_B(self) -> Int[np.ndarray, ' B']:
    """Returns g, the number of gold labels."""
    return (self.gold_BP != PAD).sum(-1)

  @functools.cached_property
  def listed_B(self) -> Int[np.ndarray, ' B']:
    """Returns the length of each list."""
    return (self.ids_BK != PAD).sum(-1)

  def first(
    self, values_BK: Shaped[np.ndarray, 'B K']
  ) -> Float[np.ndarray, 'B J']:
    """Sums the first k values for each cut-off k, exactly for integers."""
    places = np.arange(values_BK.shape[1])[:, None]
    prefix_KJ = (places < np.asarray(self.ks)).astype(np.float64)
    return values_BK.astype(np.float64) @ prefix_KJ

  def discounted(
    self, values_BK: Shaped[np.ndarray, 'B K']
  ) -> Float[np.ndarray, 'B J']:
    """Sums the first k values, where place i is divided by log2(i + 1)."""
    return self.first(values_BK * discounts(values_BK.shape[1]))

  @functools.cached_property
  def hits_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the number of hits: gold labels among the first k labels."""
    return self.first(self.hits_BK)

  @functools.cached_property
  def dcg_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns DCG, the sum of 1 / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.hits_BK)

  @functools.cached_property
  def some_gold_B1(self) -> Int[np.ndarray, 'B 1']:
    """Returns the number of gold labels, or 1 for a document without gold."""
    return np.maximum(self.gold_B, 1)[:, None]

  @functools.cached_property
  def best_hits_BJ(self) -> Int[np.ndarray, 'B J']:
    """Returns min(k, g), the largest number of hits, for g of at least 1."""
    return np.minimum(self.some_gold_B1, np.asarray(self.ks))

  @functools.cached_property
  def ideal_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the DCG of a list of min(k, g) hits, where g is at least 1."""
    ideal = np.cumsum(np.append(0, discounts(max(self.ks))))
    return ideal[self.best_hits_BJ]

  def weights_of(
    self, ids_BK: Int[np.ndarray, 'B K']
  ) -> Float[np.ndarray, 'B K']:
    return np.where(ids_BK != PAD, self.weights_L[np.maximum(ids_BK, 0)], 0)

  @functools.cached_property
  def gains_BK(self) -> Float[np.ndarray, 'B K']:
    """Returns the label weight of each gold entry, and 0 for other entries."""
    return np.where(self.hits_BK, self.weights_of(self.ids_BK), 0)

  @functools.cached_property
  def gold_weights_BP(self) -> Float[np.ndarray, 'B P']:
    return self.weights_of(self.gold_BP)

  @functools.cached_property
  def best_gains_BK(self) -> Float[np.ndarray, 'B K']:
    """Returns the largest weights of gold labels, descending, padded with 0."""
    k = max(self.ks)
    largest = -np.sort(-self.gold_weights_BP, axis=-1)[:, :k]
    return np.pad(largest, ((0, 0), (0, k - largest.shape[1])))

  @functools.cached_property
  def weighed_hits_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the sum of the weights of the hits among the first k labels."""
    return self.first(self.gains_BK)

  @functools.cached_property
  def weighed_best_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the sum of the k largest weights of gold labels."""
    return self.first(self.best_gains_BK)

  @functools.cached_property
  def weighed_dcg_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the sum of weight / log2(i + 1) over hits at places i <= k."""
    return self.discounted(self.gains_BK)

  @functools.cached_property
  def weighed_best_dcg_BJ(self) -> Float[np.ndarray, 'B J']:
    """Returns the weighted DCG of gold labels in descending order of weight."""
    return self.discounted(self.best_gains_BK)

  @functools.cached_property
  def gold_weight_B1(self) -> Float[np.ndarray, 'B 1']:
    """Returns the sum of the gold labels' weights, always above 0."""
    # Documents without gold get the smallest normal float, to divide by.
    sums_B1 = self.gold_weights_BP.sum(-1, keepdims=True)
    return np.maximum(sums_B1, np.finfo(np.float64).tiny)

  @functools.cached_property
  def complete_B(self) -> Bool[np.ndarray, ' B']:
    """Returns whether the list has all gold labels, or all listable labels."""
    return self.whole_B | (self.hits_BK.sum(-1) == self.gold_B)

  @functools.cached_property
  def deep_BJ(self) -> Bool[np.ndarray, 'B J']:
    return self.listed_B[:, None] >= np.asarray(self.ks)

  @functools.cached_property
  def known_BJ(self) -> Bool[np.ndarray, 'B J']:
    """Returns whether all hits among the first k are known.

    They are if the list has k entries, all listable labels, or all gold labels.
    """
    return self.deep_BJ | self.complete_B[:, None]


def discounts(n: int) -> Float[np.ndarray, ' n']:
  """Returns the discounts 1 / log2(i + 1) of the places i = 1 .. n."""
  return 1 / np.log2(np.arange(2, n + 2))
