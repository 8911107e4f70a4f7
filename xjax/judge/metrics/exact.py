"""Where metrics are computed: 64 bits, one device."""

from collections.abc import Iterator
import contextlib
import functools

import jax


@functools.cache
def _mesh() -> jax.sharding.Mesh:
  return jax.make_mesh(
    (1,),
    ('metrics',),
    axis_types=(jax.sharding.AxisType.Auto,),
    devices=[jax.local_devices()[0]],
  )


@contextlib.contextmanager
def exact() -> Iterator[None]:
  """int64 counts and float64 sums, on this process's first device.

  Without its own mesh, a metric computed inside `jax.set_mesh` would run on
  every device of that mesh and be traced once more for it.
  """
  with jax.enable_x64(True), jax.set_mesh(_mesh()):
    yield
