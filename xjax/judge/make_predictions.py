"""Predicts the labels of a split."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools

from absl import logging
import numpy as np

from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.ranking import Lists, Query, RanksDocuments, mask_of
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import LabelSpace, Split
from xjax.judge.label_lists import LabelLists, list_length
from xjax.judge.metrics.slices import ALL, cut_gold, judged_masks
from xjax.judge.predictions import Predictions


def predict(
  scorer: RanksDocuments,
  split: Split,
  space: LabelSpace,
  depth: int,
  slices: Sequence[np.ndarray] = (),
  documents: Documents | None = None,
  on_block: Callable[[int], None] | None = None,
  measured: bool = False,
) -> Predictions:
  """Makes top-k lists over all labels and per slice, in one pass.

  Labels that the space leaves out are in no list, and are no gold labels. All
  processes call this function, and get the lists of all documents.

  Args:
    slices: bool [L], further slices that get lists (Predictions.requested).
    documents: as a scorer reads them; None for Documents.of_split(split).
    measured: whether to measure what the search loses (Predictions.recalls).
  """
  masks = space.masks()
  if documents is None:
    documents = Documents.of_split(split)
  with Progress(
    f'judging {split.name}', len(documents), unit='document'
  ) as shown:

    def ranked(n: int) -> None:
      shown.update(n)
      if on_block:
        on_block(n)

    query = Query(
      list_length(depth, scorer.n_labels),
      (*masks.values(), *slices),
      space.allowed,
      measured=len(masks) if measured else None,
      on_block=ranked,
    )
    found = scorer.rank(documents, query)
  _check_ids(found, scorer.n_labels)
  check_scores(found.ids_GNK, found.scores_GNK, split.ids, split.source)
  names = (ALL, *masks)
  lists = list(map(LabelLists, found.ids_GNK, found.scores_GNK))
  predictions = _predictions(
    scorer.score_kind, scorer.n_labels, split, space, dict(zip(names, lists))
  )
  predictions = dataclasses.replace(
    predictions,
    assigned_above=scorer.assigned_above,
    selected_by=scorer.selected_by,
    ranks_unseen=scorer.ranks_unseen,
    requested=tuple(zip(slices, lists[len(names) :], strict=True)),
    recalls=recalls_of(found.kept, predictions.gold, masks),
  )
  if fault := predictions.fault():
    raise ValueError(f'{split.name}: {fault}')
  return predictions


def joined(
  first: Predictions,  # those of its first part
  lists: Mapping[str, LabelLists],  # of all its documents, by slice
  split: Split,
  space: LabelSpace,  # with further labels at its end, if any
) -> Predictions:
  """Returns the predictions of a split that was predicted in parts."""
  n, kind = first.n_scored, first.score_kind
  return dataclasses.replace(
    _predictions(kind, n, split, space, lists),
    assigned_above=first.assigned_above,
    strategy=first.strategy,
    selected_by=first.selected_by,
    ranks_unseen=first.ranks_unseen,
  )


def _check_ids(lists: Lists, n_labels: int) -> None:
  highest = lists.ids_GNK.max(initial=PAD)
  if highest >= n_labels:
    raise ValueError(
      f'the scorer ranked label {highest}, but it scores only {n_labels} labels'
    )


def recalls_of(
  kept: Mapping[str, np.ndarray], gold: Ragged, masks: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
  """Returns the mean recall of each step, for all labels and for each slice.

  A label that a step loses cannot be predicted any more, so a step's recall
  bounds the model's. `kept` has int32 [G, N] for each step: how many measured
  gold labels of a document it keeps, of all labels and then of each slice
  (Lists.kept). The mean is over documents with gold in the slice; a slice
  without gold has no entry.
  """
  if not kept:
    return {}
  inside = {name: mask_of(gold.values, mask) for name, mask in masks.items()}
  golds = {ALL: gold} | {name: gold.keep(x) for name, x in inside.items()}
  recalls = {}
  for row, (name, cut) in enumerate(golds.items()):
    has_N = cut.lengths > 0
    if has_N.any():
      counts = cut.lengths[has_N]
      recalls[name] = {
        step: float((kept_GN[row, has_N] / counts).mean())
        for step, kept_GN in kept.items()
      }
  return recalls


def check_scores(
  ids_GNK: np.ndarray,
  scores_GNK: np.ndarray,
  doc_ids: Sequence[str],
  source: str,
) -> None:
  """Raises a DataError unless the scores of all listed labels are finite."""
  bad_GNK = ~np.isfinite(scores_GNK) & (ids_GNK != PAD)
  # Labels whose scores are NaN may be left out of a list.
  bad_GNK |= np.isnan(scores_GNK)
  if bad_GNK.any():
    group, row, place = np.argwhere(bad_GNK)[0]
    raise DataError(
      f'{source}: document {doc_ids[row]!a}: the model computes the score '
      f'{scores_GNK[group, row, place]}, which is no finite number; check that '
      'the values of the document are as small as those of the training '
      'documents'
    )


def _predictions(
  kind: ScoreKind,
  n_scored: int,
  split: Split,
  space: LabelSpace,
  lists: Mapping[str, LabelLists],
) -> Predictions:
  gold = split.gold
  if space.allowed is not None:
    gold = cut_gold(gold, space.allowed)
  return Predictions(
    score_kind=kind,
    n_scored=n_scored,
    n_train=space.n_train,
    doc_ids=tuple(split.ids),
    labels=space.ids,
    train_counts=np.asarray(space.train_counts, np.int32),
    lists=lists,
    gold=gold,
    held_out=space.held_out,
    left_out=space.left_out,
    hierarchy=_hierarchy(space),
  )


@functools.lru_cache(maxsize=2)  # dev is judged many times in training
def _hierarchy(space: LabelSpace) -> Hierarchy | None:
  """Returns the hierarchy of a label space; None if no label has a parent.

  If a label is its own ancestor, there is none, and a warning is logged: models
  that do not read parents can still be judged by all other metrics.
  """
  if not len(space.labels.parents.bytes()):
    return None
  try:
    return Hierarchy.of_space(space)
  except DataError as error:
    logging.warning('hierarchical metrics are left out: %s', error)
    return None


def popularity(space: LabelSpace, split: Split, depth: int) -> Predictions:
  """Predicts the most frequent training labels, by their share of documents.

  Among equal scores, the smaller index comes first. Gold labels outside the
  label space, and left-out labels, are not ranked.
  """
  n_scored = space.n_inside
  depth = list_length(depth, n_scored)
  counts = np.asarray(space.train_counts[:n_scored], np.int64)
  ranked = np.argsort(-counts, kind='stable')
  lists = {}
  counted = space.train_counts, space.held_out
  masks = judged_masks(*counted, left_out=space.left_out)
  for name, mask in masks.items():
    best = ranked[mask[ranked]][:depth]
    ids = np.full(depth, PAD, np.int32)
    scores = np.full(depth, -np.inf, np.float32)
    ids[: len(best)] = best
    scores[: len(best)] = counts[best] / max(space.n_train, 1)
    shape = (len(split), depth)
    lists[name] = LabelLists(
      np.broadcast_to(ids, shape), np.broadcast_to(scores, shape)
    )
  prior = _predictions(ScoreKind.PROBABILITY, n_scored, split, space, lists)
  return dataclasses.replace(prior, ranks_unseen=False)
