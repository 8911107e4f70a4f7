"""Makes JAX compute metrics with 64-bit numbers on one device."""

from collections.abc import Iterator
import contextlib
import functools

import jax


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
  """Makes JAX use int64 and float64 on this process's first device.

  The context sets a mesh of one device, because a caller may have set another
  mesh by `jax.set_mesh`. On the caller's mesh, JAX would trace the metrics
  again and run them on every device.
  """
  with jax.enable_x64(True), jax.set_mesh(_mesh()):
    yield
