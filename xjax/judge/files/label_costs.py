"""What labels are worth to a user, from a file."""

from collections.abc import Mapping
import os
import pathlib
import sys
from typing import Any

import numpy as np

from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, open_text, parse_rows


def read_label_costs(
  path: str | os.PathLike, index: Mapping[str, int]
) -> np.ndarray:
  """Reads a weight per label; a label that has none there weighs 1.

  Args:
    path: JSON lines {"id", "weight"}, perhaps gzipped.
    index: label id -> index, of L labels.

  Returns:
    float64 [L].

  Raises:
    DataError: the file cannot be read or has faults: no line, an id that is
      unknown or comes twice, a weight that is no number of at least 0.
  """
  path = pathlib.Path(path).expanduser()
  faults = Faults(on_error=None)
  weights_L = np.ones(len(index))
  lines: dict[str, int] = {}
  with open_text(path) as file:
    for number, row in parse_rows(file, str(path), faults):
      id_, weight, whats = _read(row)
      if not whats and id_ not in index:
        whats = [f'{id_!a} is no label of this run']
      elif not whats and id_ in lines:
        whats = [f'label {id_!a} is on line {lines[id_]} already']
      if faults.extend(path, number, whats):
        lines[id_] = number
        weights_L[index[id_]] = weight
  if not lines:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  return weights_L


def _read(row: Mapping[str, Any]) -> tuple[str, float, list[str]]:
  """The fields of a line, and what is wrong with them."""
  fields = Fields(row)
  id_, weight = fields.identifier('id'), row.get('weight')
  if type(weight) in (int, float) and 0 <= weight <= sys.float_info.max:
    return id_, float(weight), fields.faults
  fields.faults.append('weight is no finite number of at least 0')
  return id_, 0.0, fields.faults
