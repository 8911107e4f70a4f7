"""Holds the predictions of a split, from which all metrics are computed."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import hashlib
import os

import numpy as np

from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.judge.metrics.slices import ALL, judged_masks

_SHORT = 64  # lists of at most this length are never cut


def list_length(depth: int, n_labels: int) -> int:
  """Returns the length K of lists; no long list has more places than labels.

  Args:
    depth: the length that the user asks for.
    n_labels: number of labels that can be listed.
  """
  return min(depth, max(n_labels, _SHORT))


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
  """Holds the top-k lists of N documents.

  Attributes:
    ids: int32 [N, K] label indices, in descending order of score; labels with
      equal scores are in ascending order of index. PAD after the last label.
    scores: float32 [N, K], -inf where ids are PAD.
  """

  ids: np.ndarray
  scores: np.ndarray

  @property
  def lengths(self) -> np.ndarray:
    """Returns the number of labels in each list, int64 [N]."""
    return (self.ids != PAD).sum(-1)

  def floor(self, n_listable: int) -> np.ndarray:
    """Returns an upper bound of the scores of labels outside each list.

    Args:
      n_listable: number of labels that could be listed. A list has all these
        labels if K is at least n_listable, or if the list ends in PAD.

    Returns:
      float32 [N]; -inf for a list that has all labels.
    """
    ended = self.ids[:, -1] == PAD
    whole = ended | (self.ids.shape[1] >= n_listable)
    return np.where(whole, np.float32(-np.inf), self.scores[:, -1])

  def last_score(self, n_listable: int) -> np.ndarray:
    """Returns the score below which a search may have missed labels.

    A search that is not exact may end a list before all labels are listed. So a
    list that ends in PAD does not have all labels.

    Args:
      n_listable: number of labels that could be listed.

    Returns:
      float32 [N], the last score of each list; inf for a list without labels,
      and -inf for a list that has all labels.
    """
    lengths = self.lengths
    last = np.maximum(lengths - 1, 0)[:, None]
    scores = np.take_along_axis(self.scores, last, 1)[:, 0]
    scores = np.where(lengths == 0, np.float32(np.inf), scores)
    return np.where(lengths >= n_listable, np.float32(-np.inf), scores)

  def hits(self, gold: Ragged, n_labels: int) -> np.ndarray:
    """Returns which entries are gold, bool [N, K].

    Args:
      gold: N rows of gold label indices.
      n_labels: number of labels; all label indices are below it.
    """
    # A (document, label) pair is stored as one integer. 64 bits are enough for
    # a billion documents and a billion labels.
    rows = np.arange(len(gold), dtype=np.int64)
    owners = np.repeat(rows, gold.lengths)
    pairs = owners * n_labels + gold.values
    is_gold = np.isin(rows[:, None] * n_labels + self.ids, pairs)
    return is_gold & (self.ids != PAD)

  def cut(self, mask: np.ndarray) -> 'Lists':
    """Keeps the entries whose labels are in a slice; PAD and -inf follow.

    Args:
      mask: bool [L], the labels of the slice.
    """
    kept = self.ids != PAD
    kept[kept] = mask[self.ids[kept]]
    return self._keep(kept)

  def above(self, floor: np.ndarray) -> 'Lists':
    """Keeps the entries whose score is above the floor of their document.

    Args:
      floor: float32 [N], the floor of each document.
    """
    return self._keep((self.ids != PAD) & (self.scores > floor[:, None]))

  def first(self, k: int | None) -> 'Lists':
    """Keeps the first k entries of each list, or all entries if k is None."""
    return Lists(self.ids[:, :k], self.scores[:, :k])

  @classmethod
  def merge(cls, parts: Sequence['Lists']) -> 'Lists':
    """Merges several lists of the same documents.

    In the result, each label occurs at most once per document. If a label has
    several scores because of rounding, the highest score is kept.
    """
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores), axis=-1)
    ids = np.take_along_axis(ids, order, -1)
    scores = np.take_along_axis(scores, order, -1)
    # The sort is stable, so the first entry of a label has its highest score.
    by_label = np.argsort(ids, axis=-1, kind='stable')
    in_order = np.take_along_axis(ids, by_label, -1)
    kept_in_order = in_order != PAD
    kept_in_order[:, 1:] &= in_order[:, 1:] != in_order[:, :-1]
    kept = np.zeros(ids.shape, bool)
    np.put_along_axis(kept, by_label, kept_in_order, -1)
    return cls(ids, scores)._keep(kept)

  def shortened(self, kept: np.ndarray) -> 'Lists':
    """Keeps some entries, and cuts all lists where the first list is unknown.

    A list is full if it does not end in PAD. If a full list loses a label, the
    next label of the document is not known. So all lists are cut to the length
    of the shortest list that was full before. A list that was not full has all
    predicted labels of its document, so its length does not count.

    Args:
      kept: bool [N, K], the entries to keep; False where ids are PAD.

    Returns:
      Lists of length 0 if a full list loses all its labels.
    """
    is_full = self.ids[:, -1] != PAD
    if not (is_full & ~kept.all(-1)).any():
      return self._keep(kept)
    depth = int(kept.sum(-1)[is_full].min())
    return self._keep(kept).first(depth)

  def _keep(self, kept: np.ndarray) -> 'Lists':
    """Keeps the entries where `kept` is True; PAD and -inf follow.

    Args:
      kept: bool [N, K].
    """
    order = np.argsort(~kept, axis=-1, kind='stable')
    ids = np.where(kept, self.ids, PAD)
    scores = np.where(kept, self.scores, np.float32(-np.inf))
    return Lists(
      np.take_along_axis(ids, order, -1), np.take_along_axis(scores, order, -1)
    )


SCHEMA = 1
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
  """Holds the top-k lists of each slice, and the data to judge the lists.

  Attributes:
    score_kind: kind of the scores.
    n_scored: the scorer scores only labels whose index is below this number.
    n_train: number of training documents, or 0 if this number is not known. If
      it is 0, there are no slices by frequency.
    doc_ids: N document ids.
    labels: L label ids in model order.
    train_counts: int32 [L], training documents per label.
    lists: slice name -> the lists of the slice. If `lists` has no entry for a
      slice of `masks`, judging cuts the slice's lists from the other lists.
    gold: N rows of gold label indices, or None.
    held_out: int32 indices of the held-out labels.
    left_out: int32 indices of labels that are neither predicted nor judged.
      They are in no list, and are no gold labels.
    assigned_above: the scorer itself assigns labels with scores above this
      number. If None, labels with probabilities above 0.5 are assigned. Margins
      are not probabilities, so without this number they have no threshold.
    strategy: the strategy that chose the labels in the lists of `all`; '' if
      these labels have the highest scores. A strategy ranks labels by margins,
      and the scores in its lists are these margins. The lists of other slices
      always have the labels of highest score.
    selected_by: the search that found the labels of highest score: `exact`,
      `beam=10`, `recall=0.95`, `shortlist=500`, `trees=3`, `runs=3` or
      `proposers=3`; '' if the search is not recorded.
    recalls: slice name -> step of the search, such as `shortlist recall@500` ->
      the share of gold labels that the step keeps, as a mean over the documents
      with gold labels in the slice. Slices without gold labels have no entry.
    requested: pairs (bool [L], lists) of further slices for which the scorer
      made lists. They are not saved.
    hierarchy: the hierarchy whose first nodes are the L labels; None if no
      label has a parent.
    dropped: ids of left-out labels that are not in `labels` any more (see
      of_judged_labels), and are no more than concepts of the hierarchy. They
      are not saved.
  """

  score_kind: ScoreKind
  n_scored: int
  n_train: int
  doc_ids: Sequence[str]
  labels: Sequence[str]
  train_counts: np.ndarray
  lists: Mapping[str, Lists]
  gold: Ragged | None = None
  held_out: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int32)
  )
  left_out: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int32)
  )
  assigned_above: float | None = None
  strategy: str = ''
  selected_by: str = ''
  recalls: Mapping[str, Mapping[str, float]] = dataclasses.field(
    default_factory=dict
  )
  requested: Sequence[tuple[np.ndarray, Lists]] = ()
  hierarchy: Hierarchy | None = None
  dropped: Sequence[str] = ()

  def __len__(self) -> int:
    return len(self.doc_ids)

  @functools.cached_property
  def masks(self) -> dict[str, np.ndarray]:
    """Returns the labels of each slice, by name of the slice.

    Returns:
      Name -> bool [L]. The slice `all` comes first.
    """
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
    """Returns `selection` and the recalls of the slice `all`."""
    recalls = [f'{n} {x:.3f}' for n, x in self.recalls.get(ALL, {}).items()]
    return self.selection + (f' ({", ".join(recalls)})' if recalls else '')

  @property
  def is_approximate(self) -> bool:
    """Returns whether the recorded search may miss labels of high score."""
    return self.selected_by not in ('', EXACT)

  @property
  def has_shortlists(self) -> bool:
    """Returns whether a first stage chose the labels that could be listed.

    It chose them for each slice anew. So the list of another slice says nothing
    about the best labels of a slice.
    """
    return self.selected_by.partition('=')[0] in (
      'clusters',
      'proposers',
      'shortlist',
    )

  def own_lists(self, name: str, mask: np.ndarray) -> Lists | None:
    """Returns the lists that the scorer made for a slice; None if it did not.

    Args:
      name: name of the slice.
      mask: bool [L], the labels of the slice.
    """
    saved = self.masks.get(name) if name in self.lists else None
    if saved is not None and np.array_equal(saved, mask):
      return self.lists[name]
    for other, lists in self.requested:
      if np.array_equal(other, mask):
        return lists
    return None

  def fault(self) -> str:
    """Returns a message about a label with two scores for one document.

    If a strategy chose the lists of `all`, these lists are not compared,
    because the strategy has its own scores.

    Returns:
      The message, or '' if there is no such label. Scores that differ only by
      rounding count as equal.
    """
    compared = {
      name: lists
      for name, lists in self.lists.items()
      if name != ALL or not self.strategy
    }
    for number, (_, lists) in enumerate(self.requested, 1):
      compared[f'requested slice {number}'] = lists
    if len(compared) < 2:
      return ''
    width = sum(lists.ids.shape[1] for lists in compared.values())
    step = max(_ENTRIES // width, 1)
    for start in range(0, len(self), step):
      part = slice(start, start + step)
      pair = _two_scores(
        [(lists.ids[part], lists.scores[part]) for lists in compared.values()]
      )
      if pair is not None:
        row, label = pair[0] + start, pair[1]
        scores = ', '.join(
          f'{lists.scores[row][lists.ids[row] == label][0]:.6g} in {name}'
          for name, lists in compared.items()
          if label in lists.ids[row]
        )
        return (
          f'document {self.doc_ids[row]!a}: label {self.labels[label]!a} has '
          f'different scores in the lists of slices ({scores}); predict again'
        )
    return ''

  def of_documents(self, kept: np.ndarray) -> 'Predictions':
    """Returns the predictions of some documents.

    Args:
      kept: bool [N], True for the documents to keep.
    """
    rows = np.flatnonzero(kept).tolist()
    gold = self.gold

    def some(lists: Lists) -> Lists:
      return Lists(lists.ids[kept], lists.scores[kept])

    return dataclasses.replace(
      self,
      doc_ids=tuple(self.doc_ids[row] for row in rows),
      lists={name: some(lists) for name, lists in self.lists.items()},
      requested=[(mask, some(lists)) for mask, lists in self.requested],
      recalls={},  # these are means over all documents
      gold=None if gold is None else Ragged.of([gold[row] for row in rows]),
    )

  def leaving_out(self, labels: np.ndarray) -> 'Predictions':
    """Returns predictions that leave out further labels.

    The labels are removed from gold and from lists. If full lists lose labels,
    all lists of the slice become shorter (Lists.shortened). A slice that would
    lose whole lists has no lists of its own any more.

    Args:
      labels: integers, indices of the labels, which may be left out already.

    Raises:
      DataError: a list of the slice `all` would lose all its labels, or no
        label would be left.
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
    """Returns the predictions with new label numbers and no left-out labels.

    The labels keep their order. So the result is equal to that of a system
    which never had the left-out labels. In the hierarchy, these labels become
    concepts, so that all other labels keep their levels and ancestors.
    """
    if not len(self.left_out):
      return self
    kept = np.flatnonzero(self.masks[ALL])
    number = np.full(len(self.labels), PAD, np.int32)
    number[kept] = np.arange(len(kept))

    def renumbered(lists: Lists) -> Lists:
      ids = np.where(lists.ids == PAD, PAD, number[lists.ids])
      return Lists(ids.astype(np.int32), lists.scores)

    gold, held_out = self.gold, number[self.held_out]
    labels, dropped = (
      Texts.of(self.labels)[rows] for rows in (kept, self.left_out)
    )
    return dataclasses.replace(
      self,
      n_scored=int((kept < self.n_scored).sum()),
      labels=labels,
      train_counts=np.asarray(self.train_counts)[kept],
      lists={name: renumbered(lists) for name, lists in self.lists.items()},
      gold=gold and Ragged(gold.indptr, number[gold.values]),
      held_out=held_out[held_out != PAD],
      left_out=np.zeros(0, np.int32),
      requested=[(mask[kept], renumbered(x)) for mask, x in self.requested],
      hierarchy=self.hierarchy and self.hierarchy.for_labels(labels),
      dropped=(*self.dropped, *dropped),
    )

  def save(self, path: str | os.PathLike) -> None:
    """Writes predictions.npz atomically; load() reads the file.

    The file always has these arrays:

    - `schema`, `n_scored` and `n_train`: int64.
    - `score_kind` and `labels_sha256`: text.
    - `train_counts`: int32.
    - `all/ids`: int32; `all/scores`: float32.
    - `doc_ids/bytes` and `labels/bytes`: uint8, the ids in UTF-8, concatenated.
    - `doc_ids/offsets` and `labels/offsets`: int64, the start of each id, and
      the end of the last id.

    The file has these arrays only if the predictions have the data:

    - `SLICE/ids`: int32, and `SLICE/scores`: float32, for other slices.
    - `held_out/labels` and `left_out/labels`: int32.
    - `gold/indptr`: int64, and `gold/indices`: int32.
    - `assigned_above`: float64.
    - `strategy` and `selected_by`: text.
    - `recalls/bytes`: uint8, and `recalls/offsets`: int64, the names of R
      recalls; `SLICE/recalls`: float64 [R], the recalls of a slice.
    - `concepts/bytes`: uint8, and `concepts/offsets`: int64, the ids of the
      hierarchy's nodes that are no labels; `parents/indptr`: int64, and
      `parents/indices`: int32, the parents of each label and of each concept.
      A parent is the number of a label or, plus L, the number of a concept.
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
      arrays['parents/indptr'] = np.asarray(nodes.parents.indptr, np.int64)
      arrays['parents/indices'] = np.asarray(nodes.parents.values, np.int32)
    if self.gold is not None:
      arrays['gold/indptr'] = np.asarray(self.gold.indptr, np.int64)
      arrays['gold/indices'] = np.asarray(self.gold.values, np.int32)
    write_npz(path, arrays)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Predictions':
    """Reads and checks predictions.npz, written by xjax or another program.

    Raises:
      DataError: the file is missing or damaged; or an array is missing, has a
        wrong dtype or shape, or has impossible values. The message contains
        the path of the file and the name of the array.
    """
    from xjax.judge.files.saved_predictions import read_saved

    predictions = read_saved(path)
    if fault := predictions.fault():
      raise DataError(f'{path}: {fault}')
    return predictions


def _two_scores(
  lists: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[int, int] | None:
  """Returns the first (row, label) that has two scores; None if there is none.

  Args:
    lists: pairs (ids, scores) of the same documents.
  """
  # An entry is stored as one integer, because sorting integers is several times
  # faster than sorting pairs.
  keys = np.concatenate(
    [
      ids.astype(np.int64) << 32 | np.ascontiguousarray(scores).view(np.uint32)
      for ids, scores in lists
    ],
    axis=1,
  )
  keys.sort(axis=1)
  ids = keys >> 32
  scores = (keys & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
  same = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] != PAD)
  same &= keys[:, 1:] != keys[:, :-1]  # usually no entry remains
  rows, places = np.nonzero(same)
  a, b = scores[rows, places], scores[rows, places + 1]
  apart = ~np.isclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE)
  if not apart.any():
    return None
  at = int(np.argmax(apart))
  return int(rows[at]), int(ids[rows[at], places[at]])


def labels_sha256(labels: Sequence[str]) -> str:
  """Returns the SHA-256 of all label ids in order, as hexadecimal digits.

  A newline follows each id.
  """
  digest = hashlib.sha256()
  for label in labels:
    digest.update(label.encode() + b'\n')
  return digest.hexdigest()
