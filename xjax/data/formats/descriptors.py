"""Reads label descriptors and checks them."""

import dataclasses
import os
import pathlib

from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, read_rows
from xjax.data.schema import Label, read_label


class Descriptors:
  """Collects descriptors of labels in the order in which they are added.

  A label with a faulty descriptor keeps only its id. So documents with this
  label are not reported as faulty. `complete` says whether there are
  descriptors and all their ids could be read. If not, no label counts as
  unknown.
  """

  def __init__(self, complete: bool = False):
    self.labels: dict[str, Label] = {}
    self.complete = complete
    self._lines: dict[str, int] = {}

  def add(self, label: Label, line: int) -> bool:
    """Adds a label; returns False if a label with this id exists already."""
    if label.id in self.labels:
      return False
    self.labels[label.id] = label
    self._lines[label.id] = line
    return True

  def is_unknown(self, label_id: str) -> bool:
    """Returns whether a label certainly has no descriptor."""
    return self.complete and label_id not in self.labels

  def check_parents(self, file: str | os.PathLike, faults: Faults) -> None:
    """Removes parents that are unknown or make a label its own ancestor.

    Each is a fault.
    """
    for label in list(self.labels.values()):
      for parent in filter(self.is_unknown, label.parents):
        self._drop(label.id, parent)
        message = f'label {label.id!a} has the unknown parent {parent!a}'
        faults.add(file, self._lines[label.id], message)
    edges = self._cycle_edges()
    for id_, parent in sorted(edges, key=lambda e: self._lines[e[0]]):
      self._drop(id_, parent)
      where = f'through its parent {parent!a}'
      message = f'label {id_!a} is its own ancestor, {where}'
      faults.add(file, self._lines[id_], message)

  def _drop(self, id_: str, parent: str) -> None:
    label = self.labels[id_]
    parents = tuple(p for p in label.parents if p != parent)
    self.labels[id_] = dataclasses.replace(label, parents=parents)

  def _cycle_edges(self) -> list[tuple[str, str]]:
    """Returns (label, parent) pairs whose removal breaks all cycles.

    These are the back edges of a depth-first walk: each cycle has at least one.
    """
    edges: list[tuple[str, str]] = []
    path: set[str] = set()
    done: set[str] = set()
    for root in self.labels:
      stack = [(root, False)]
      while stack:
        id_, is_finished = stack.pop()
        if is_finished:
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
  """Reads labels.jsonl[.gz] and collects the faults of its lines."""
  described = Descriptors()
  before = faults.count
  with_id = 0  # faults in lines whose label id can still be read
  for number, row in read_rows(path, faults):
    fields = Fields(row)
    label = read_label(fields)
    if label.id and not described.add(
      Label(label.id, label.id) if fields.faults else label, number
    ):
      fields.faults.append(f'duplicate label {label.id!a}')
    faults.extend(path, number, fields.faults)
    with_id += len(fields.faults) if label.id else 0
  all_ids_read = faults.count == before + with_id
  described.complete = all_ids_read and bool(described.labels)
  if not described.labels:
    faults.add_empty(path, 'label', before)
  described.check_parents(path, faults)
  return described
