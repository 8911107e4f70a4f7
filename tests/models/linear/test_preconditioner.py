"""The preconditioner divides by I + c X'X of the leading eigenvectors."""

import jax.numpy as jnp
import numpy as np
from scipy import sparse

from xjax.models.linear.descent import make_preconditioner
from xjax.models.linear.tiles import tiles_of

RNG = np.random.default_rng(0)


def preconditioner_of(rows_ND, rank):
  rows = sparse.csr_array(rows_ND.astype(np.float32))
  return make_preconditioner(
    tiles_of(rows), tiles_of(sparse.csr_array(rows.T.tocsr())), rank
  )


def test_of_full_rank_it_inverts():
  rows_ND = RNG.normal(size=(30, 8))
  x_DC = RNG.normal(size=(8, 3)).astype(np.float32)
  curvature_C = np.array([0, 0.1, 2], np.float32)
  found_DC = preconditioner_of(rows_ND, 8).divide(
    jnp.asarray(x_DC), jnp.asarray(curvature_C)
  )
  for at, curvature in enumerate(curvature_C):
    hessian_DD = np.eye(8) + curvature * rows_ND.T @ rows_ND
    np.testing.assert_allclose(
      found_DC[:, at], np.linalg.solve(hessian_DD, x_DC[:, at]), rtol=1e-4
    )


def test_of_lower_rank_it_divides_by_the_leading_eigenvalues():
  values_D = np.array([400.0, 100, 30, 1, 1, 1])
  vectors_DD, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
  rows_ND = np.sqrt(values_D)[:, None] * vectors_DD.T
  preconditioner = preconditioner_of(rows_ND, 3)
  np.testing.assert_allclose(preconditioner.values, [30, 100, 400], rtol=1e-2)
  x_D1 = vectors_DD[:, [0]] + vectors_DD[:, [4]]
  divided_D1 = preconditioner.divide(
    jnp.asarray(x_D1, jnp.float32), jnp.array([0.5])
  )
  np.testing.assert_allclose(
    vectors_DD.T @ divided_D1,
    vectors_DD.T @ x_D1 / np.array([201, 51, 16, 16, 16, 16])[:, None],
    atol=2e-3,
  )
