"""Predicts the labels of a split."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools

from absl import logging
import numpy as np

from xjax.core.distributed import rank_documents
from xjax.core.errors import DataError
from xjax.core.progress import progress
from xjax.core.types import PAD, Batch, ScoreKind, Scorer
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import LabelSpace, Split
from xjax.judge.metrics.slices import ALL, cut_gold, judged_masks
from xjax.judge.predictions import Lists, Predictions, list_length


def predict(
  scorer: Scorer,
  batches: Iterable[Batch],
  split: Split,
  space: LabelSpace,
  depth: int,
  slices: Sequence[np.ndarray] = (),
) -> Predictions:
  """Makes top-k lists over all labels and per slice, in one pass.

  Labels that the space leaves out are in no list, and are no gold labels.

  With several processes, each process scores the rows that it reads, and all
  processes get the lists of all documents.

  Args:
    scorer: ranks labels.
    batches: this process's rows of the batches. Every document of the split is
      in exactly one batch of one process. All processes have the same number of
      batches.
    split: the documents, with their ids and gold.
    space: the labels, with their slices.
    depth: length of the lists; see list_length.
    slices: bool [L], further slices that get lists (Predictions.requested).

  Raises:
    ConfigError: the lists do not fit into memory.
    ValueError: a document is in no batch or in several batches; the scorer
      ranks a label whose index is not below scorer.n_labels; or the scorer
      gives a label two different scores for one document.
    DataError: a score is not finite.
  """
  masks = space.masks()
  each = (*masks.values(), *slices)
  depth = list_length(depth, scorer.n_labels)
  filters = {} if space.allowed is None else {'allowed': space.allowed}
  with progress(batches, f'judging {split.name}', unit='batch') as shown:
    ids, scores, seen = rank_documents(
      shown,
      functools.partial(scorer.topk, k=depth, slices=each, **filters),
      len(split),
      depth,
      1 + len(each),
    )
  if (seen != 1).any():
    raise ValueError(
      f'{(seen == 0).sum()} documents of {split.name} are in no batch, '
      f'{(seen > 1).sum()} are in several batches'
    )
  if ids.size and ids.max() >= scorer.n_labels:
    raise ValueError(
      f'the scorer ranked label {ids.max()}, but it scores only '
      f'{scorer.n_labels} labels'
    )
  check_scores(ids, scores, split.ids, split.source)
  names = (ALL, *masks)
  lists = [Lists(*both) for both in zip(ids, scores, strict=True)]
  predictions = _predictions(
    scorer.score_kind,
    scorer.n_labels,
    split,
    space,
    dict(zip(names, lists)),
  )
  predictions = dataclasses.replace(
    predictions,
    assigned_above=scorer.assigned_above,
    selected_by=scorer.selected_by,
    requested=tuple(zip(slices, lists[len(names) :], strict=True)),
  )
  if fault := predictions.fault():
    raise ValueError(f'{split.name}: {fault}')
  return predictions


def check_scores(
  ids_GNK: np.ndarray,
  scores_GNK: np.ndarray,
  doc_ids: Sequence[str],
  source: str,
) -> None:
  """Checks that the scores of all listed labels are finite.

  Args:
    ids_GNK: int32 labels of the lists, PAD after the last label.
    scores_GNK: float32 scores.
    doc_ids: N ids of documents.
    source: name of the file or split with the documents, for the message.

  Raises:
    DataError: a score is NaN or infinite.
  """
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
  lists: Mapping[str, Lists],
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

  If a label is its own ancestor, there is no hierarchy, and a warning is
  logged: models that do not read parents can still be judged by all other
  metrics.
  """
  if not len(space.labels.parents.bytes()):
    return None
  try:
    return Hierarchy.of_space(space)
  except DataError as error:
    logging.warning('hierarchical metrics are left out: %s', error)
    return None


def popularity(space: LabelSpace, split: Split, depth: int) -> Predictions:
  """Predicts the most frequent training labels for every document.

  This baseline is the popularity prior. The score of a label is its number of
  training documents, divided by n_train. Among labels with equal scores, the
  smaller index comes first; all labels of the slice `zero` have score 0. Gold
  labels outside the label space, and left-out labels, are not ranked.

  Args:
    space: the labels, with their training counts.
    split: the documents, with their ids and gold.
    depth: length of the lists; see list_length.
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
    lists[name] = Lists(
      np.broadcast_to(ids, shape), np.broadcast_to(scores, shape)
    )
  return _predictions(ScoreKind.PROBABILITY, n_scored, split, space, lists)
