"""Adds labels to a trained model, which scores them by their names."""

from collections.abc import Sequence
import dataclasses
import os
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.core.texts import Texts
from xjax.core.types import PAD
from xjax.data.files.faults import SHOWN, Faults
from xjax.data.files.json_lines import numbered_lines, open_text, read_records
from xjax.data.schema import Label, Labels, LabelSpace, read_label
from xjax.data.text.words import has_letters

# The pattern also matches a list of JSON objects, so that the error can say
# that lines must be objects. No label name matches the pattern.
_JSON = re.compile(rb'\s*(\{|\[\s*([{"]|$))')


def read_new_labels(
  path: str | os.PathLike, space: LabelSpace
) -> tuple[Label, ...]:
  """Reads labels that are to be added to the labels of a run.

  Every line of the file, plain or gzipped, is a name; or every line is a JSON
  object as in labels.jsonl, where only `name` is required, and is the default
  id. A DataError tells of faulty lines, or as add_new_labels does.
  """
  path = os.path.expanduser(path)
  faults = Faults(on_error=None)
  labels = []
  with open_text(path) as file:
    first = next((x for _, x in numbered_lines(file, path) if x.strip()), b'')
    is_json = path.removesuffix('.gz').endswith('.jsonl') or _JSON.match(first)
    file.seek(0)
    plain = '' if is_json else 'name'
    for _, fields in read_records(file, faults, path, plain):
      name = fields.text('name')
      if not fields.faults:
        fields.row.setdefault('id', name.strip())
        labels.append(read_label(fields))
  if not labels:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  try:
    add_new_labels(space, labels)
  except DataError as error:
    raise DataError(f'{path}: {error}') from error
  return tuple(labels)


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
    taken = (ascii(new[row]) for row in np.flatnonzero(is_taken)[:SHOWN])
    raise DataError(
      f'each new label needs an id that no other label has: {", ".join(taken)}'
    )
  if unnamed := [label.id for label in labels if not has_letters(label.name)]:
    raise DataError(
      'new labels need names with letters: '
      + ', '.join(map(ascii, unnamed[:SHOWN]))
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
