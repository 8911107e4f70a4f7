"""Computes metrics with 64-bit numbers, in NumPy or in JAX on one device.

Compiling the metrics of a split takes seconds. So a small split is judged by
NumPy, and only a large split by compiled programs.
"""

from collections.abc import Iterator
import contextlib
import functools
import types
from typing import TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array | np.ndarray


def namespace(array: Array) -> types.ModuleType:
  """Returns numpy or jax.numpy, whichever the array belongs to."""
  return array.__array_namespace__()


def real_dtype(xp: types.ModuleType) -> type:
  """Returns float64; float32 for jax.numpy outside `exact`."""
  is_double = xp is np or jax.config.jax_enable_x64
  return np.float64 if is_double else np.float32


@functools.cache
def _mesh() -> jax.sharding.Mesh:
  """Returns a mesh that has only this process's first device."""
  return jax.make_mesh(
    (1,),
    ('metrics',),
    axis_types=(jax.sharding.AxisType.Auto,),
    devices=[jax.local_devices()[0]],
  )


@contextlib.contextmanager
def exact() -> Iterator[None]:
  """Makes JAX use int64, float64 and exact products on the first device.

  A division by 0 gives no warning in NumPy, because it gives none in JAX.
  """
  # A caller may have set another mesh by `jax.set_mesh`. On that mesh, JAX
  # would trace the metrics again and run them on every device.
  with (
    jax.enable_x64(True),
    jax.set_mesh(_mesh()),
    jax.default_matmul_precision('highest'),
    np.errstate(divide='ignore', over='ignore', invalid='ignore'),
  ):
    yield
