"""Reads predictions.npz from untrusted sources; Predictions.save writes it."""

from collections.abc import Iterable, Sequence
import hashlib
import math
import os
import re
from typing import Any

import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import HELD_OUT, Label
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.slices import ALL, judged_masks

SCHEMA = 1
_LEFT_OUT = 'left_out'
_SELECTED_BY = re.compile(
  r'|exact|(?:beam|clusters|shortlist|trees|runs|proposers)=[1-9]\d*'
  r'|recall=(?:0\.\d+|[1-9](?:\.\d+)?e-\d+)'
)


def read_saved(path: str | os.PathLike) -> dict[str, Any]:
  """Reads the fields of Predictions, and checks each array by itself."""
  arrays = Arrays.read(path)
  fields = _parse(arrays)
  arrays.finish()
  return fields


def _parse(arrays: Arrays) -> dict[str, Any]:
  schema = arrays.count('schema')
  if schema != SCHEMA:
    arrays.fail('schema', f'is {schema}, but this version reads {SCHEMA}')
  kind = arrays.text('score_kind')
  if kind not in [known.value for known in ScoreKind]:
    arrays.fail('score_kind', f'is {kind!r}, which is unknown')
  labels = arrays.strings('labels')
  if arrays.text('labels_sha256') != labels_sha256(labels):
    arrays.fail('labels_sha256', 'is not the digest of the labels')
  doc_ids = arrays.strings('doc_ids')
  n_scored, n_train = arrays.count('n_scored'), arrays.count('n_train')
  if n_scored > len(labels):
    arrays.fail(
      'n_scored', f'is {n_scored}, but there are {len(labels)} labels'
    )
  counts = arrays.take('train_counts', np.int32, (len(labels),))
  arrays.check(
    'train_counts', (counts < 0) | (counts > n_train), f'not in 0..{n_train}'
  )
  held_out = _some_labels(arrays, HELD_OUT, len(labels))
  left_out = _some_labels(arrays, _LEFT_OUT, len(labels))
  masks = judged_masks(counts, held_out, left_out=left_out)
  return {
    'score_kind': ScoreKind(kind),
    'n_scored': n_scored,
    'n_train': n_train,
    'doc_ids': doc_ids,
    'labels': labels,
    'train_counts': counts,
    'lists': {
      name: _lists(
        arrays, name, mask, doc_ids, labels, n_scored, ScoreKind(kind)
      )
      for name, mask in masks.items()
      if name == ALL or {f'{name}/ids', f'{name}/scores'} & set(arrays.left)
    },
    'gold': _gold(arrays, len(doc_ids), masks[ALL]),
    'held_out': held_out,
    'left_out': left_out,
    'assigned_above': _assigned_above(arrays),
    'strategy': arrays.text('strategy') if 'strategy' in arrays.left else '',
    'selected_by': _selected_by(arrays),
    'ranks_unseen': _ranks_unseen(arrays),
    'recalls': _recalls(arrays, masks),
    'hierarchy': _hierarchy(arrays, labels),
  }


def _hierarchy(arrays: Arrays, labels: Sequence[str]) -> Hierarchy | None:
  if not {'parents/indptr', 'parents/indices'} & set(arrays.left):
    return None
  ids = (*labels, *arrays.strings('concepts'))
  if len(set(ids)) < len(ids):
    arrays.fail('concepts/bytes', 'an id is a label, or occurs twice')
  indices = arrays.take('parents/indices', np.int32, (None,))
  indptr = arrays.take('parents/indptr', np.int64, (len(ids) + 1,))
  arrays.check_offsets('parents/indptr', indptr, len(indices))
  outside = (indices < 0) | (indices >= len(ids))
  arrays.check('parents/indices', outside, f'not in 0..{len(ids) - 1}')
  parents = Ragged(indptr, indices)
  nodes = [
    Label(id_, id_, parents=tuple(ids[parent] for parent in parents[node]))
    for node, id_ in enumerate(ids)
  ]
  try:
    return Hierarchy.of(nodes[: len(labels)], nodes[len(labels) :])
  except DataError as error:
    arrays.fail('parents/indices', f'{error}')


def _selected_by(arrays: Arrays) -> str:
  text = arrays.text('selected_by') if 'selected_by' in arrays.left else ''
  if not _SELECTED_BY.fullmatch(text):
    arrays.fail('selected_by', f'is {text!a}, which is unknown')
  return text


def _recalls(
  arrays: Arrays, slices: Iterable[str]
) -> dict[str, dict[str, float]]:
  slices = [name for name in slices if f'{name}/recalls' in arrays.left]
  if not slices and 'recalls/bytes' not in arrays.left:
    return {}
  steps = tuple(arrays.strings('recalls'))
  recalls = {}
  for name in slices:
    shares = arrays.take(f'{name}/recalls', np.float64, (len(steps),))
    outside = ~((shares >= 0) & (shares <= 1))
    arrays.check(f'{name}/recalls', outside, 'a recall is not from 0 to 1')
    recalls[name] = dict(zip(steps, shares.tolist(), strict=True))
  return recalls


def _assigned_above(arrays: Arrays) -> float | None:
  if 'assigned_above' not in arrays.left:
    return None
  score = float(arrays.take('assigned_above', np.float64, ()))
  if not math.isfinite(score):
    arrays.fail('assigned_above', f'is {score}, but must be finite')
  return score


def _ranks_unseen(arrays: Arrays) -> bool | None:
  if 'ranks_unseen' not in arrays.left:
    return None
  return bool(arrays.take('ranks_unseen', np.bool_, ()))


def _some_labels(arrays: Arrays, kind: str, n_labels: int) -> np.ndarray:
  name = f'{kind}/labels'
  if name not in arrays.left:
    return np.zeros(0, np.int32)
  some = arrays.take(name, np.int32, (None,))
  outside = (some < 0) | (some >= n_labels)
  arrays.check(name, outside, f'not in 0..{n_labels - 1}')
  if not len(some) or len(np.unique(some)) < len(some):
    arrays.fail(name, 'must have at least one label, and no label twice')
  if kind == _LEFT_OUT and len(some) == n_labels:
    arrays.fail(name, 'has all labels, so that no label is judged')
  return some


def _lists(
  arrays: Arrays,
  name: str,
  mask: np.ndarray,
  doc_ids: Sequence[str],
  labels: Sequence[str],
  n_scored: int,
  kind: ScoreKind,
) -> LabelLists:
  ids = arrays.take(f'{name}/ids', np.int32, (len(doc_ids), None))
  if not ids.shape[1]:
    arrays.fail(f'{name}/ids', 'the lists have length 0')
  scores = arrays.take(f'{name}/scores', np.float32, ids.shape)
  pad = ids == PAD
  outside = (ids < PAD) | (ids >= n_scored)
  check = arrays.check
  check(f'{name}/ids', outside, f'neither {PAD} nor in 0..{n_scored - 1}')
  check(f'{name}/ids', pad[:, :-1] & ~pad[:, 1:], f'a label comes after {PAD}')
  if len(mask):
    check(f'{name}/ids', ~pad & ~mask[ids], 'a label is outside the slice')
  in_order = np.sort(ids, -1)
  twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] != PAD)
  if twice.any():
    row, place = np.argwhere(twice)[0]
    arrays.fail(
      f'{name}/ids',
      f'the list at [{row}] has a label twice: document {doc_ids[row]!a}, '
      f'label {labels[in_order[row, place]]!a}',
    )
  check(f'{name}/scores', np.isnan(scores), 'a score is NaN')
  check(f'{name}/scores', ~pad & np.isinf(scores), 'a score is infinite')
  finite_pad = pad & ~np.isneginf(scores)
  check(f'{name}/scores', finite_pad, f'the score of {PAD} is not -inf')
  rises = scores[:, 1:] > scores[:, :-1]
  check(f'{name}/scores', rises, 'a score is higher than the score before')
  if kind is ScoreKind.PROBABILITY:
    outside = ~pad & ((scores < 0) | (scores > 1))
    check(f'{name}/scores', outside, 'a score is not from 0 to 1')
  return LabelLists(ids, scores)


def _gold(arrays: Arrays, n_docs: int, judged_L: np.ndarray) -> Ragged | None:
  if not {'gold/indptr', 'gold/indices'} & set(arrays.left):
    return None
  gold = arrays.rows('gold', len(judged_L), n_docs)
  if len(gold.values):
    message = 'a gold label is left out of judging'
    arrays.check('gold/indices', ~judged_L[gold.values], message)
  return gold


def labels_sha256(labels: Sequence[str]) -> str:
  """Returns the hexadecimal SHA-256 of label ids, a newline after each id."""
  digest = hashlib.sha256()
  for label in labels:
    digest.update(label.encode() + b'\n')
  return digest.hexdigest()
