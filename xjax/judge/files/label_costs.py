"""Reads a user's label weights from a file."""

from collections.abc import Mapping
import os
import pathlib
import sys
from typing import Any

import numpy as np

from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, open_text, read_rows


def read_label_costs(
  path: str | os.PathLike, index: Mapping[str, int]
) -> np.ndarray:
  """Reads the weight of each label, float64 [L]; 1 for a label without a line.

  The file has JSON lines {"id", "weight"}, and may be gzipped.
  """
  path = pathlib.Path(path).expanduser()
  faults = Faults(on_error=None)
  weights_L = np.ones(len(index))
  lines: dict[str, int] = {}
  with open_text(path) as file:
    for number, row in read_rows(file, faults, str(path)):
      id_, weight, messages = _read(row)
      if not messages and id_ not in index:
        messages = [f'{id_!a} is not a label of this run']
      elif not messages and id_ in lines:
        messages = [f'label {id_!a} is already on line {lines[id_]}']
      if faults.extend(path, number, messages):
        lines[id_] = number
        weights_L[index[id_]] = weight
  if not lines:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  return weights_L


def _read(row: Mapping[str, Any]) -> tuple[str, float, list[str]]:
  """Returns the id and the weight of a line, and messages about its faults."""
  fields = Fields(row)
  id_, weight = fields.identifier('id'), row.get('weight')
  if type(weight) in (int, float) and 0 <= weight <= sys.float_info.max:
    return id_, float(weight), fields.faults
  fields.faults.append('weight is not a finite number of at least 0')
  return id_, 0.0, fields.faults
