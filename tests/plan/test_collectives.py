import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import pytest

from xjax.core.mesh import DATA, LABEL, MeshConfig, make_mesh
from xjax.plan.collectives import (
  Collective,
  bytes_by_kind,
  compiled_collectives,
  lowered_collectives,
)


def program():
  """8 rows over data=2: gathered, summed over label in a loop; then halved."""
  mesh = make_mesh(MeshConfig(2, 4))

  def shard(x_BD):
    all_BD = lax.all_gather(x_BD, DATA, axis=0, tiled=True)

    def body(_, x_BD):
      return lax.psum(x_BD, LABEL) / 4

    return lax.fori_loop(0, 3, body, all_BD)

  def run(x_BD):
    out_BD = jax.shard_map(
      shard, in_specs=P(DATA), out_specs=P(), check_vma=False
    )(x_BD)
    return out_BD.sum() + jnp.sin(x_BD).sum()  # the latter by the partitioner

  x_BD = jax.ShapeDtypeStruct(
    (8, 3), jnp.float32, sharding=NamedSharding(mesh, P(DATA))
  )
  with jax.set_mesh(mesh):
    return jax.jit(run).lower(x_BD)


def test_lowered_and_compiled():
  lowered = program()
  written = [
    Collective('all-gather', ((4, 3),), 48, False),
    Collective('all-reduce', ((8, 3),), 96, True),
  ]
  assert lowered_collectives(lowered) == written
  compiled = compiled_collectives(lowered.compile().as_text())
  inserted = Collective('all-reduce', ((),), 4, False)
  assert sorted(compiled, key=str) == sorted([*written, inserted], key=str)
  assert bytes_by_kind(compiled) == {'all-gather': 48, 'all-reduce': 100}


def line(groups):
  return (
    'ENTRY %main (x: bf16[4,2]) -> bf16[4,2] {\n'
    '  %x = bf16[4,2]{1,0} parameter(0)\n'
    '  %y = (bf16[4,2]{1,0}, pred[3]{0}) fusion(%x), kind=kLoop\n'
    f'  ROOT %z = bf16[4,2]{{1,0}} all-reduce-start(%x, %y), {groups}, '
    'to_apply=%add\n}\n'
  )


@pytest.mark.parametrize(
  'groups',
  [
    'channel_id=1, replica_groups={{0,1},{2,3}}',
    'replica_groups=[2,2]<=[4]',
    "replica_groups=mesh['a'=2,'b'=2] {'b'}",
  ],
)
def test_spellings_of_groups(groups):
  (found,) = compiled_collectives(line(groups))
  shapes = ((4, 2), (4, 2), (3,))
  assert found == Collective('all-reduce', shapes, 16 + 16 + 3, False)


@pytest.mark.parametrize(
  'groups', ['replica_groups={{0},{1}}', "replica_groups=mesh['a'=1] {'a'}"]
)
def test_a_device_alone_sends_nothing(groups):
  assert compiled_collectives(line(groups)) == []


def test_unknown_groups_are_refused():
  with pytest.raises(ValueError, match='unknown groups'):
    compiled_collectives(line('replica_groups=all'))
