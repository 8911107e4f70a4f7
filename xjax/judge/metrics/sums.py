"""Computes the sums from which all metrics of a slice are derived."""

from collections.abc import Mapping
import dataclasses
import functools
import operator
import types

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped
import numpy as np

from xjax.core.types import PAD
from xjax.judge.metrics.exact import Array, exact, namespace, real_dtype
from xjax.judge.metrics.metric import (
  DOCUMENTS,
  WITH_GOLD,
  DocumentMetric,
)
from xjax.judge.metrics.ranking import RankedLists, Weights


@dataclasses.dataclass(frozen=True)
class Form:
  """Says which sums to compute; a static argument of compiled functions."""

  ks: tuple[int, ...]  # ascending
  metrics: tuple[DocumentMetric, ...] = ()
  n_labels: int = 0  # with their own counts
  n_thresholds: int = 0  # at which labels are counted, besides cut-offs

  @functools.cached_property
  def terms(self) -> tuple[str, ...]:
    names = (
      f'{name}{end}'
      for metric in self.metrics
      for name in metric.sums()
      for end in self.ends(metric)
    )
    return tuple(dict.fromkeys((DOCUMENTS, WITH_GOLD, *names)))

  def ends(self, metric: DocumentMetric) -> tuple[str, ...]:
    """Returns a metric's suffixes: `@k` for each cut-off, or only ''."""
    return tuple(f'@{k}' for k in self.ks) if metric.has_cut_off() else ('',)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DocumentBlock:
  """Holds the lists and the gold labels of documents, padded with PAD."""

  ids_BK: Array  # int32, in descending order of score
  gold_BP: Array
  mask_B: Array  # False for rows that only fill the block
  # float32, bounds scores outside the list; -inf if it has all labels.
  floor_B: Array
  scores_BK: Array | None = None  # needed only for thresholds
  # See RankedLists.
  outside: Mapping[str, Array] = dataclasses.field(default_factory=dict)

  def ranked(
    self, ks: tuple[int, ...] = (), weights: Weights | None = None
  ) -> RankedLists:
    return RankedLists.of(
      self.ids_BK,
      self.gold_BP,
      namespace(self.floor_B).isneginf(self.floor_B),
      ks,
      weights,
      self.outside,
    )


def document_terms(
  documents: DocumentBlock, weights: Weights, form: Form
) -> tuple[Float[Array, 'M B'], Bool[Array, 'M B']]:
  """Computes what every document adds to the sums.

  Returns:
    values: float64 [M, B], in the order of form.terms; float32 in JAX outside
      metrics.exact. Rows that only fill the block, and documents without gold
      (but for the term `documents`), have 0.
    known: bool [M, B], False where the list is too short for the value.
  """
  lists = documents.ranked(form.ks, weights)
  xp, mask_B = lists.xp, documents.mask_B
  every_B, has_gold_B = xp.ones_like(lists.whole_B), lists.gold_B > 0
  rows = {DOCUMENTS: (every_B, every_B), WITH_GOLD: (has_gold_B, every_B)}
  for metric in form.metrics:
    ends, known = form.ends(metric), metric.known(lists)
    for name, function in metric.sums().items():
      if f'{name}{ends[0]}' not in rows:  # another metric has the same sum
        values = _by_cut_off(function(lists), (len(every_B), len(ends)), name)
        values_BJ = xp.where(has_gold_B[:, None], values, 0)
        known_BJ = known.reshape(values.shape)
        for j, end in enumerate(ends):
          rows[f'{name}{end}'] = values_BJ[:, j], known_BJ[:, j]
  pairs = [rows[name] for name in form.terms]
  values_MB = xp.stack(
    [xp.where(mask_B, x, 0).astype(real_dtype(xp)) for x, _ in pairs]
  )
  known_MB = xp.stack([known_B | ~mask_B for _, known_B in pairs])
  return values_MB, known_MB


def _by_cut_off(
  values: Shaped[Array, '...'], shape: tuple[int, int], name: str
) -> Shaped[Array, 'B J']:
  if values.shape not in (shape, shape[: 1 + (shape[1] > 1)]):
    raise ValueError(
      f'{name} returned an array of shape {values.shape}; expected '
      f'[B, J]={[*shape]}: a row per document and, for a metric with @k, a '
      'column per cut-off'
    )
  return values.reshape(shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelCounts:
  """Holds int64 counts of documents per label, for Q sets of decisions.

  There is a set for each cut-off and for each threshold. Documents without gold
  count too: every label that is predicted for them is wrong.
  """

  correct_QL: Array  # the label is predicted and gold
  predicted_QL: Array  # the label is predicted
  gold_L: Array  # the label is gold

  @classmethod
  def empty(
    cls, n_sets: int, n_labels: int, xp: types.ModuleType
  ) -> 'LabelCounts':
    shape = (n_sets, n_labels)
    # The arrays must not share a buffer, because updates donate each buffer.
    return cls(
      xp.zeros(shape, np.int64),
      xp.zeros(shape, np.int64),
      xp.zeros(n_labels, np.int64),
    )

  def add(
    self,
    ids_BK: Int[Array, 'B K'],
    hits_BK: Bool[Array, 'B K'],
    set_BK: Int[Array, 'B K'],
    gold_BP: Int[Array, 'B P'],
  ) -> 'LabelCounts':
    """Returns the counts with a block of documents added.

    PAD is not counted, nor an entry whose set of decisions is Q or above.
    """
    xp = namespace(ids_BK)
    return LabelCounts(
      _add_counts(self.correct_QL, set_BK, xp.where(hits_BK, ids_BK, PAD)),
      _add_counts(self.predicted_QL, set_BK, ids_BK),
      _add_counts(self.gold_L[None], xp.zeros_like(gold_BP), gold_BP)[0],
    )


def rank_sets(
  ids_BK: Int[Array, 'B K'], ks: tuple[int, ...]
) -> Int[Array, 'B K']:
  """Returns the index of each place's first cut-off, or len(ks)."""
  sets_K = np.searchsorted(ks, np.arange(ids_BK.shape[1]), side='right')
  return namespace(ids_BK).broadcast_to(sets_K, ids_BK.shape)


def _add_counts(
  counts_QL: Int[Array, 'Q L'],
  set_BK: Int[Array, 'B K'],
  ids_BK: Int[Array, 'B K'],
) -> Int[Array, 'Q L']:
  n_sets, n_labels = counts_QL.shape
  if isinstance(counts_QL, np.ndarray):
    kept_BK = (ids_BK != PAD) & (set_BK < n_sets)
    np.add.at(counts_QL, (set_BK[kept_BK], ids_BK[kept_BK]), 1)  # in place
    return counts_QL
  # Index L is out of bounds, so JAX drops it; PAD would wrap around to L - 1.
  ids_BK = jnp.where(ids_BK == PAD, n_labels, ids_BK)
  return counts_QL.at[set_BK, ids_BK].add(1, mode='drop')


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sums:
  """Holds sums over documents and counts per label.

  The first sets of `counts` belong to the cut-offs, the others to thresholds.
  The set of a cut-off k has the places after the previous cut-off, up to k.
  """

  terms_M: Array  # float64; integers are exact up to 2^53
  unknown_M: Array  # int64, documents with gold but too short a list
  counts: LabelCounts
  short_Q: Array  # int64, documents whose list is too short for the set
  uncertain_Q: Array  # int64, those that may lack a correct decision
  form: Form = dataclasses.field(metadata={'static': True})

  @classmethod
  def empty(cls, form: Form, xp: types.ModuleType = jnp) -> 'Sums':
    """Returns sums and counts that are all 0, of NumPy or of JAX arrays.

    With jax.numpy, a program is compiled for each shape of documents.
    """
    n_sets = len(form.ks) + form.n_thresholds if form.n_labels else 0
    with exact():
      return cls(
        terms_M=xp.zeros(len(form.terms), np.float64),
        unknown_M=xp.zeros(len(form.terms), np.int64),
        counts=LabelCounts.empty(n_sets, form.n_labels, xp),
        short_Q=xp.zeros(n_sets, np.int64),
        uncertain_Q=xp.zeros(n_sets, np.int64),
        form=form,
      )

  def update(
    self,
    documents: DocumentBlock,
    weights: Weights | None = None,
    thresholds: tuple[float, ...] = (),
  ) -> 'Sums':
    """Returns the sums with documents added; `self`'s arrays are reused.

    `thresholds` are form.n_thresholds numbers in the unit of the scores.
    """
    add = _add if isinstance(self.terms_M, np.ndarray) else _update
    with exact():
      return add(
        self,
        documents,
        weights or Weights(),
        np.asarray(thresholds, np.float64),
      )

  def merge(self, other: 'Sums') -> 'Sums':
    if self.form != other.form:
      raise ValueError(
        f'cannot merge different sums: {self.form} and {other.form}'
      )
    with exact():
      return jax.tree.map(operator.add, self, other)

  def terms(self) -> dict[str, float]:
    return dict(
      zip(self.form.terms, np.asarray(self.terms_M).tolist(), strict=True)
    )

  def unknown(self) -> dict[str, int]:
    """Counts the documents with too short a list, for terms that have any."""
    counts = np.asarray(self.unknown_M).tolist()
    return {
      name: n for name, n in zip(self.form.terms, counts, strict=True) if n
    }


def _add(
  state: Sums,
  documents: DocumentBlock,
  weights: Weights,
  thresholds: Float[Array, ' thresholds'],
) -> Sums:
  form = state.form
  values_MB, known_MB = document_terms(documents, weights, form)
  has_gold_B = (documents.gold_BP != PAD).any(-1)
  state = dataclasses.replace(
    state,
    terms_M=state.terms_M + values_MB.sum(-1),
    unknown_M=state.unknown_M + (has_gold_B & ~known_MB).sum(-1),
  )
  return _count(state, documents, thresholds) if form.n_labels else state


_update = jax.jit(_add, donate_argnames='state')


def _count(
  state: Sums, documents: DocumentBlock, thresholds: Float[Array, ' thresholds']
) -> Sums:
  xp, mask_B1 = namespace(documents.ids_BK), documents.mask_B[:, None]
  ids_BK = xp.where(mask_B1, documents.ids_BK, PAD)
  gold_BP = xp.where(mask_B1, documents.gold_BP, PAD)
  ks = state.form.ks
  ranked = dataclasses.replace(
    documents, ids_BK=ids_BK, gold_BP=gold_BP
  ).ranked(ks)
  hits_BK = ranked.hits_BK
  n_ks, n_sets = len(ks), len(state.short_Q)
  none_BP = xp.full_like(gold_BP, PAD)
  # Entries of set n_sets are not counted.
  within_BK = rank_sets(ids_BK, ks)
  within_BK = xp.where(within_BK < n_ks, within_BK, n_sets)
  counts = state.counts.add(ids_BK, hits_BK, within_BK, gold_BP)
  hidden_BJ = mask_B1 & ~ranked.whole_B[:, None] & ~ranked.deep_BJ
  short, uncertain = [hidden_BJ], [hidden_BJ & ~ranked.known_BJ]
  for i in range(state.form.n_thresholds):
    chosen_BK = documents.scores_BK.astype(thresholds.dtype) > thresholds[i]
    set_BK = xp.where(chosen_BK, n_ks + i, n_sets)
    counts = counts.add(ids_BK, hits_BK, set_BK, none_BP)
    floor_B1 = documents.floor_B.astype(thresholds.dtype)[:, None]
    hidden_B1 = mask_B1 & (floor_B1 > thresholds[i])
    short.append(hidden_B1)
    uncertain.append(hidden_B1 & ~ranked.complete_B[:, None])
  return dataclasses.replace(
    state,
    counts=counts,
    short_Q=state.short_Q + xp.concatenate(short, 1).sum(0),
    uncertain_Q=state.uncertain_Q + xp.concatenate(uncertain, 1).sum(0),
  )
