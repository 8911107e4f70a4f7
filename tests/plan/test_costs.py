"""What small programs do, counted by hand."""

import functools

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec as P
import pytest

from xjax.plan.costs import Collective, compiled_collectives, operations

A = jax.ShapeDtypeStruct((64, 32), jnp.float32)
B = jax.ShapeDtypeStruct((32, 16), jnp.float32)
AB, ABBT = 2 * 64 * 32 * 16, 2 * (2 * 64 * 32 * 16)


@pytest.fixture(scope='module')
def n_devices():
  return 1


def loop(a, b):
  return lax.fori_loop(0, 8, lambda i, a: (a @ b) @ b.T, a)


def branch(a, b):
  return lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: (a @ b) @ b.T @ b)


def by_platform(a, b):
  return lax.platform_dependent(
    a, b, cpu=lambda a, b: (a @ b) @ b.T @ b, default=jnp.matmul
  )


def again(a, b):
  layer = jax.checkpoint(lambda a: jnp.tanh(a @ b))
  return jax.grad(lambda a: layer(a).sum())(a)


def convolved(x, kernel):
  return lax.conv_general_dilated(
    x, kernel, (1,), 'SAME', dimension_numbers=('NTC', 'TIO', 'NTC')
  )


def array(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)


@pytest.mark.parametrize(
  ('function', 'arguments', 'data', 'platform', 'expected'),
  [
    (jnp.matmul, (A, B), 1, 'cpu', AB),
    (jnp.matmul, (A, B), 4, 'cpu', AB / 4),
    (loop, (A, B), 1, 'cpu', 8 * ABBT),
    (branch, (A, B), 1, 'cpu', AB + ABBT),
    (by_platform, (A, B), 1, 'cpu', AB + ABBT),
    (by_platform, (A, B), 1, 'tpu', AB),
    # The product, again, and its gradient; not the value, which is not used.
    (again, (A, B), 1, 'cpu', 2 * AB),
    (
      *(convolved, (array(4, 10, 8), array(3, 8, 5)), 1, 'cpu'),
      2 * 4 * 10 * 5 * 3 * 8,
    ),
  ],
)
def test_operations(function, arguments, data, platform, expected):
  jaxpr = jax.make_jaxpr(function)(*arguments)
  assert operations(jaxpr, platform, data) == expected


def test_operations_in_shard_map_are_those_of_a_device():
  mesh = AbstractMesh((4,), ('data',))
  with jax.sharding.use_abstract_mesh(mesh):
    run = jax.shard_map(
      jnp.matmul, in_specs=(P('data'), P()), out_specs=P('data')
    )
    jaxpr = jax.make_jaxpr(run)(A, B)
  assert operations(jaxpr, 'cpu', 4) == AB / 4


# A loop of 7 turns in one of 3, whose conditions say so in two ways: JAX's
# compilers for CPUs and GPUs know the count, the one for TPUs has a limit.
PROGRAM = """HloModule m

%inner (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %sum = f32[8,4]{1,0} all-reduce(%p), replica_groups={{0,1},{2,3}}
}

%lim (p.2: s32[]) -> pred[] {
  %seven = s32[]{:T(128)} constant(7)
  ROOT %lt = pred[] compare(%p.2, %seven), direction=LT
}

%out (p.3: f32[8,4]) -> f32[8,4] {
  %p.3 = f32[8,4]{1,0} parameter(0)
  ROOT %w = f32[8,4]{1,0} while(%p.3), condition=%lim, body=%inner
}

%unknown (p.4: s32[]) -> pred[] {
  ROOT %lt.2 = pred[] compare(%p.4, %p.4), direction=LT
}

%third (p.5: bf16[8]) -> bf16[16] {
  %p.5 = bf16[8]{0} parameter(0)
  ROOT %all = bf16[16] all-gather(%p.5), replica_groups=[2,2]<=[2,2]T(1,0)
}

ENTRY %main (q: f32[8,4], r: bf16[8]) -> f32[8,4] {
  %q = f32[8,4]{1,0} parameter(0)
  %r = bf16[8]{0} parameter(1)
  %w = f32[] while(%q), condition=%lim, body=%out, "known_trip_count":{"n":"3"}
  %w.2 = bf16[16]{0} while(%r), condition=%unknown, body=%third
  %alone = f32[8,4]{1,0} all-reduce(%q), replica_groups={{0},{1},{2},{3}}
  %rs = f32[2,4] reduce-scatter(%q), replica_groups=mesh['a'=2,'b'=2] {'a','b'}
  %1 = bf16[16] all-gather(%r), replica_groups={{0,1},{2,3}}, chain_id="4"
  %2 = bf16[16] all-gather(%r), replica_groups={{0,1},{2,3}}, chain_id="4"
  ROOT %s = (f32[8,4]) send(%q, %t), _xla_megascale_transfer_type="ALL_REDUCE"
}
"""


def test_devices_of_a_mesh_may_have_another_order():
  line = (
    "  %a = f32[4] all-reduce(%q), replica_groups=mesh['x'=2,'y'=4], "
    "device_ids=([4,2]T(1,0)) {'x'}"
  )
  (found,) = compiled_collectives(
    'ENTRY %m (q: f32[4]) -> f32[4] {\n  %q = f32[4]{0} parameter(0)\n' + line,
    dict(enumerate((0, 0, 1, 1, 2, 2, 3, 3))),
  )
  # The groups are 0 and 1, 2 and 3, 4 and 5, 6 and 7.
  assert (found.size, found.nodes) == (2, 1)


def test_collectives_of_a_compiled_program():
  found = compiled_collectives(PROGRAM, dict(enumerate((0, 0, 1, 1))))
  shape, vector = ((8, 4),), ((8,),)
  assert found == [
    Collective('all-reduce', shape, 128, True, size=2, times=21),
    Collective('all-gather', vector, 16, True, 2, nodes=2, unknown=True),
    Collective('reduce-scatter', shape, 128, False, size=4, nodes=2),
    Collective('all-gather', vector, 16, False, size=2),
    Collective('all-reduce', shape, 128, False, size=2, nodes=2),
  ]
  assert compiled_collectives(PROGRAM)[2].nodes == 1


@pytest.mark.parametrize(
  ('kind', 'size', 'nodes', 'near', 'far'),
  [
    ('all-reduce', 4, 1, 2 * 3 / 4, 0),
    # The four devices of each of two hosts first add, and then send a part.
    ('all-reduce', 8, 2, 2 * 3 / 4, 1 / 4),
    ('all-reduce', 2, 2, 0, 1),
    ('all-gather', 4, 1, 3, 0),
    ('reduce-scatter', 4, 1, 3 / 4, 0),
    ('all-to-all', 4, 1, 3 / 4, 0),
    ('collective-permute', 2, 1, 1, 0),
  ],
)
def test_bytes_that_a_device_sends(kind, size, nodes, near, far):
  make = functools.partial(Collective, kind, ((25,),), 100, True)
  found = make(size=size, nodes=nodes, times=3)
  assert (found.near, found.far) == pytest.approx((300 * near, 300 * far))
