"""What all labels' second derivatives have in common, to be divided by.

The Hessian of a label is I + X'AX, A being the curvatures of its documents'
losses. Of X'X the first eigenvalues are many times the others: they are shared
by all labels, and with the label's mean curvature for A they make the Hessian
nearly round (a low-rank preconditioner, as in Frangella, Tropp and Udell 2023;
the eigenvectors by subspace iteration, Halko, Martinsson and Tropp 2011).
"""

import functools

from flax import struct
import jax
import jax.numpy as jnp

from xjax.score.linear.tiles import Tiles, product

RANK = 256


@struct.dataclass
class Preconditioner:
  """The leading eigenvectors of X'X.

  Attributes:
    vectors_DK: float32, orthonormal.
    values_K: their eigenvalues, ascending.
  """

  vectors_DK: jax.Array
  values_K: jax.Array

  def divide(self, x_DC: jax.Array, curvature_C: jax.Array) -> jax.Array:
    """Columns divided by their labels' approximate Hessians.

    Args:
      x_DC: float32, a column for each label.
      curvature_C: the mean over documents of their losses' curvatures.
    """
    # All other eigenvalues are taken to be as the least of these.
    rest_C = 1 + curvature_C * self.values_K[0]
    value_KC = 1 + curvature_C * self.values_K[:, None]
    part_KC = (rest_C / value_KC - 1) * _matmul(self.vectors_DK.T, x_DC)
    return (x_DC + _matmul(self.vectors_DK, part_KC)) / rest_C


@functools.partial(jax.jit, static_argnames='rank')
def make_preconditioner(
  rows: Tiles, columns: Tiles, rank: int = RANK
) -> Preconditioner:
  """Of documents: X and its transpose."""
  n_docs, n_features = rows.n_rows, columns.n_rows
  rank = min(rank, n_docs, n_features)
  start_DK = jax.random.normal(jax.random.key(0), (n_features, rank))
  spanned_DK = product(columns, product(rows, start_DK))
  basis_DK, _ = jnp.linalg.qr(spanned_DK)
  image_NK = product(rows, basis_DK)
  values_K, turn_KK = jnp.linalg.eigh(_matmul(image_NK.T, image_NK))
  return Preconditioner(_matmul(basis_DK, turn_KK), jnp.maximum(values_K, 0))


_matmul = functools.partial(jnp.matmul, precision='highest')
