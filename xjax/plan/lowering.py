"""The pass over a one-vs-all head as a program, before there is any array."""

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

from xjax.core.mesh import BATCH, LABEL_MULTIPLE
from xjax.losses.contract import ChunkLoss
from xjax.plan.head_traffic import HeadPass
from xjax.score.heads.contract import ALL_DEVICES, row_spec
from xjax.score.heads.fused import Pace, RowStep, fused_loss
from xjax.score.heads.kahan import LEFT_OUT, PLACE
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.storage import Storage
from xjax.score.heads.streaming import head_loss

_FEATURES = {2: jnp.bfloat16, 4: jnp.float32}


def lowered_pass(
  given: HeadPass,
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
  loss: ChunkLoss,
  platform: str | None = None,
) -> jax.stages.Lowered:
  """The pass on a mesh: the loss, its gradients, and new rows where fused.

  Args:
    given: its sizes; data and label are the mesh's.
    mesh: of devices, or an abstract one, whose program cannot be compiled.
    loss: of a chunk of labels.
    platform: 'tpu', 'cuda' or 'cpu'; None: this process's.
  """
  with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
    graphdef, rows = nnx.split(nnx.eval_shape(lambda: _head(given)))
    arguments = (
      _placed(rows, mesh, row_spec(ALL_DEVICES)),
      _placed(_slots(given), mesh, row_spec(ALL_DEVICES)),
      _placed(_documents(given), mesh, BATCH),
      _placed(_pace(), mesh, P()),
    )
    run = jax.jit(_pass_of(graphdef, given, loss), donate_argnums=(0, 1))
    platforms = None if platform is None else (platform,)
    return run.trace(*arguments).lower(lowering_platforms=platforms)


def _head(given: HeadPass) -> OneVsAll:
  return OneVsAll(
    given.labels,
    given.dim,
    chunk=given.chunk,
    storage=given.storage,
    rngs=nnx.Rngs(0),
  )


def _slots(given: HeadPass) -> dict[str, jax.ShapeDtypeStruct]:
  """What the rule remembers; Adam's slots are not of the pass."""
  if given.rule is None:
    return {}
  slots = jax.eval_shape(lambda: given.rule.slots(given.labels, given.dim))
  if given.storage is Storage.COMPENSATED:
    places = LABEL_MULTIPLE * max(1, given.compensated)
    slots[PLACE] = jax.ShapeDtypeStruct((given.labels,), jnp.int32)
    slots[LEFT_OUT] = jax.ShapeDtypeStruct((places, given.dim), jnp.uint16)
  return slots


def _documents(given: HeadPass) -> tuple[jax.ShapeDtypeStruct, ...]:
  """document_BD, positives_BP and mask_B."""
  count, dtype = given.documents, _FEATURES[given.feature_bytes]
  return (
    jax.ShapeDtypeStruct((count, given.dim), dtype),
    jax.ShapeDtypeStruct((count, given.positives), jnp.int32),
    jax.ShapeDtypeStruct((count,), bool),
  )


def _pace() -> list[jax.ShapeDtypeStruct]:
  """The fields of Pace."""
  dtypes = jnp.float32, jnp.float32, jnp.uint32
  return [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]


def _placed(tree, mesh, spec):
  """Arrays that are to be, with their sharding."""
  sharding = NamedSharding(mesh, spec)
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
  )


def _pass_of(graphdef: nnx.GraphDef, given: HeadPass, loss: ChunkLoss):
  """(rows, slots, documents, pace) -> the loss, gradients and new rows."""

  def by_optimizer(rows, slots, documents, pace):
    del slots, pace

    def total(rows, document_BD):
      return head_loss(
        nnx.merge(graphdef, rows), document_BD, *documents[1:], loss
      )

    return jax.value_and_grad(total, argnums=(0, 1))(rows, documents[0])

  def fused(rows, slots, documents, pace):
    step = RowStep(given.rule, slots, Pace(*pace))

    def total(document_BD):
      return fused_loss(
        nnx.merge(graphdef, rows), document_BD, *documents[1:], loss, step
      )

    return jax.value_and_grad(total, has_aux=True)(documents[0])

  return by_optimizer if given.rule is None else fused
