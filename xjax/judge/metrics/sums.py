"""The sums that all metrics of one slice are made of."""

from collections.abc import Mapping
import dataclasses
import functools
from functools import partial

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.contract import (
  DOCUMENTS,
  WITH_GOLD,
  DocumentMetric,
)
from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.ranking import RankedLists, Weights, real_dtype


@dataclasses.dataclass(frozen=True)
class Form:
  """Which sums are taken; what a trace depends on.

  Attributes:
    ks: cut-offs, ascending.
    metrics: of documents; their sums are taken.
    n_labels: labels counted one by one; 0: none are.
    n_thresholds: thresholds at which labels are counted, beside the cut-offs.
  """

  ks: tuple[int, ...]
  metrics: tuple[DocumentMetric, ...] = ()
  n_labels: int = 0
  n_thresholds: int = 0

  @functools.cached_property
  def terms(self) -> tuple[str, ...]:
    """The names of the sums over documents."""
    names = (
      f'{name}{end}'
      for metric in self.metrics
      for name in metric.sums()
      for end in self.ends(metric)
    )
    return tuple(dict.fromkeys((DOCUMENTS, WITH_GOLD, *names)))

  def ends(self, metric: DocumentMetric) -> tuple[str, ...]:
    """What ends the names of a metric's sums, one after the other."""
    return tuple(f'@{k}' for k in self.ks) if metric.has_cut_off() else ('',)


@struct.dataclass
class DocumentBlock:
  """A block of documents.

  Attributes:
    ids_BK: int32 labels by score descending, PAD beyond the list.
    gold_BP: int32 gold labels, each once, PAD beyond them.
    mask_B: False for rows that only fill the block.
    floor_B: float32, a score that no label outside the list is above; -inf
      where the list has every label there is.
    scores_BK: float32; needed for thresholds only.
    outside: as of ranking.RankedLists.
  """

  ids_BK: jax.Array | np.ndarray
  gold_BP: jax.Array | np.ndarray
  mask_B: jax.Array | np.ndarray
  floor_B: jax.Array | np.ndarray
  scores_BK: jax.Array | np.ndarray | None = None
  outside: Mapping[str, jax.Array | np.ndarray] = dataclasses.field(
    default_factory=dict
  )

  def ranked(
    self, ks: tuple[int, ...] = (), weights: Weights | None = None
  ) -> RankedLists:
    """The lists beside gold."""
    whole_B = jnp.isneginf(self.floor_B)
    given = ks, weights, self.outside
    return RankedLists.of(self.ids_BK, self.gold_BP, whole_B, *given)


def document_terms(
  documents: DocumentBlock, weights: Weights, form: Form
) -> tuple[Float[Array, 'M B'], Bool[Array, 'M B']]:
  """What every document adds to the sums.

  Args:
    documents: a block.
    weights: of labels.
    form: whose terms are wanted.

  Returns:
    values: float64 [M, B] (under metrics.exact, else float32), in the order of
      form.terms; 0 for padding rows and without gold, but for `documents`.
    known: bool [M, B], False where the value needs a deeper list.
  """
  lists = documents.ranked(form.ks, weights)
  every_B, has_gold_B = jnp.ones_like(lists.whole_B), lists.gold_B > 0
  rows = {DOCUMENTS: (every_B, every_B), WITH_GOLD: (has_gold_B, every_B)}
  for metric in form.metrics:
    ends, known = form.ends(metric), metric.known(lists)
    for name, function in metric.sums().items():
      if f'{name}{ends[0]}' not in rows:  # another metric has the same sum
        values = _by_cut_off(function(lists), (len(every_B), len(ends)), name)
        values_BJ = jnp.where(has_gold_B[:, None], values, 0)
        known_BJ = known.reshape(values.shape)
        for j, end in enumerate(ends):
          rows[f'{name}{end}'] = values_BJ[:, j], known_BJ[:, j]
  mask_B = jnp.asarray(documents.mask_B)
  pairs = [rows[name] for name in form.terms]
  values_MB = jnp.stack(
    [jnp.where(mask_B, x, 0).astype(real_dtype()) for x, _ in pairs]
  )
  known_MB = jnp.stack([known_B | ~mask_B for _, known_B in pairs])
  return values_MB, known_MB


def _by_cut_off(
  values: Shaped[Array, '...'], shape: tuple[int, int], name: str
) -> Shaped[Array, 'B J']:
  """A metric's terms, a column per cut-off.

  Raises:
    ValueError: they have another shape.
  """
  if values.shape not in (shape, shape[: 1 + (shape[1] > 1)]):
    raise ValueError(
      f'{name} is of shape {values.shape}, not [B, J]={[*shape]}: a row per '
      'document and, of a metric with @k, a column per cut-off'
    )
  return values.reshape(shape)


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
    documents: DocumentBlock,
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
  documents: DocumentBlock,
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
  state: Sums, documents: DocumentBlock, thresholds: Float[Array, ' H']
) -> Sums:
  mask_B1 = jnp.asarray(documents.mask_B)[:, None]
  ids_BK = jnp.where(mask_B1, documents.ids_BK, PAD)
  gold_BP = jnp.where(mask_B1, documents.gold_BP, PAD)
  ks = state.form.ks
  ranked = documents.replace(ids_BK=ids_BK, gold_BP=gold_BP).ranked(ks)
  hits_BK = ranked.hits_BK
  n_ks, n_sets = len(ks), len(state.short_Q)
  none_BP = jnp.full_like(gold_BP, PAD)
  # n_sets is beyond all sets.
  within_BK = rank_sets(ids_BK, ks)
  within_BK = jnp.where(within_BK < n_ks, within_BK, n_sets)
  counts = state.counts.add(ids_BK, hits_BK, within_BK, gold_BP)
  hidden_BJ = mask_B1 & ~ranked.whole_B[:, None] & ~ranked.deep_BJ
  short, unfound = [hidden_BJ], [hidden_BJ & ~ranked.known_BJ]
  for i in range(state.form.n_thresholds):
    chosen_BK = above(documents.scores_BK, thresholds[i])
    set_BK = jnp.where(chosen_BK, n_ks + i, n_sets)
    counts = counts.add(ids_BK, hits_BK, set_BK, none_BP)
    floor_B1 = documents.floor_B.astype(thresholds.dtype)[:, None]
    hidden_B1 = mask_B1 & (floor_B1 > thresholds[i])
    short.append(hidden_B1)
    unfound.append(hidden_B1 & ~ranked.complete_B[:, None])
  return state.replace(
    counts=counts,
    short_Q=state.short_Q + jnp.concatenate(short, 1).sum(0),
    unfound_Q=state.unfound_Q + jnp.concatenate(unfound, 1).sum(0),
  )
