r"""Compares two folders that tests.golden.freeze wrote, before and after.

  python -m tests.golden.compare BEFORE AFTER

Each config of AFTER is compared, and a line is printed if it is not equal bit
for bit. The exit code is 1 if it fails but did not fail in BEFORE, or differs
by more than these bounds:

- Lists of a run without a neural part are equal bit for bit.
- Scores of others differ by at most 1e-6, or by this share of a score above 1.
- Their labels are equal where the scores beside them differ by more than 1e-5.
- Metrics, and losses in training, differ by at most 1e-6, or by this share of a
  figure above 1.
- All else that predictions.npz says is equal.
"""

import pathlib
import sys
from typing import Any

import numpy as np

from tests.golden.record import Frozen, leaves

BOUND = 1e-6  # of scores and metrics
APART = 1e-5  # Scores that are nearer may change places.


def main(before: str, after: str) -> int:
  """Compares two folders; returns whether a config is beyond the bounds."""
  old, new = read(pathlib.Path(before)), read(pathlib.Path(after))
  any_beyond = False
  for name, frozen in new.items():
    verdict, beyond, notes = compared(old.get(name), frozen)
    any_beyond |= beyond
    if verdict != 'equal':
      print(f'{name}: {verdict}; {"; ".join(notes)}')
  missing = len(old.keys() - new.keys())
  print(f'{len(new)} configs of {after} compared; {missing} are missing')
  return int(any_beyond)


def read(folder: pathlib.Path) -> dict[str, Frozen]:
  """Reads what a folder has, by name."""
  return {
    path.stem.replace('.', ':'): Frozen.load(path)
    for path in sorted(folder.glob('*.npz'))
  }


def compared(
  before: Frozen | None, after: Frozen
) -> tuple[str, bool, list[str]]:
  """Returns a verdict, whether it is beyond the bounds, and what differs."""
  if before is None:
    return 'new', False, [after.failure]
  if after.failure:
    verdict = 'fails as before' if before.failure else 'FAILS'
    return verdict, not before.failure, [after.failure]
  if before.failure:
    return 'failed before', False, [before.failure]
  shapes = [{s: f.lists[s][0].shape for s in f.lists} for f in (before, after)]
  facts = zip(
    (before.neural, before.facts, shapes[0]),
    (after.neural, after.facts, shapes[1]),
  )
  notes = [f'{old} -> {new}' for old, new in facts if old != new]
  beyond = bool(notes)
  metrics, where = of_metrics(before.metrics, after.metrics)
  if where:
    notes.append(f'metric {where} differs by {metrics:.1e}')
    beyond |= metrics > BOUND
  if before.digests != after.digests and shapes[0] == shapes[1]:
    scores, labels = of_lists(before, after)
    notes.append(f'scores differ by {scores:.1e}, labels at {labels} places')
    beyond |= not before.neural or scores > BOUND or labels > 0
  if not notes:
    return 'equal', False, []
  return 'DIFFERS' if beyond else 'within bounds', beyond, notes


def apart(old: Any, new: Any) -> np.ndarray:
  """Returns differences; shares of the larger figure where it is above 1.

  Equal values have the difference 0, also if they are infinite or NaN. A value
  that is finite on one side only has the difference infinity.
  """
  old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
  equal = (old == new) | (np.isnan(old) & np.isnan(new))
  finite = np.isfinite(old) & np.isfinite(new)
  with np.errstate(invalid='ignore'):
    size = np.maximum(np.maximum(np.abs(old), np.abs(new)), 1)
    shares = np.abs(old - new) / size
  return np.where(equal, 0.0, np.where(finite, shares, np.inf))


def of_lists(before: Frozen, after: Frozen) -> tuple[float, int]:
  """Returns the largest difference of scores, and of labels at firm places."""
  largest, places = 0.0, 0
  for name, (old_ids, old_scores) in before.lists.items():
    new_ids, new_scores = after.lists[name]
    largest = max(largest, apart(old_scores, new_scores).max(initial=0.0))
    places += int(((old_ids != new_ids) & is_firm(old_scores)).sum())
  return float(largest), places


def is_firm(scores: np.ndarray) -> np.ndarray:
  """Returns the places whose scores are far from both neighbours.

  What would follow the last place is unknown, so this place is not firm, unless
  the list has ended before.
  """
  padded = np.pad(scores.astype(np.float64), [(0, 0), (1, 1)], 'edge')
  with np.errstate(invalid='ignore'):
    gaps = np.abs(np.diff(padded))
  gaps[:, 0] = np.inf
  # Places without a label, whose difference is NaN, are firm.
  far = np.isnan(gaps) | (gaps > APART)
  return far[:, :-1] & far[:, 1:]


def of_metrics(old: Any, new: Any) -> tuple[float, str]:
  """Returns the largest difference of two trees of figures, and its path.

  A figure that one side lacks, or another text, is an infinite difference.
  """
  before, after = dict(leaves(old)), dict(leaves(new))
  largest, where = 0.0, ''
  for path in {**before, **after}:
    pair = before.get(path, 'none'), after.get(path, 'none')
    if pair[0] == pair[1]:
      continue
    figures = all(type(value) in (int, float) for value in pair)
    difference = float(apart(*pair)) if figures else np.inf
    if difference > largest:
      largest, where = difference, path
  return largest, where


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
