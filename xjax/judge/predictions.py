"""Holds the predictions of a split, from which all metrics are computed."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os

import numpy as np

from xjax.core.arrays import rows_arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.judge.files.saved_predictions import SCHEMA, labels_sha256, read_saved
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.slices import ALL, judged_masks

EXACT = 'exact'
# Kind of search, as it is saved in the file -> text for readers.
_SELECTIONS = {
  EXACT: 'exact search',
  'beam': 'beam search of width {}',
  'clusters': 'the labels of {} clusters',
  'recall': 'approximate search of recall {}',
  'shortlist': 'a shortlist of {} labels',
  'trees': 'exact search of the best labels of each of {} trees',
  'runs': 'average of the lists of {} runs',
  'proposers': 'the labels that {} models propose',
}
# Two scores of a label count as equal within these tolerances, because scores
# are rounded.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6
_ENTRIES = 1 << 21  # maximum number of list entries that are compared at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
  """Holds the top-k lists of each slice, and the data to judge the lists."""

  score_kind: ScoreKind
  n_scored: int  # labels with an index below it are scored
  n_train: int  # training documents; 0 if unknown: no slices by frequency
  doc_ids: Sequence[str]
  labels: Sequence[str]  # L label ids in model order
  train_counts: np.ndarray  # int32 [L], training documents per label
  # By slice; the lists of other slices of `masks` are cut from these.
  lists: Mapping[str, LabelLists]
  gold: Ragged | None = None  # N rows of label indices
  # Int32 label indices.
  held_out: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int32)
  )
  # Int32 indices of labels that are neither predicted nor judged: in no list
  # and no gold.
  left_out: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int32)
  )
  # The scorer assigns labels with at least this score; if None, those with at
  # least probability 0.5, which margins do not have.
  assigned_above: float | None = None
  # The strategy that chose the lists of `all`, with its margins as scores; ''
  # for the highest scores, which the lists of other slices always have.
  strategy: str = ''
  # The search for the highest scores: `exact`, `beam=10`, `recall=0.95`,
  # `shortlist=500`, `trees=3`, `runs=3`, `proposers=3`, or '' if not recorded.
  selected_by: str = ''
  # Whether the scorer knows something of labels without training documents;
  # None if not recorded.
  ranks_unseen: bool | None = None
  # Slice -> step of the search, such as `shortlist recall@500` -> mean share of
  # gold labels that the step keeps, over documents with gold in the slice.
  recalls: Mapping[str, Mapping[str, float]] = dataclasses.field(
    default_factory=dict
  )
  # Further slices (bool [L], lists) of the scorer, not saved.
  requested: Sequence[tuple[np.ndarray, LabelLists]] = ()
  # Its first nodes are the L labels; None if no label has a parent.
  hierarchy: Hierarchy | None = None
  # Ids that of_judged_labels made concepts; not saved.
  dropped: Sequence[str] = ()

  def __len__(self) -> int:
    return len(self.doc_ids)

  @functools.cached_property
  def masks(self) -> dict[str, np.ndarray]:
    """Returns the labels of each slice, bool [L], by name; `all` is first."""
    counted = self.train_counts, self.held_out
    masks = judged_masks(*counted, left_out=self.left_out)
    if not self.n_train and not len(self.held_out):
      return {ALL: masks[ALL]}
    return masks

  @property
  def all_left_out(self) -> tuple[str, ...]:
    """Returns the ids in `dropped`, and those of the labels in `left_out`."""
    labels = (self.labels[label] for label in self.left_out.tolist())
    return (*self.dropped, *labels)

  @property
  def selection(self) -> str:
    """Returns a description of the search for the labels of highest score."""
    kind, _, size = self.selected_by.partition('=')
    return _SELECTIONS[kind].format(size) if kind else 'search not recorded'

  @property
  def selection_with_recalls(self) -> str:
    recalls = [f'{n} {x:.3f}' for n, x in self.recalls.get(ALL, {}).items()]
    return self.selection + (f' ({", ".join(recalls)})' if recalls else '')

  @property
  def is_approximate(self) -> bool:
    """Returns whether the recorded search may miss labels of high score."""
    return self.selected_by not in ('', EXACT)

  @property
  def has_shortlists(self) -> bool:
    """Returns whether a first stage chose labels, for each slice anew.

    Then the list of another slice says nothing about the best labels of a
    slice.
    """
    return self.selected_by.partition('=')[0] in (
      'clusters',
      'proposers',
      'shortlist',
    )

  def own_lists(self, name: str, mask: np.ndarray) -> LabelLists | None:
    """Returns the lists that the scorer made for this slice, or None."""
    saved = self.masks.get(name) if name in self.lists else None
    if saved is not None and np.array_equal(saved, mask):
      return self.lists[name]
    for other, lists in self.requested:
      if np.array_equal(other, mask):
        return lists
    return None

  def fault(self) -> str:
    """Returns a message about a label with two scores for one document, or ''.

    Rounding counts as equal. Lists of a strategy, with its own scores, are not
    compared.
    """
    compared = {
      name: lists
      for name, lists in self.lists.items()
      if name != ALL or not self.strategy
    }
    for number, (_, lists) in enumerate(self.requested, 1):
      compared[f'requested slice {number}'] = lists
    width = sum(lists.ids.shape[1] for lists in compared.values())
    step = max(_ENTRIES // max(width, 1), 1)
    for start in range(0, len(self) if len(compared) > 1 else 0, step):
      parts = [x.of_rows(slice(start, start + step)) for x in compared.values()]
      ids = np.concatenate([part.ids for part in parts], axis=1)
      scores = np.concatenate([part.scores for part in parts], axis=1)
      order = np.argsort(ids, axis=1)
      ids, scores = (np.take_along_axis(x, order, 1) for x in (ids, scores))
      same = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] != PAD)
      rows, at = np.nonzero(same)
      a, b = scores[rows, at], scores[rows, at + 1]
      apart = ~np.isclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE)
      if apart.any():
        first = int(np.argmax(apart))
        row, label = rows[first], ids[rows[first], at[first]]
        values = ', '.join(
          f'{part.scores[row][part.ids[row] == label][0]:.6g} in {name}'
          for name, part in zip(compared, parts)
          if label in part.ids[row]
        )
        return (
          f'document {self.doc_ids[start + row]!a}: label '
          f'{self.labels[label]!a} has different scores in the lists of slices '
          f'({values}); predict again'
        )
    return ''

  def of_documents(self, rows: np.ndarray) -> 'Predictions':
    """Returns some documents: rows in their order, or where a mask is True."""
    rows = np.arange(len(self))[rows]
    return dataclasses.replace(
      self,
      doc_ids=tuple(self.doc_ids[row] for row in rows.tolist()),
      lists={name: x.of_rows(rows) for name, x in self.lists.items()},
      requested=[(mask, x.of_rows(rows)) for mask, x in self.requested],
      recalls={},  # these are means over all documents
      gold=self.gold and self.gold.take(rows),
    )

  def leaving_out(self, labels: np.ndarray) -> 'Predictions':
    """Returns predictions without further labels in gold and lists.

    If full lists lose labels, all lists of the slice become shorter
    (LabelLists.shortened). A slice that would lose whole lists has no lists of
    its own any more; for `all`, this is a DataError.
    """
    left_out = np.union1d(self.left_out, labels).astype(np.int32)
    changed = dataclasses.replace(self, left_out=left_out, requested=())
    inside_L = changed.masks[ALL]
    if not inside_L.any():
      raise DataError('no label is left to judge; leave out fewer labels')
    lists = {}
    for name, before in self.lists.items():
      kept = (before.ids != PAD) & inside_L[before.ids]
      cut = before if kept.all() else before.shortened(kept)
      if cut.ids.shape[1]:
        lists[name] = cut
    if ALL not in lists:
      raise DataError(
        'a list has only labels that are left out, so that its next label is '
        'not known; predict again with longer lists, or without these labels'
      )
    gold = self.gold and self.gold.keep(inside_L[self.gold.values])
    same = np.array_equal(left_out, self.left_out)
    recalls = self.recalls if same else {}
    return dataclasses.replace(changed, lists=lists, gold=gold, recalls=recalls)

  def of_judged_labels(self) -> 'Predictions':
    """Returns predictions like those of a system without the left-out labels.

    The other labels are numbered anew, in order. In the hierarchy, left-out
    labels become concepts, so that other labels keep their levels and
    ancestors.
    """
    if not len(self.left_out):
      return self
    kept = np.flatnonzero(self.masks[ALL])
    number = np.full(len(self.labels), PAD, np.int32)
    number[kept] = np.arange(len(kept))
    labels, dropped = (
      Texts.of(self.labels)[rows] for rows in (kept, self.left_out)
    )
    judged = self.renumbered(number, labels)
    return dataclasses.replace(judged, dropped=(*self.dropped, *dropped))

  def renumbered(
    self, number: np.ndarray, labels: Sequence[str]
  ) -> 'Predictions':
    """Returns predictions in which label i is `labels[number[i]]`.

    A label whose number, int32 [L], is PAD must be in no list and no gold. The
    other `labels` have no training documents.
    """
    kept = np.flatnonzero(number != PAD)
    to, gold = number[kept], self.gold

    def numbers(some: np.ndarray) -> np.ndarray:
      return number[some][number[some] != PAD]

    def moved(values: np.ndarray) -> np.ndarray:
      all_values = np.zeros(len(labels), values.dtype)
      all_values[to] = values[kept]
      return all_values

    def renumbered(lists: LabelLists) -> LabelLists:
      ids = np.where(lists.ids == PAD, PAD, number[lists.ids])
      return LabelLists(ids.astype(np.int32), lists.scores)

    if gold is not None:
      gold = Ragged(gold.indptr, number[gold.values]).ascending()
    all_scored = self.n_scored == len(self.labels)
    last = number[: self.n_scored].max(initial=PAD)
    return dataclasses.replace(
      self,
      n_scored=len(labels) if all_scored else int(last) + 1,
      labels=labels,
      train_counts=moved(np.asarray(self.train_counts)),
      lists={name: renumbered(lists) for name, lists in self.lists.items()},
      gold=gold,
      held_out=numbers(self.held_out),
      left_out=numbers(self.left_out),
      requested=[(moved(mask), renumbered(x)) for mask, x in self.requested],
      hierarchy=self.hierarchy and self.hierarchy.for_labels(labels),
    )

  def save(self, path: str | os.PathLike) -> None:
    """Writes predictions.npz atomically; load() reads the file.

    Each text of `NAME/bytes`, in UTF-8, starts at one of `NAME/offsets`, whose
    last is the end. `SLICE/recalls` has a number for each name in `recalls`.
    `parents/indptr` and `parents/indices` have the parents of each label, and
    then of each of `concepts`, the hierarchy's nodes that are no labels. A
    parent is the number of a label or, plus L, the number of a concept.
    """
    arrays = {
      'schema': np.int64(SCHEMA),
      'score_kind': np.str_(self.score_kind.value),
      'n_scored': np.int64(self.n_scored),
      'n_train': np.int64(self.n_train),
      'labels_sha256': np.str_(labels_sha256(self.labels)),
      'train_counts': np.asarray(self.train_counts, np.int32),
    }
    for name, strings in (('doc_ids', self.doc_ids), ('labels', self.labels)):
      arrays |= Texts.of(strings).arrays(name)
    for name, lists in self.lists.items():
      arrays[f'{name}/ids'] = lists.ids
      arrays[f'{name}/scores'] = lists.scores
    if len(self.held_out):
      arrays['held_out/labels'] = np.asarray(self.held_out, np.int32)
    if len(self.left_out):
      arrays['left_out/labels'] = np.asarray(self.left_out, np.int32)
    if self.assigned_above is not None:
      arrays['assigned_above'] = np.float64(self.assigned_above)
    if self.ranks_unseen is not None:
      arrays['ranks_unseen'] = np.bool_(self.ranks_unseen)
    if self.strategy:
      arrays['strategy'] = np.str_(self.strategy)
    if self.selected_by:
      arrays['selected_by'] = np.str_(self.selected_by)
    if self.recalls:
      names = tuple(next(iter(self.recalls.values())))
      arrays |= Texts.of(names).arrays('recalls')
      for name, shares in self.recalls.items():
        values = [shares[step] for step in names]
        arrays[f'{name}/recalls'] = np.array(values, np.float64)
    if self.hierarchy is not None:
      nodes = self.hierarchy
      arrays |= Texts.of(nodes.ids[nodes.n_labels :]).arrays('concepts')
      arrays |= rows_arrays('parents', nodes.parents)
    if self.gold is not None:
      arrays |= rows_arrays('gold', self.gold)
    write_npz(path, arrays)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Predictions':
    """Reads and checks predictions.npz, written by xjax or another program."""
    predictions = cls(**read_saved(path))
    if fault := predictions.fault():
      raise DataError(f'{path}: {fault}')
    return predictions
