"""The cost of small programs, counted by hand."""

import jax
from jax import lax
import jax.numpy as jnp

from xjax.plan import program
from xjax.plan.program import ProgramCost

A = jax.ShapeDtypeStruct((64, 32), jnp.float32)
B = jax.ShapeDtypeStruct((32, 16), jnp.float32)
A_BYTES, B_BYTES, AB_BYTES = 64 * 32 * 4, 32 * 16 * 4, 64 * 16 * 4


def program_cost(function, *arguments):
  return program.program_cost(jax.make_jaxpr(function)(*arguments))


def test_a_product():
  found = program_cost(jnp.matmul, A, B)
  operations = 2 * 64 * 32 * 16
  assert found == ProgramCost(
    operations, A_BYTES + B_BYTES + AB_BYTES, AB_BYTES
  )


def test_what_is_fused_is_no_array():
  def fused(a, b):
    return jnp.exp(jnp.tanh(a) + 1) @ b

  found = program_cost(fused, A, B)
  # The product reads one fused array and makes another.
  assert found.held == A_BYTES + AB_BYTES


def test_arrays_that_nothing_reads_any_more_are_not_held():
  def chain(a):
    for _ in range(5):
      a = jnp.sin(a.T @ a) @ a.T
      a = a.T
    return a

  few = program_cost(chain, jax.ShapeDtypeStruct((32, 32), jnp.float32))
  assert few.held <= 3 * 32 * 32 * 4
  assert few.operations == 10 * 2 * 32**3


def test_a_loop_is_its_turns_and_changes_its_carry_in_place():
  def loop(a, b):
    def turn(i, a):
      cut = lax.dynamic_slice_in_dim(a, i * 8, 8)
      return lax.dynamic_update_slice_in_dim(a, (cut @ b) @ b.T, i * 8, 0)

    return lax.fori_loop(0, 8, turn, a + 1)

  found = program_cost(loop, A, B)
  assert found.operations == 8 * 2 * (2 * 8 * 32 * 16)
  # The loop holds the array once, and the small arrays of one turn.
  assert A_BYTES < found.held < 2 * A_BYTES


def test_what_a_branch_needs_is_the_larger_ones():
  def branch(flag, a, b):
    return lax.cond(flag, lambda: a @ b, lambda: (a @ b) @ b.T @ b)

  flag = jax.ShapeDtypeStruct((), bool)
  found = program_cost(branch, flag, A, B)
  assert found.operations == 3 * 2 * 64 * 32 * 16


def test_a_convolution():
  images = jax.ShapeDtypeStruct((4, 10, 8), jnp.float32)
  kernel = jax.ShapeDtypeStruct((3, 8, 5), jnp.float32)

  def convolved(x, k):
    return lax.conv_general_dilated(
      x, k, (1,), 'SAME', dimension_numbers=('NTC', 'TIO', 'NTC')
    )

  assert (
    program_cost(convolved, images, kernel).operations == 2 * 4 * 10 * 5 * 3 * 8
  )


def test_computing_again_holds_less_and_does_more():
  square = jax.ShapeDtypeStruct((64, 64), jnp.float32)

  def layer(x, w):
    return jnp.tanh(jnp.tanh(jnp.tanh(x @ w) @ w) @ w)

  def gradient(wrap):
    def total(weights, x):
      for w in weights:
        x = wrap(layer)(x, w)
      return x.sum()

    return lambda weights, x: jax.grad(total)(weights, x)

  weights = [square] * 8
  usual = program_cost(gradient(lambda f: f), weights, square)
  again = program_cost(gradient(jax.checkpoint), weights, square)
  assert again.held < 0.8 * usual.held
  assert again.operations > 1.2 * usual.operations
