"""Adds labels to a trained model, which scores them by their names."""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.core.types import PAD
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  decode_utf8,
  open_text,
  parse_object,
  read_lines,
)
from xjax.data.schema import Label, Labels, LabelSpace, read_label
from xjax.data.text.words import has_letters

_JSON_ENDINGS = ('.jsonl', '.jsonl.gz')
# The pattern also matches a list of JSON objects, so that the error can say
# that lines must be objects. No label name matches the pattern.
_JSON = re.compile(rb'\{|\[\s*[{"]|\[$')


def read_new_labels(
  path: str | os.PathLike, space: LabelSpace
) -> tuple[Label, ...]:
  """Reads labels that are to be added to the labels of a run.

  Every line of the file, plain or gzipped, is a name; or every line is a JSON
  object as in labels.jsonl, where only `name` is required, and is the default
  id. A DataError says that there is no label, that a name has no letters, or
  that an id occurs twice or is in the run.
  """
  path = os.path.expanduser(path)
  faults = Faults(on_error=None)
  scored = _scored_ids(space).row_of
  lines: dict[str, int] = {}
  labels = []
  with open_text(path) as file:
    for number, line, as_json in _lines(read_lines(file, faults, path), path):
      label, messages = _parse_label(line, as_json)
      if label.id in scored:
        messages.append(f'the run has the label {label.id!a} already')
      elif label.id in lines:
        first = lines[label.id]
        messages.append(f'label {label.id!a} is on line {first} already')
      elif label.id:
        lines[label.id] = number
      if faults.extend(path, number, messages):
        labels.append(label)
  if not labels:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  return tuple(labels)


def _lines(
  lines: Iterator[tuple[int, bytes]], path: str
) -> Iterator[tuple[int, bytes, bool]]:
  """Yields number and bytes of each line, and whether the lines are JSON."""
  # They are if the path ends in .jsonl[.gz] or the first line looks so.
  as_json = None
  for number, line in lines:
    if as_json is None:
      as_json = path.endswith(_JSON_ENDINGS) or bool(_JSON.match(line))
    yield number, line, as_json


def _parse_label(line: bytes, as_json: bool) -> tuple[Label, list[str]]:
  try:
    row = parse_object(line) if as_json else {'name': decode_utf8(line)}
  except Fault as fault:
    return Label(''), [str(fault)]
  fields = Fields(row)
  name = fields.text('name')
  if not fields.faults and not has_letters(name):
    fields.faults.append(f'the name {name!a} has no letters')
  if fields.faults:
    return Label(''), fields.faults
  fields = Fields({'id': name.strip(), **row})
  return read_label(fields), fields.faults


def add_new_labels(space: LabelSpace, labels: Sequence[Label]) -> LabelSpace:
  """Adds labels to a label space after training.

  First come the labels that the model scores already, then the new labels, with
  counts of 0, then the gold labels outside the space; one of these can become
  new. A DataError says that there is no label, that a name has no letters, or
  that an id occurs twice or is scored already.
  """
  scored, new = _scored_ids(space), Texts.of(label.id for label in labels)
  if not new:
    raise DataError('there are no new labels: give at least one')
  is_taken = scored.row_of.find(new) != PAD
  is_taken[new.row_of.repeated()] = True
  if is_taken.any():
    taken = (ascii(new[row]) for row in np.flatnonzero(is_taken))
    raise DataError(
      f'each new label needs an id that no other label has: {", ".join(taken)}'
    )
  if unnamed := [label.id for label in labels if not has_letters(label.name)]:
    raise DataError(
      f'new labels need names with letters: {", ".join(map(ascii, unnamed))}'
    )
  outside = space.labels[len(scored) :]
  outside = outside[new.row_of.find(outside.ids) == PAD]
  counts = np.zeros(len(scored) + len(new) + len(outside), np.int32)
  counts[: len(scored)] = space.train_counts[: len(scored)]
  return dataclasses.replace(
    space,
    labels=Labels.join(space.labels[: len(scored)], labels, outside),
    train_counts=counts,
    n_new=space.n_new + len(new),
  )


def _scored_ids(space: LabelSpace) -> Texts:
  """Returns the ids of all labels except those outside the label space."""
  return space.ids[: space.n_inside]
