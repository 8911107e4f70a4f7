"""Ranking metrics from top-k lists: P, R, RP and nDCG at k, R-Precision."""

from collections.abc import Sequence

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from xjax.core.types import PAD
from xjax.metrics.exact import exact

R_PRECISION = 'R-Precision'


def ranking_names(ks: Sequence[int]) -> tuple[str, ...]:
  """The metrics of this file, in the order of their columns."""
  kinds = ('P', 'R', 'RP', 'nDCG')
  return (*(f'{kind}@{k}' for kind in kinds for k in ks), R_PRECISION)


def hits(
  ids_BK: Int[Array | np.ndarray, 'B K'],
  gold_BP: Int[Array | np.ndarray, 'B P'],
) -> Bool[Array, 'B K']:
  """Which entries of the lists are gold; PAD never is.

  Labels are compared as integers: as float32, ids above 2^24 would collide.
  """
  same = jnp.asarray(ids_BK)[:, :, None] == jnp.asarray(gold_BP)[:, None, :]
  return same.any(-1) & (jnp.asarray(ids_BK) != PAD)


def document_values(
  ids_BK: Int[Array | np.ndarray, 'B K'],
  gold_BP: Int[Array | np.ndarray, 'B P'],
  whole_B: Bool[Array | np.ndarray, ' B'],
  ks: tuple[int, ...],
) -> tuple[Float[Array, 'M B'], Bool[Array, 'M B']]:
  """Every ranking metric of every document.

  With g gold labels and hits(k) of them among the first k of the list:
  P@k = hits(k) / k; R@k = hits(k) / g; RP@k = hits(k) / min(k, g)
  (Chalkidis et al. 2019, eq. 3); nDCG@k sums 1 / log2(i + 1) over hits i <= k
  and divides by the same sum for a list whose first min(k, g) are gold;
  R-Precision = hits(g) / g.

  Args:
    ids_BK: int32 ranked labels, PAD beyond the list.
    gold_BP: int32 gold labels, each once, in any order, PAD beyond them.
    whole_B: whether the list has every label that could be listed at all.
    ks: cut-offs.

  Returns:
    values: float64 [M, B] (under jax.enable_x64, else float32) in the order
      of `ranking_names(ks)`; 0 for a document without gold.
    known: bool [M, B], False where the value needs more entries than the list
      has: k or, for R-Precision, g of them.
  """
  depth = ids_BK.shape[1]
  listed_B = (jnp.asarray(ids_BK) != PAD).sum(-1)
  gold_B = (jnp.asarray(gold_BP) != PAD).sum(-1)
  hits_BK = hits(ids_BK, gold_BP)
  # found_BI[:, i] counts hits among the first i entries.
  found_BI = jnp.pad(jnp.cumsum(hits_BK, -1), ((0, 0), (1, 0)))
  all_known_B = jnp.asarray(whole_B) | (found_BI[:, -1] == gold_B)
  real = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
  places = jnp.arange(max(*ks, depth, 1), dtype=real)
  discount = 1 / jnp.log2(places + 2)
  ideal = jnp.pad(jnp.cumsum(discount), (1, 0))
  gains_BI = jnp.cumsum(hits_BK * discount[:depth], -1)
  one_B = jnp.maximum(gold_B, 1)
  rows = {}
  for k in ks:
    at = min(k, depth)
    found = found_BI[:, at].astype(real)
    best = jnp.minimum(k, one_B)
    rows[f'P@{k}'] = found / k
    rows[f'R@{k}'] = found / one_B
    rows[f'RP@{k}'] = found / best
    rows[f'nDCG@{k}'] = gains_BI[:, at - 1] / ideal[best]
  at_gold = jnp.minimum(one_B, depth)[:, None]
  found = jnp.take_along_axis(found_BI, at_gold, -1)[:, 0].astype(real)
  rows[R_PRECISION] = found / one_B
  known = {
    f'{m}@{k}': k <= listed_B for m in ('P', 'R', 'RP', 'nDCG') for k in ks
  }
  known[R_PRECISION] = gold_B <= listed_B
  names = ranking_names(ks)
  return (
    jnp.stack([rows[name] for name in names]),
    jnp.stack([known[name] | all_known_B for name in names]),
  )


@struct.dataclass
class Ranking:
  """Mergeable sums of ranking metrics over documents that have gold.

  Attributes:
    documents: int64, documents with gold: those a mean is over.
    skipped: int64, documents without gold, left out of it.
    hits: int64 [len(ks)], gold labels among the first k.
    sums: float64 [M], of document_values.
    unknown: int64 [M], documents whose list is too short for the metric.
    ks: cut-offs.
  """

  documents: jax.Array
  skipped: jax.Array
  hits: jax.Array
  sums: jax.Array
  unknown: jax.Array
  ks: tuple[int, ...] = struct.field(pytree_node=False)

  @classmethod
  def empty(cls, ks: Sequence[int]) -> 'Ranking':
    """The state before any document."""
    n = len(ranking_names(ks))
    with exact():
      zero = jnp.zeros((), jnp.int64)
      return cls(
        documents=zero,
        skipped=zero,
        hits=jnp.zeros(len(ks), jnp.int64),
        sums=jnp.zeros(n, jnp.float64),
        unknown=jnp.zeros(n, jnp.int64),
        ks=tuple(ks),
      )

  def update(
    self,
    ids_BK: Int[Array | np.ndarray, 'B K'],
    gold_BP: Int[Array | np.ndarray, 'B P'],
    mask_B: Bool[Array | np.ndarray, ' B'],
    whole_B: Bool[Array | np.ndarray, ' B'],
  ) -> 'Ranking':
    """Adds documents, as in document_values; mask_B is False for padding."""
    with exact():
      return _update(self, ids_BK, gold_BP, mask_B, whole_B)

  def merge(self, other: 'Ranking') -> 'Ranking':
    """The state over the documents of both."""
    if self.ks != other.ks:
      raise ValueError(f'cut-offs differ: {self.ks} and {other.ks}')
    with exact():
      return jax.tree.map(jnp.add, self, other)

  def unknowns(self) -> dict[str, int]:
    """Documents whose list is too short, for each metric that has such."""
    counts = np.asarray(self.unknown).tolist()
    return {
      m: n for m, n in zip(ranking_names(self.ks), counts, strict=True) if n
    }

  def compute(self) -> dict[str, float | None]:
    """Means over documents with gold, as fractions.

    None where no document has gold, or where a list is too short.
    """
    names = ranking_names(self.ks)
    documents = int(self.documents)
    if not documents:
      return dict.fromkeys(names)
    sums = np.asarray(self.sums).copy()
    # Sums of hits / k round; counts do not.
    sums[: len(self.ks)] = np.asarray(self.hits) / np.asarray(self.ks)
    unknown = self.unknowns()
    return {
      name: None if name in unknown else float(total / documents)
      for name, total in zip(names, sums, strict=True)
    }


@jax.jit
def _update(
  state: Ranking,
  ids_BK: Int[Array, 'B K'],
  gold_BP: Int[Array, 'B P'],
  mask_B: Bool[Array, ' B'],
  whole_B: Bool[Array, ' B'],
) -> Ranking:
  has_gold_B = (gold_BP != PAD).any(-1)
  counted_B = mask_B & has_gold_B
  values_MB, known_MB = document_values(ids_BK, gold_BP, whole_B, state.ks)
  found_BK = jnp.cumsum(hits(ids_BK, gold_BP) & counted_B[:, None], -1)
  at = jnp.minimum(jnp.asarray(state.ks), ids_BK.shape[1]) - 1
  return state.replace(
    documents=state.documents + counted_B.sum(),
    skipped=state.skipped + (mask_B & ~has_gold_B).sum(),
    hits=state.hits + found_BK[:, at].sum(0),
    sums=state.sums + jnp.where(counted_B, values_MB, 0).sum(-1),
    unknown=state.unknown + (counted_B & ~known_MB).sum(-1),
  )
