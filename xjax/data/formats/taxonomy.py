"""A taxonomy: `parent<TAB>child<TAB>child...` a line, from Root down."""

from collections.abc import Sequence
import pathlib

import numpy as np

from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields, decode_utf8, read_file_lines
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Label

NO_LEVEL = -1  # the level of a label that hangs on none that is known


def label_levels(
  labels: Sequence[Label], others: Sequence[Label] = ()
) -> np.ndarray:
  """The level of each label: one more than that of its highest parent.

  A label without parents is of level 1. Where a label has several parents the
  shortest way counts, and so do ways through labels that only others has. A
  label none of whose ways up ends at a label of level 1 (its parents are not
  known, or it is its own ancestor) is NO_LEVEL: no level is made up for it.

  Args:
    labels: L labels.
    others: further descriptors, such as a whole taxonomy's, through which the
      parents of labels may be found.

  Returns:
    int32 [L].
  """
  described = {label.id: label for label in (*others, *labels)}
  children: dict[str, list[str]] = {}
  for label in described.values():
    for parent in label.parents:
      children.setdefault(parent, []).append(label.id)
  front = [label.id for label in described.values() if not label.parents]
  levels = dict.fromkeys(front, 1)
  # Breadth first: who is reached first is reached by the shortest way.
  while front:
    level = levels[front[0]] + 1
    below = [c for id_ in front for c in children.get(id_, ())]
    front = [c for c in dict.fromkeys(below) if c not in levels]
    levels.update(dict.fromkeys(front, level))
  found = [levels.get(label.id, NO_LEVEL) for label in labels]
  return np.array(found, np.int32)


ROOT = 'Root'  # where levels are counted from; no label


def read_taxonomy(path: pathlib.Path, faults: Faults) -> Descriptors:
  """Reads a taxonomy; notes what is wrong with it.

  Returns:
    The labels in the order they are first named below another, with parents;
    Root is no label and nobody's parent.
  """
  before = faults.count
  draft = _Draft(path, faults)
  for number, line in read_file_lines(path, faults):
    draft.add(line, number)
  if not draft.parents:
    faults.add_empty(path, 'label', before)
  described = draft.described(complete=faults.count == before)
  described.check_parents(path, faults)
  return described


class _Draft:
  """A taxonomy while it is being read.

  Attributes:
    parents: label -> its parents, as keys.
  """

  def __init__(self, path: pathlib.Path, faults: Faults):
    self._path, self._faults = path, faults
    self._lines: dict[str, int] = {}  # parent -> its line
    self._first: dict[str, int] = {}  # label -> line where it is a child first
    self.parents: dict[str, dict[str, None]] = {}

  def add(self, line: bytes, number: int) -> None:
    """Adds a line `parent<TAB>child<TAB>child...`."""
    try:
      names = decode_utf8(line).split('\t')
    except Fault as fault:
      self._faults.add(self._path, number, str(fault))
      return
    fields = Fields({})
    parent, *children = [
      fields.as_id(name, f'name {i}') for i, name in enumerate(names, 1)
    ]
    whats = fields.faults
    if parent in self._lines:
      whats.append(f'{parent!a} has a line already, {self._lines[parent]}')
    whats += [f'{c!a} stands twice' for c in _twice(children)]
    if ROOT in children:
      whats.append(f'{ROOT} is below {parent!a}')
    if parent:
      self._lines.setdefault(parent, number)
    if self._faults.extend(self._path, number, whats):
      self._note(parent, children, number)

  def _note(self, parent: str, children: list[str], number: int) -> None:
    for child in children:
      self._first.setdefault(child, number)
      above = self.parents.setdefault(child, {})
      if parent != ROOT:
        above[parent] = None

  def described(self, complete: bool) -> Descriptors:
    """The labels; notes those that hang nowhere, and keeps them."""
    rooted = ROOT in self._lines
    if complete and not rooted:
      what = f'no line of {ROOT}, with the labels of the first level'
      self._faults.add(self._path, None, what, fatal=True)
    hanging = [p for p in self._lines if p != ROOT and p not in self.parents]
    for parent in hanging:
      self.parents[parent] = {}
      line = self._first[parent] = self._lines[parent]
      if complete and rooted:
        what = f'{parent!a} is below nothing, not even {ROOT}'
        self._faults.add(self._path, line, what)
    described = Descriptors(complete and bool(self.parents))
    for id_, parents in self.parents.items():
      described.add(Label(id_, id_, parents=tuple(parents)), self._first[id_])
    return described


def _twice(names: list[str]) -> list[str]:
  return [n for n in dict.fromkeys(names) if n and names.count(n) > 1]
