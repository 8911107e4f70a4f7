"""Labels that are added to a trained model's, by name alone."""

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
# Or a list of them, of which it is said what is wrong: no name begins so.
_JSON = re.compile(rb'\{|\[\s*[{"]|\[$')


def read_new_labels(
  path: str | os.PathLike, space: LabelSpace
) -> tuple[Label, ...]:
  """Reads labels to be added to those of a run.

  Args:
    path: JSON lines as in labels.jsonl, of which only `name` must be there, or
      plain text with a name on each line; perhaps gzipped. A label without an
      id has its name as its id.
    space: the run's labels.

  Returns:
    The labels, in the order of the file.

  Raises:
    DataError: the file cannot be read or has faults: no label, a name without
      a letter, an id that comes twice or that the run has.
  """
  path = os.path.expanduser(path)
  faults = Faults(on_error=None)
  scored = _scored(space).row_of
  lines: dict[str, int] = {}
  labels = []
  with open_text(path) as file:
    for number, line, as_json in _lines(read_lines(file, path, faults), path):
      label, whats = _read(line, as_json)
      if label.id in scored:
        whats.append(f'the run has the label {label.id!a} already')
      elif label.id in lines:
        whats.append(f'label {label.id!a} is on line {lines[label.id]} already')
      elif label.id:
        lines[label.id] = number
      if faults.extend(path, number, whats):
        labels.append(label)
  if not labels:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  return tuple(labels)


def _lines(
  lines: Iterator[tuple[int, bytes]], path: str
) -> Iterator[tuple[int, bytes, bool]]:
  """Yields with each line whether the file is JSON lines."""
  as_json = None
  for number, line in lines:
    if as_json is None:
      as_json = path.endswith(_JSON_ENDINGS) or bool(_JSON.match(line))
    yield number, line, as_json


def _read(line: bytes, as_json: bool) -> tuple[Label, list[str]]:
  """The label on a line, and what is wrong with it."""
  try:
    row = parse_object(line) if as_json else {'name': decode_utf8(line)}
  except Fault as fault:
    return Label(''), [str(fault)]
  fields = Fields(row)
  name = fields.text('name')
  if not fields.faults and not has_letters(name):
    fields.faults.append(f'the name {name!a} has no letter in it')
  if fields.faults:
    return Label(''), fields.faults
  fields = Fields({'id': name.strip(), **row})
  return read_label(fields), fields.faults


def add_new_labels(space: LabelSpace, labels: Sequence[Label]) -> LabelSpace:
  """A label space with labels that were added after training.

  They stand, in the given order, after all labels that the model scores, with
  training counts of 0. Gold outside the space, which nothing scores, stays
  behind them; where a new label is one of those it is not outside any more.

  Args:
    space: a run's labels.
    labels: those to add.

  Raises:
    DataError: no label, a name without a letter, an id that comes twice or that
      the space scores already.
  """
  scored, new = _scored(space), Texts.of(label.id for label in labels)
  if not new:
    raise DataError('no new label was given')
  known = scored.row_of.find(new) != PAD
  known[new.row_of.repeated()] = True
  if known.any():
    had = (ascii(new[row]) for row in np.flatnonzero(known))
    raise DataError(f'new labels must have ids of their own: {", ".join(had)}')
  if bare := [label.id for label in labels if not has_letters(label.name)]:
    raise DataError(
      f'new labels need names of words: {", ".join(map(ascii, bare))}'
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


def _scored(space: LabelSpace) -> Texts:
  """Ids of all labels but those outside."""
  return space.ids[: space.n_inside]
