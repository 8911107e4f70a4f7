r"""Compares two folders that tests.golden.freeze wrote, before and after.

  python -m tests.golden.compare BEFORE AFTER [--only=REGEX] [--all]

A line is printed for each config that is not equal bit for bit; with --all, for
each config. The exit code is 1 if a config is missing in AFTER, fails in AFTER
but not in BEFORE, or differs by more than these bounds:

- Lists of a run without a neural part are equal bit for bit.
- Scores of others differ by at most 1e-6, or by this share of a score above 1.
- Their labels are equal where the scores beside them differ by more than 1e-5.
- Metrics, and losses in training, differ by at most 1e-6, or by this share of a
  figure above 1.
- All else that predictions.npz says is equal.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import sys
from typing import Any

import numpy as np

from tests.golden.record import Frozen, leaves

BOUND = 1e-6  # of scores and metrics
APART = 1e-5  # Scores that are nearer may change places.


@dataclasses.dataclass(frozen=True)
class Row:
  """How a config differs."""

  name: str
  verdict: str
  beyond: bool  # whether it differs by more than the bounds
  neural: bool | None = None  # whether a part of the run is neural
  scores: float = 0.0  # the largest difference of a score
  # Places with another label, beyond the bounds, and others.
  labels: tuple[int, int] = (0, 0)
  metrics: float = 0.0  # the largest difference of a metric
  notes: tuple[str, ...] = ()

  @property
  def equal(self) -> bool:
    return self.verdict == 'equal'

  def line(self) -> str:
    """Returns a line of the report."""
    figures = ''
    if self.neural is not None:
      kind = 'neural' if self.neural else 'not neural'
      figures = (
        f' ({kind}; scores differ by {self.scores:.1e}, labels at '
        f'{self.labels[0]} places, or {self.labels[1]} between near scores, '
        f'metrics by {self.metrics:.1e})'
      )
    return f'{self.name}: {self.verdict}{figures} {"; ".join(self.notes)}\n'


def main() -> None:
  """Compares the folders that the arguments name."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('before', type=pathlib.Path)
  parser.add_argument('after', type=pathlib.Path)
  parser.add_argument('--only', default='', help='part of the names, a REGEX')
  parser.add_argument('--all', action='store_true', help='show equal ones too')
  flags = parser.parse_args()
  print(machines(flags.before, flags.after), end='')
  sides = []
  for folder in (flags.before, flags.after):
    frozen = read(folder)
    sides.append({n: frozen[n] for n in frozen if re.search(flags.only, n)})
  if not sides[0]:
    parser.error(f'{flags.before} has no such config')
  rows = compare(*sides)
  print(report(rows, flags.all), end='')
  sys.exit(1 if any(row.beyond for row in rows) else 0)


def machines(before: pathlib.Path, after: pathlib.Path) -> str:
  """Returns a line for each entry of machine.json that differs."""
  paths = before / 'machine.json', after / 'machine.json'
  missing = [path for path in paths if not path.exists()]
  if missing:  # the command was stopped
    return ''.join(f'{path} is missing\n' for path in missing)
  old, new = (json.loads(path.read_text()) for path in paths)
  return ''.join(
    f'{name}: {old.get(name)} before, {new.get(name)} after\n'
    for name in {**old, **new}
    if old.get(name) != new.get(name)
  )


def read(folder: pathlib.Path) -> dict[str, Frozen]:
  """Reads what a folder has, by name."""
  return {
    path.stem.replace('.', ':'): Frozen.load(path)
    for path in sorted(folder.glob('*.npz'))
  }


def compare(before: dict[str, Frozen], after: dict[str, Frozen]) -> list[Row]:
  """Compares the configs of both sides."""
  return [
    compared(name, before.get(name), after.get(name))
    for name in sorted({**before, **after})
  ]


def compared(name: str, before: Frozen | None, after: Frozen | None) -> Row:
  """Compares a config; None stands for one that is missing."""
  if before is None:
    notes = (after.failure,) if after.failure else ()
    return Row(name, 'new', False, notes=notes)
  if after is None:
    return Row(name, 'MISSING', True)
  if after.failure:
    verdict = 'fails as before' if before.failure else 'FAILS'
    return Row(name, verdict, not before.failure, notes=(after.failure,))
  if before.failure:
    return Row(name, 'failed before', False, notes=(before.failure,))
  return differences(name, before, after)


def differences(name: str, before: Frozen, after: Frozen) -> Row:
  """Compares two finished runs."""
  notes, beyond = [], False
  for what in ('neural', 'facts'):
    old, new = getattr(before, what), getattr(after, what)
    if old != new:
      notes.append(f'{what}: {changed(old, new)}')
      beyond = True
  metrics, where = of_metrics(before.metrics, after.metrics)
  if where:
    notes.append(f'metric {where}')
  same_lists = before.digests == after.digests
  shapes = [{s: f.lists[s][0].shape for s in f.lists} for f in (before, after)]
  scores, labels = 0.0, (0, 0)
  if shapes[0] != shapes[1]:
    notes.append(f'lists: {changed(*shapes)}')
    beyond = True
  elif not same_lists:
    scores, labels = of_lists(before, after)
    if not scores and not any(labels):
      notes.append('lists differ outside the part that is kept')
  beyond |= metrics > BOUND or scores > BOUND or labels[0] > 0
  beyond |= not before.neural and not same_lists
  equal = same_lists and not beyond and before.metrics == after.metrics
  verdict = 'equal' if equal else 'DIFFERS' if beyond else 'within bounds'
  figures = before.neural, scores, labels, metrics
  return Row(name, verdict, beyond, *figures, tuple(notes))


def changed(old: Any, new: Any) -> str:
  """Returns a short text of what differs."""
  if isinstance(old, dict) and isinstance(new, dict):
    keys = (key for key in {**old, **new} if old.get(key) != new.get(key))
    pairs = (f'{key} {old.get(key)} -> {new.get(key)}' for key in keys)
    return ', '.join(pairs)[:200]
  return f'{old} -> {new}'


def apart(old: np.ndarray, new: np.ndarray) -> np.ndarray:
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


def of_lists(before: Frozen, after: Frozen) -> tuple[float, tuple[int, int]]:
  """Returns the largest difference of scores, and Row.labels."""
  largest, firm_places, others = 0.0, 0, 0
  for name, (old_ids, old_scores) in before.lists.items():
    new_ids, new_scores = after.lists[name]
    largest = max(largest, apart(old_scores, new_scores).max(initial=0.0))
    moved, firm = old_ids != new_ids, is_firm(old_scores)
    firm_places += int((moved & firm).sum())
    others += int((moved & ~firm).sum())
  return float(largest), (firm_places, others)


def is_firm(scores: np.ndarray) -> np.ndarray:
  """Returns the places whose scores are far from both neighbours.

  What would follow the last place is unknown, so this place is not firm, unless
  the list has ended before.
  """
  gaps = apart_absolutely(scores[:, :-1], scores[:, 1:]) > APART
  ends = np.isneginf(scores[:, -1:])
  edge = np.ones_like(ends)
  return np.hstack([edge, gaps]) & np.hstack([gaps, ends])


def apart_absolutely(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Returns differences of neighbouring scores; places without labels are far.

  Such a place is firm: a label there is a difference.
  """
  left, right = left.astype(np.float64), right.astype(np.float64)
  with np.errstate(invalid='ignore'):
    gaps = np.abs(left - right)
  return np.where(np.isnan(gaps), np.inf, gaps)


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


def report(rows: list[Row], all_rows: bool = False) -> str:
  """Returns lines of configs, and the numbers of configs by verdict."""
  text = ''.join(row.line() for row in rows if all_rows or not row.equal)
  counts = collections.Counter(row.verdict for row in rows)
  words = {'equal': 'equal bit for bit'}
  parts = (f'{n} {words.get(word, word)}' for word, n in counts.items())
  return f'{text}{len(rows)} configs: {", ".join(parts)}\n'


if __name__ == '__main__':
  main()
