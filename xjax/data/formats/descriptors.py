"""Label descriptors while they are being read, and what can be wrong."""

import dataclasses
import os
import pathlib

from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, read_rows
from xjax.data.schema import Label, read_label


class Descriptors:
  """Labels in the order given.

  Where a faulty descriptor is left out, its label stays, with no more than its
  id, so that the documents that carry it are not faulty as well.

  Attributes:
    labels: id -> label.
    complete: whether every label's id could be read; if not, or if nothing
      was given at all, no label of a document can be called unknown.
  """

  def __init__(self, complete: bool = False):
    self.labels: dict[str, Label] = {}
    self.complete = complete
    self._lines: dict[str, int] = {}

  def add(self, label: Label, line: int) -> bool:
    """Adds a label; False where one of this id is there already."""
    if label.id in self.labels:
      return False
    self.labels[label.id] = label
    self._lines[label.id] = line
    return True

  def is_unknown(self, label_id: str) -> bool:
    """Whether a document's label is certainly not among them."""
    return self.complete and label_id not in self.labels

  def check_parents(self, file: str | os.PathLike, faults: Faults) -> None:
    """Notes parents that do not exist, and rings of them; drops those."""
    for label in list(self.labels.values()):
      for parent in filter(self.is_unknown, label.parents):
        self._drop(label.id, parent)
        what = f'label {label.id!a} has the unknown parent {parent!a}'
        faults.add(file, self._lines[label.id], what)
    edges = self._ring_edges()
    for id_, parent in sorted(edges, key=lambda e: self._lines[e[0]]):
      self._drop(id_, parent)
      what = f'label {id_!a} is its own ancestor, through its parent {parent!a}'
      faults.add(file, self._lines[id_], what)

  def _drop(self, id_: str, parent: str) -> None:
    label = self.labels[id_]
    parents = tuple(p for p in label.parents if p != parent)
    self.labels[id_] = dataclasses.replace(label, parents=parents)

  def _ring_edges(self) -> list[tuple[str, str]]:
    """(label, parent) pairs without which nobody is their own ancestor.

    The back edges of a depth-first walk, so each ring loses at least one.
    """
    edges: list[tuple[str, str]] = []
    path: set[str] = set()
    done: set[str] = set()
    for root in self.labels:
      stack = [(root, False)]
      while stack:
        id_, left = stack.pop()
        if left:
          path.remove(id_)
          done.add(id_)
        elif id_ not in done:
          path.add(id_)
          stack.append((id_, True))
          for parent in self.labels[id_].parents:
            if parent in path:
              edges.append((id_, parent))
            elif parent in self.labels:
              stack.append((parent, False))
    return edges


def read_descriptors(path: pathlib.Path, faults: Faults) -> Descriptors:
  """Reads labels.jsonl[.gz]; notes the faulty lines."""
  described = Descriptors()
  before = faults.count
  own = 0  # faults that still let the label's id be read
  for number, row in read_rows(path, faults):
    fields = Fields(row)
    label = read_label(fields)
    if label.id and not described.add(
      Label(label.id, label.id) if fields.faults else label, number
    ):
      fields.faults.append(f'duplicate label {label.id!a}')
    for what in fields.faults:
      faults.add(path, number, what)
    own += len(fields.faults) if label.id else 0
  sound = faults.count == before + own
  described.complete = sound and bool(described.labels)
  if not described.labels:
    faults.add_empty(path, 'label', before)
  described.check_parents(path, faults)
  return described
