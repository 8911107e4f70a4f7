"""Reads a taxonomy, which has lines `parent<TAB>child<TAB>child...`."""

import pathlib

from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  decode_utf8,
  read_lines,
  repeated,
)
from xjax.data.formats.descriptors import Descriptors
from xjax.data.schema import Label

ROOT = 'Root'  # the topmost parent of the taxonomy, which is not a label


def read_taxonomy(path: pathlib.Path, faults: Faults) -> Descriptors:
  """Reads the labels of a taxonomy and their parents, and collects its faults.

  The labels are in the order in which they first occur as children. Root is
  neither a label nor a parent.
  """
  before = faults.count
  draft = _TaxonomyDraft(path, faults)
  for number, line in read_lines(path, faults):
    draft.add(line, number)
  if not draft.parents:
    faults.add_empty(path, 'label', before)
  described = draft.described(complete=faults.count == before)
  described.check_parents(path, faults)
  return described


class _TaxonomyDraft:
  def __init__(self, path: pathlib.Path, faults: Faults):
    self._path, self._faults = path, faults
    self._lines: dict[str, int] = {}  # parent -> its line
    # label -> first line that has the label as a child
    self._first: dict[str, int] = {}
    self.parents: dict[str, dict[str, None]] = {}

  def add(self, line: bytes, number: int) -> None:
    try:
      names = decode_utf8(line).split('\t')
    except Fault as fault:
      self._faults.add(self._path, number, str(fault))
      return
    fields = Fields({})
    parent, *children = [
      fields.as_id(name, f'name {i}') for i, name in enumerate(names, 1)
    ]
    messages = fields.faults
    if parent in self._lines:
      line_number = self._lines[parent]
      messages.append(
        f'{parent!a} is the parent on line {line_number} already; write all '
        'its children on that line'
      )
    repeats = filter(None, repeated(children))
    messages += [f'{child!a} occurs twice' for child in repeats]
    if ROOT in children:
      messages.append(f'{ROOT} is a child of {parent!a}')
    if parent:
      self._lines.setdefault(parent, number)
    if self._faults.extend(self._path, number, messages):
      self._note(parent, children, number)

  def _note(self, parent: str, children: list[str], number: int) -> None:
    for child in children:
      self._first.setdefault(child, number)
      above = self.parents.setdefault(child, {})
      if parent != ROOT:
        above[parent] = None

  def described(self, complete: bool) -> Descriptors:
    """Returns the labels, and adds faults that concern several lines.

    A label that is a parent but never a child is a fault; the label is kept.
    `complete` says whether all lines could be read.
    """
    rooted = ROOT in self._lines
    if complete and not rooted:
      message = f'no line `{ROOT}<TAB>child...` with the labels of level 1'
      self._faults.add(self._path, None, message, fatal=True)
    unconnected = [
      p for p in self._lines if p != ROOT and p not in self.parents
    ]
    for parent in unconnected:
      self.parents[parent] = {}
      line = self._first[parent] = self._lines[parent]
      if complete and rooted:
        message = (
          f'{parent!a} is never a child; put it below {ROOT} or below another '
          'label'
        )
        self._faults.add(self._path, line, message)
    described = Descriptors(complete and bool(self.parents))
    for id_, parents in self.parents.items():
      described.add(Label(id_, id_, parents=tuple(parents)), self._first[id_])
    return described
