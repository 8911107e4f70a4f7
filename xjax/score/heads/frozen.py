"""Parameters that training leaves as they begin."""

from flax import nnx


class Frozen(nnx.Param):
  """A parameter without gradient, optimizer slots or updates.

  It is saved, restored and sharded as any other.
  """
