"""Compares what a device computes with values that a CPU has computed.

`prepare` draws the inputs of each check, computes the values in float32 on the
CPU, and returns both as arrays, which are saved and carried to the device.
`compare` computes the values again, on the device and in each dtype, and yields
the differences. A difference of floats is the norm of the difference divided by
the norm of the CPU's values, but at least by a hundredth of the norm of all
arrays of the check. A difference of integers, and of the bits of stored rows,
is the share of entries that are not equal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig

Arrays = dict[str, np.ndarray]
FLOAT32, BFLOAT16 = 'float32', 'bfloat16'
# Sizes of the checks: small enough to carry the arrays along.
SIZES = {
  'documents': 2,
  'tokens': 256,
  'dim': 128,
  'heads': 2,
  'words': 500,
  'labels': 600,
  'rows': 1536,
  'listed': 50_000,
}
TINY = SIZES | {'tokens': 32, 'labels': 40, 'rows': 768, 'listed': 3000}


@dataclasses.dataclass(frozen=True)
class Check:
  """Describes what is computed from some inputs."""

  name: str
  inputs: Callable[[dict[str, int]], Arrays]
  run: Callable[[Arrays, str], Arrays]
  # By dtype, the largest difference that is allowed.
  tolerances: Mapping[str, float]
  # The values of the CPU are computed in each dtype, not only in float32.
  each: bool = False


def prepare(chosen: Sequence[Check], tiny: bool) -> Arrays:
  """Returns the inputs and the values of checks, computed on this device.

  The names are CHECK|inputs|NAME and CHECK|DTYPE|NAME.
  """
  arrays, sizes = {}, TINY if tiny else SIZES
  for check in chosen:
    inputs = check.inputs(sizes)
    parts = {'inputs': inputs}
    for dtype in check.tolerances if check.each else [FLOAT32]:
      parts[dtype] = _on_one_device(check, inputs, dtype)
    for part, values in parts.items():
      for name, x in values.items():
        arrays[f'{check.name}|{part}|{name}'] = x
  return arrays


def compare(
  chosen: Sequence[Check], prepared: Mapping[str, np.ndarray]
) -> Iterator[dict[str, Any]]:
  """Yields the largest difference of each check and dtype.

  A check that raises an error has the error's text instead of a difference.
  """
  parts: dict[tuple[str, str], Arrays] = {}
  for key in prepared:
    check, part, name = key.split('|')
    parts.setdefault((check, part), {})[name] = prepared[key]
  pairs = [(check, dtype) for check in chosen for dtype in check.tolerances]
  # Most of the time is compilation, which is faster side by side.
  with ThreadPoolExecutor() as threads:
    yield from threads.map(functools.partial(_row, parts), pairs)


def _row(
  parts: Mapping[tuple[str, str], Arrays], pair: tuple[Check, str]
) -> dict[str, Any]:
  check, dtype = pair
  tolerance = check.tolerances[dtype]
  row = {'check': check.name, 'dtype': dtype, 'tolerance': tolerance}
  try:
    values = parts[check.name, dtype if check.each else FLOAT32]
    found = _on_one_device(check, parts[check.name, 'inputs'], dtype)
    row['difference'], row['in'] = largest_difference(found, values)
  except Exception as error:  # so that the other checks run
    row['error'] = f'{type(error).__name__}: {str(error)[:500]}'
  # NaN is not within the tolerance.
  return row | {'ok': bool(row.get('difference', np.inf) <= tolerance)}


def largest_difference(found: Arrays, values: Arrays) -> tuple[float, str]:
  """Returns the largest difference between arrays, and the array's name."""
  if found.keys() != values.keys():
    names = ', '.join(sorted(found.keys() ^ values.keys()))
    raise ValueError(f'prepared by other code, which differs in {names}')
  least = 0.01 * np.sqrt(
    sum(
      float(np.square(x, dtype=np.float64).sum())
      for x in values.values()
      if np.issubdtype(x.dtype, np.floating)
    )
  )
  differences = {}
  for name, x in values.items():
    y = found[name]
    if x.shape != y.shape:
      raise ValueError(f'{name} has the shape {y.shape}, not {x.shape}')
    if not np.issubdtype(x.dtype, np.floating):
      differences[name] = float((x != y).mean())
      continue
    x, y = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
    scale = max(np.linalg.norm(x), least, 1e-30)
    differences[name] = float(np.linalg.norm(y - x) / scale)
  worst = max(
    differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf)
  )
  return differences[worst], worst


def _on_one_device(check: Check, inputs: Arrays, dtype: str) -> Arrays:
  with jax.set_mesh(one_device()):
    return jax.tree.map(np.asarray, check.run(inputs, dtype))


def one_device() -> jax.sharding.Mesh:
  """Returns a mesh of the first device."""
  return make_mesh(MeshConfig(), jax.devices()[:1])
