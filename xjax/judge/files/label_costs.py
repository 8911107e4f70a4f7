"""Reads a user's label weights from a file."""

from collections.abc import Mapping
import os
import pathlib
import sys

import numpy as np

from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import read_records

_LARGEST = sys.float_info.max


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
  for number, fields in read_records(path, faults):
    id_, weight = fields.identifier('id'), fields.row.get('weight')
    if type(weight) not in (int, float) or not 0 <= weight <= _LARGEST:
      fields.faults.append('weight is not a finite number of at least 0')
    elif not fields.faults and id_ not in index:
      fields.faults.append(f'{id_!a} is not a label of this run')
    elif id_ in lines:
      fields.faults.append(f'label {id_!a} is already on line {lines[id_]}')
    if not fields.faults:
      lines[id_] = number
      weights_L[index[id_]] = weight
  if not lines:
    faults.add_empty(path, 'label', 0)
  faults.settle()
  return weights_L
