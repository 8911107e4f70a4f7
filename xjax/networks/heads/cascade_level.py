"""Defines a level of clusters, a part of the cascade (cascade.py)."""

from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Float64, Int32
import numpy as np

from xjax.core.numerics import product
from xjax.core.types import PAD
from xjax.data.label_trees.levels import LabelLevels
from xjax.networks.encoders.layers import dense, dropout
from xjax.networks.heads.head import Frozen, normal
from xjax.networks.heads.ova import scores


class LevelProjection(nnx.Module):
  """Computes the features that the rows of a level read."""

  def __init__(
    self,
    dim: int,
    joined: int,
    part: str,
    hidden: int,
    rate: float,
    *,
    rngs: nnx.Rngs,
  ):
    # `part` is empty for all joined layers, and `hidden` 0 for no linear layer.
    self.parts = tuple(map(int, joined_layers(part)))
    self.width, self.rate = dim // joined, rate
    inputs = self.width * (len(self.parts) or joined)
    self.dim = hidden or inputs
    glorot = nnx.initializers.glorot_uniform()
    kernel = glorot(rngs.params(), (inputs, hidden)) if hidden else None
    self.layer = nnx.Param(kernel) if hidden else None

  def __call__(
    self, document_BX: Float[Array, 'B X'], rngs: nnx.Rngs | None = None
  ) -> Float[Array, 'B D']:
    """Returns the features of a level, in the dtype of the vectors."""
    x_BD, width = document_BX, self.width
    if self.parts:
      layers = [x_BD[:, i * width : (i + 1) * width] for i in self.parts]
      x_BD = jnp.concatenate(layers, axis=1)
    x_BD = dropout(x_BD, self.rate, rngs)
    if self.layer is None:
      return x_BD
    return dense(x_BD, self.layer[...])


class ClusterLevel(nnx.Module):
  """Holds the rows of a level of clusters, and the nodes below them."""

  def __init__(
    self,
    reading: LevelProjection,
    levels: LabelLevels,
    level: int,
    bias: np.ndarray,
    *,
    rngs: nnx.Rngs,
  ):
    self.reading = reading
    size = levels.sizes[level]
    self.kernel = nnx.Param(draw_rows(rngs, (size, reading.dim)))
    self.bias = nnx.Param(jnp.asarray(bias, jnp.float32))
    self.parent = Frozen(jnp.asarray(levels.parents[level]))  # PAD in level 0
    # [clusters, most], PAD after the nodes below a cluster.
    self.children = Frozen(jnp.asarray(levels.children[level + 1]))

  def logits(self, x_BD: Float[Array, 'B D']) -> Float32[Array, 'B clusters']:
    return scores(x_BD, self.kernel.astype(x_BD.dtype)) + self.bias

  def logits_at(
    self, x_BD: Float[Array, 'B D'], ids_BA: Int32[Array, 'B A']
  ) -> Float32[Array, 'B A']:
    """Returns the logits of some clusters; PAD gets any number."""
    rows_BAD = self.kernel[...][ids_BA].astype(x_BD.dtype)
    logits_BA = product(rows_BAD, x_BD, (2, 1), shared=1)
    return logits_BA + self.bias[...][ids_BA]

  def best(
    self, values: Float32[Array, '*documents nodes']
  ) -> Float32[Array, '*documents clusters']:
    """Returns the largest value of the nodes below each cluster."""
    below = values[..., self.children[...]]  # PAD reads any value
    return jnp.where(self.children[...] == PAD, -jnp.inf, below).max(axis=-1)


def largest(
  keys: Float32[Array, 'B clusters'], k: int
) -> Bool[Array, 'B clusters']:
  """Marks a row's k largest keys, the first ones if equal, and never -inf."""
  if k >= keys.shape[1]:
    return keys > -jnp.inf
  _, at_BK = lax.top_k(keys, k)
  row_B1 = jnp.arange(len(keys))[:, None]
  inside = jnp.zeros(keys.shape, bool).at[row_B1, at_BK].set(True)
  return inside & (keys > -jnp.inf)


def first_biases(
  levels: LabelLevels, bias_L: Float64[np.ndarray, ' L'] | None
) -> list[Float64[np.ndarray, ' nodes']]:
  """Returns the first biases of the nodes of each level, last of the labels."""
  # The probability of a cluster is that of at least one of its labels, as if
  # labels were independent.
  if bias_L is None:
    return [np.zeros(size) for size in levels.sizes]
  biases = [bias_L]
  none = -np.logaddexp(0, bias_L)  # log(1 - probability)
  for level in range(len(levels) - 1, 0, -1):
    parent = levels.parents[level]
    inside, size = parent != PAD, levels.sizes[level - 1]
    none = np.bincount(parent[inside], none[inside], minlength=size)
    biases.append(np.log(np.expm1(np.maximum(-none, 1e-9))))
  return biases[::-1]


def draw_rows(rngs: nnx.Rngs, shape: tuple[int, int]) -> jax.Array:
  """Draws rows of about unit length."""
  return normal(rngs, shape, shape[1] ** -0.5)


def joined_layers(part: str) -> list[str]:
  """Returns the numbers of the joined layers in a text such as '0+1'."""
  return part.split('+') if part else []
