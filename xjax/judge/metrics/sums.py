"""The sums that all metrics of one slice are made of."""

from collections.abc import Mapping
import dataclasses
from functools import partial

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.ranking import (
  KINDS as RANKING_KINDS,
  PROPENSITY_KINDS,
  R_PRECISION,
  Ranked,
  complete,
  known,
  propensity_terms,
  r_precision,
  r_precision_known,
  ranking_terms,
)

# Terms of a document itself.
DOCUMENTS, WITH_GOLD = 'documents', 'documents with gold'
# Terms at a cut-off; the last two are given, or take weights of their own.
TERMS_AT_K = (*RANKING_KINDS, *PROPENSITY_KINDS, 'ILD', 'weighted')


def is_term(name: str) -> bool:
  """Whether a sum is one over documents; the others are over labels."""
  kind = name.partition('@')[0]
  return kind in (*TERMS_AT_K, DOCUMENTS, WITH_GOLD, R_PRECISION)


@dataclasses.dataclass(frozen=True)
class Form:
  """Which sums are taken; what a trace depends on.

  Attributes:
    ks: cut-offs, ascending.
    terms: names of document terms, as `RP@5`; see document_terms.
    n_labels: labels counted one by one; 0: none are.
    n_thresholds: thresholds at which labels are counted, beside the cut-offs.
  """

  ks: tuple[int, ...]
  terms: tuple[str, ...]
  n_labels: int = 0
  n_thresholds: int = 0


@struct.dataclass
class Documents:
  """A block of documents.

  Attributes:
    ids_BK: int32 labels by score descending, PAD beyond the list.
    gold_BP: int32 gold labels, each once, PAD beyond them.
    mask_B: False for rows that only fill the block.
    floor_B: float32, a score that no label outside the list is above; -inf
      where the list has every label there is.
    scores_BK: float32; needed for thresholds only.
    given: `<kind>@<k>` -> float64 [B], terms of the first k labels, hits or
      not, computed elsewhere.
  """

  ids_BK: jax.Array | np.ndarray
  gold_BP: jax.Array | np.ndarray
  mask_B: jax.Array | np.ndarray
  floor_B: jax.Array | np.ndarray
  scores_BK: jax.Array | np.ndarray | None = None
  given: Mapping[str, jax.Array | np.ndarray] = dataclasses.field(
    default_factory=dict
  )


@struct.dataclass
class Weights:
  """What labels count.

  Attributes:
    labels_L: float64, inverse propensities; None: no propensity terms.
    ranks_LK: float64, W of the metric weighted@k; None: not asked for.
  """

  labels_L: jax.Array | np.ndarray | None = None
  ranks_LK: jax.Array | np.ndarray | None = None


def document_terms(
  documents: Documents, weights: Weights, form: Form
) -> tuple[Float[Array, 'M B'], Bool[Array, 'M B']]:
  """What every document adds to the sums.

  Args:
    documents: a block.
    weights: of labels.
    form: the terms wanted: `<kind>@<k>` for the kinds of ranking_terms and
      propensity_terms and for `weighted` (Schultheis et al. 2022, eq. 4);
      R-Precision; `documents`, which is 1; `documents with gold`; and those
      given.

  Returns:
    values: float64 [M, B] (under metrics.exact, else float32), in the order of
      form.terms; 0 for padding rows and without gold, but for `documents`.
    known: bool [M, B], False where the value needs a deeper list.
  """
  ranked = Ranked.of(
    documents.ids_BK, documents.gold_BP, jnp.isneginf(documents.floor_B)
  )
  kinds = ranking_terms(ranked, form.ks)
  if weights.labels_L is not None:
    kinds |= propensity_terms(ranked, weights.labels_L, form.ks)
  if weights.ranks_LK is not None:
    kinds['weighted'] = _weighted(ranked, weights.ranks_LK, form.ks)
  known_BJ = known(ranked, form.ks)
  every_B = jnp.ones_like(ranked.whole_B)
  rows = {
    DOCUMENTS: (every_B, every_B),
    WITH_GOLD: (ranked.gold_B > 0, every_B),
    R_PRECISION: (r_precision(ranked), r_precision_known(ranked)),
    **{
      name: (jnp.where(ranked.gold_B > 0, values, 0), _deep(ranked, name))
      for name, values in documents.given.items()
    },
  }
  for j, k in enumerate(form.ks):
    for kind, values_BJ in kinds.items():
      rows[f'{kind}@{k}'] = values_BJ[:, j], known_BJ[:, j]
  mask_B = jnp.asarray(documents.mask_B)
  if not form.terms:
    none = jnp.zeros((0, len(mask_B)))
    return none, none.astype(bool)
  values_MB = jnp.stack(
    [jnp.where(mask_B, rows[name][0], 0) for name in form.terms]
  )
  known_MB = jnp.stack([rows[name][1] | ~mask_B for name in form.terms])
  return values_MB, known_MB


def _deep(ranked: Ranked, term: str) -> Bool[Array, ' B']:
  """Whether a list has the k labels that a given term, `ILD@5`, is made of."""
  k = int(term.partition('@')[2])
  return (ranked.listed_B >= k) | ranked.whole_B


def _weighted(
  ranked: Ranked, ranks_LK: Float[Array, 'L K'], ks: tuple[int, ...]
) -> Float[Array, 'B J']:
  """Sums over hits of W[label, place]."""
  depth = min(ranks_LK.shape[1], ranked.ids_BK.shape[1])
  ids_BK, hits_BK = ranked.ids_BK[:, :depth], ranked.hits_BK[:, :depth]
  gain_BK = jnp.asarray(ranks_LK)[jnp.maximum(ids_BK, 0), jnp.arange(depth)]
  return ranked.first(jnp.where(hits_BK, gain_BK, 0), ks)


@struct.dataclass
class LabelCounts:
  """Mergeable counts per label; sums over documents.

  Every document counts, those without gold as well: what is predicted for
  them is wrong.

  Attributes:
    correct_QL: int64, predicted and gold, for each set of decisions.
    predicted_QL: int64.
    gold_L: int64.
  """

  correct_QL: jax.Array
  predicted_QL: jax.Array
  gold_L: jax.Array

  @classmethod
  def empty(cls, n_sets: int, n_labels: int) -> 'LabelCounts':
    """The counts of no document."""
    shape = (n_sets, n_labels)
    # Each its own buffer: updates donate them.
    return cls(
      jnp.zeros(shape, jnp.int64),
      jnp.zeros(shape, jnp.int64),
      jnp.zeros(n_labels, jnp.int64),
    )

  def add(
    self,
    ids_BK: Int[Array, 'B K'],
    hits_BK: Bool[Array, 'B K'],
    set_BK: Int[Array, 'B K'],
    gold_BP: Int[Array, 'B P'],
  ) -> 'LabelCounts':
    """Adds documents.

    Args:
      ids_BK: int32 labels; PAD is no decision.
      hits_BK: whether they are gold.
      set_BK: the set that a decision is in; beyond the sets: none.
      gold_BP: int32, PAD beyond them.
    """
    return LabelCounts(
      _added(self.correct_QL, set_BK, jnp.where(hits_BK, ids_BK, PAD)),
      _added(self.predicted_QL, set_BK, ids_BK),
      _added(self.gold_L[None], jnp.zeros_like(gold_BP), gold_BP)[0],
    )


def rank_sets(
  ids_BK: Int[Array, 'B K'], ks: tuple[int, ...]
) -> Int[Array, 'B K']:
  """The first of the cut-offs, ascending, that each place is within.

  A place beyond them all is in set len(ks).
  """
  places = jnp.arange(ids_BK.shape[1])
  return jnp.broadcast_to(
    jnp.searchsorted(jnp.asarray(ks), places, side='right'), ids_BK.shape
  )


def above(
  scores_BK: Float[Array, 'B K'], threshold: Float[Array, '']
) -> Bool[Array, 'B K']:
  """Where a score is greater than the threshold, at its precision."""
  return scores_BK.astype(threshold.dtype) > threshold


def _added(
  counts_QL: Int[Array, 'Q L'],
  set_BK: Int[Array, 'B K'],
  ids_BK: Int[Array, 'B K'],
) -> Int[Array, 'Q L']:
  # L is beyond the array and dropped; PAD itself would wrap around to L - 1.
  ids_BK = jnp.where(ids_BK == PAD, counts_QL.shape[1], ids_BK)
  return counts_QL.at[set_BK, ids_BK].add(1, mode='drop')


@struct.dataclass
class Sums:
  """Mergeable sums over documents, and counts per label.

  Attributes:
    terms_M: float64, sums of document_terms. Whole numbers are exact to 2^53.
    unknown_M: int64, documents with gold whose list is too short for a term.
    counts: per label; sets: a cut-off each, of the places that the one before
      lacks, then a threshold each.
    short_Q: int64, documents whose list is too short to know their decisions.
    unfound_Q: int64, those of them whose list may lack a correct one.
    form: which sums these are.
  """

  terms_M: jax.Array
  unknown_M: jax.Array
  counts: LabelCounts
  short_Q: jax.Array
  unfound_Q: jax.Array
  form: Form = struct.field(pytree_node=False)

  @classmethod
  def empty(cls, form: Form) -> 'Sums':
    """The sums over no document."""
    n_sets = len(form.ks) + form.n_thresholds if form.n_labels else 0
    with exact():
      return cls(
        terms_M=jnp.zeros(len(form.terms), jnp.float64),
        unknown_M=jnp.zeros(len(form.terms), jnp.int64),
        counts=LabelCounts.empty(n_sets, form.n_labels),
        short_Q=jnp.zeros(n_sets, jnp.int64),
        unfound_Q=jnp.zeros(n_sets, jnp.int64),
        form=form,
      )

  def update(
    self,
    documents: Documents,
    weights: Weights | None = None,
    thresholds: tuple[float, ...] = (),
  ) -> 'Sums':
    """Adds documents; this state's buffers are given up (donated).

    Args:
      documents: a block.
      weights: of labels; the same in every update.
      thresholds: as many as form.n_thresholds, in the unit of the scores.
    """
    with exact():
      return _update(
        self,
        documents,
        weights or Weights(),
        np.asarray(thresholds, np.float64),
      )

  def merge(self, other: 'Sums') -> 'Sums':
    """The sums over the documents of both.

    Raises:
      ValueError: they are not sums of the same things.
    """
    if self.form != other.form:
      raise ValueError(f'different sums: {self.form} and {other.form}')
    with exact():
      return jax.tree.map(jnp.add, self, other)

  def terms(self) -> dict[str, float]:
    """Document term -> sum."""
    return dict(
      zip(self.form.terms, np.asarray(self.terms_M).tolist(), strict=True)
    )

  def unknown(self) -> dict[str, int]:
    """Document term -> documents whose list is too short, where any are."""
    counts = np.asarray(self.unknown_M).tolist()
    return {
      name: n for name, n in zip(self.form.terms, counts, strict=True) if n
    }


@partial(jax.jit, donate_argnames='state')
def _update(
  state: Sums,
  documents: Documents,
  weights: Weights,
  thresholds: Float[Array, ' H'],
) -> Sums:
  form = state.form
  values_MB, known_MB = document_terms(documents, weights, form)
  has_gold_B = (jnp.asarray(documents.gold_BP) != PAD).any(-1)
  state = state.replace(
    terms_M=state.terms_M + values_MB.sum(-1),
    unknown_M=state.unknown_M + (has_gold_B & ~known_MB).sum(-1),
  )
  return _count(state, documents, thresholds) if form.n_labels else state


def _count(
  state: Sums, documents: Documents, thresholds: Float[Array, ' H']
) -> Sums:
  mask_B1 = jnp.asarray(documents.mask_B)[:, None]
  ids_BK = jnp.where(mask_B1, documents.ids_BK, PAD)
  gold_BP = jnp.where(mask_B1, documents.gold_BP, PAD)
  ranked = Ranked.of(ids_BK, gold_BP, jnp.isneginf(documents.floor_B))
  ks, hits_BK = state.form.ks, ranked.hits_BK
  n_ks, n_sets = len(ks), len(state.short_Q)
  none_BP = jnp.full_like(gold_BP, PAD)
  # n_sets is beyond all sets.
  within_BK = rank_sets(ids_BK, ks)
  within_BK = jnp.where(within_BK < n_ks, within_BK, n_sets)
  counts = state.counts.add(ids_BK, hits_BK, within_BK, gold_BP)
  deep_BJ = ranked.listed_B[:, None] >= jnp.asarray(ks)
  hidden_BJ = mask_B1 & ~ranked.whole_B[:, None] & ~deep_BJ
  short, unfound = [hidden_BJ], [hidden_BJ & ~known(ranked, ks)]
  for i in range(state.form.n_thresholds):
    chosen_BK = above(documents.scores_BK, thresholds[i])
    set_BK = jnp.where(chosen_BK, n_ks + i, n_sets)
    counts = counts.add(ids_BK, hits_BK, set_BK, none_BP)
    floor_B1 = documents.floor_B.astype(thresholds.dtype)[:, None]
    hidden_B1 = mask_B1 & (floor_B1 > thresholds[i])
    short.append(hidden_B1)
    unfound.append(hidden_B1 & ~complete(ranked)[:, None])
  return state.replace(
    counts=counts,
    short_Q=state.short_Q + jnp.concatenate(short, 1).sum(0),
    unfound_Q=state.unfound_Q + jnp.concatenate(unfound, 1).sum(0),
  )
