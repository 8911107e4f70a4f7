"""A step of a one-vs-all head on more devices: work and traffic of each.

  python benchmarks/weak_scaling.py                 (seconds, any CPU)

Compiles the pass over the rows of 1 to 8 fake CPU devices and prints, read from
the compiled programs: operations of a device (matrix products are nearly all)
and the bytes it gives to collectives. Nothing is run. Exits 1 where either
grows by more than 1 % as labels and devices double.
"""

import dataclasses
import math
import re
import sys

from absl import app
from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

from xjax.core.mesh import BATCH, DATA, LABEL
from xjax.losses.bce import bce
from xjax.score.heads.contract import ALL_DEVICES, row_spec
from xjax.score.heads.fused import Pace, RowStep, fused_loss
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import SGD

ROWS = 10752  # of a device: 2.75 million labels on 256
DOCUMENTS = 512


@dataclasses.dataclass(frozen=True)
class HeadPass:
  """The pass of a batch over all label rows, BF16, and the step of them."""

  documents: int = DOCUMENTS  # of the whole batch
  labels: int = ROWS
  data: int = 1  # devices along each axis of the mesh
  label: int = 1
  positives: int = 64
  dim: int = 768
  chunk: int = 8 * ROWS  # one: compilers count a loop's operations once


KINDS = ('all-gather', 'reduce-scatter', 'all-reduce')


def main(argv: list[str]) -> None:
  """Prints a table of labels growing and one of documents growing."""
  del argv
  jax.config.update('jax_num_cpu_devices', 8)
  sizes = (1, 2, 4, 8)
  flat = [measured(HeadPass(label=n, labels=ROWS * n)) for n in sizes]
  report('label', flat)
  print()
  labels = 8 * ROWS
  report(
    'data',
    [
      measured(HeadPass(data=n, labels=labels, documents=DOCUMENTS * n // 8))
      for n in sizes
    ],
  )
  spread = [
    max(x) / min(x)
    for x in zip(*((m.operations, sum(m.sent.values())) for m in flat[1:]))
  ]
  sys.exit(int(max(spread) > 1.01))


@dataclasses.dataclass(frozen=True)
class Measured:
  """What a compiled program says of a device.

  Attributes:
    given: the pass.
    operations: of all kinds.
    sent: operands of collectives in bytes, by kind.
  """

  given: HeadPass
  operations: float
  sent: dict[str, int]


def measured(given: HeadPass) -> Measured:
  """Compiles a pass for its mesh."""
  program = compiled(given)
  return Measured(given, program.cost_analysis()['flops'], sent(program, given))


def compiled(given: HeadPass) -> jax.stages.Compiled:
  """The loss, its gradient by features, and the new rows, on its mesh."""
  count = given.data * given.label
  devices = np.array(jax.devices()[:count]).reshape(given.data, given.label)
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))

  def head() -> OneVsAll:
    sizes, storage = (given.labels, given.dim), Storage.BFLOAT16
    return OneVsAll(
      *sizes, chunk=given.chunk, storage=storage, rngs=nnx.Rngs(0)
    )

  def array(dtype: jnp.dtype, *shape: int, spec: P = BATCH):
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  def run(rows, document_BD, positives_BP, mask_B, pace):
    step = RowStep(SGD(), {}, Pace(*pace))

    def total(document_BD):
      model = nnx.merge(graphdef, rows)
      return fused_loss(model, document_BD, positives_BP, mask_B, bce, step)

    return jax.value_and_grad(total, has_aux=True)(document_BD)

  with jax.set_mesh(mesh):
    graphdef, rows = nnx.split(nnx.eval_shape(head))
    rows = jax.tree.map(
      lambda x: array(x.dtype, *x.shape, spec=row_spec(ALL_DEVICES)), rows
    )
    batch = (
      # CPUs would gather 2 bytes a feature as 4.
      array(jnp.float32, given.documents, given.dim),
      array(jnp.int32, given.documents, given.positives),
      array(bool, given.documents),
    )
    pace = [array(x, spec=P()) for x in (jnp.float32, jnp.float32, jnp.uint32)]
    return jax.jit(run, donate_argnums=0).lower(rows, *batch, pace).compile()


def sent(program: jax.stages.Compiled, given: HeadPass) -> dict[str, int]:
  """Bytes that a device gives to collectives, by kind.

  Programs tell what it gets of each: all devices' parts of what is gathered,
  its own part of what is scattered.
  """
  count, sizes = given.data * given.label, {}
  collective = re.compile(rf' = (\(?[^=]*?) ({"|".join(KINDS)})(?:-start)?\(')
  for line in program.as_text().splitlines():
    match = collective.search(line)
    if match is None or re.search(r'replica_groups=\{\{\d+\}', line):
      continue  # a device alone sends nothing
    scale = {'all-gather': 1 / count, 'reduce-scatter': count}.get(match[2], 1)
    for bits, shape in re.findall(r'[a-z](\d+|red)\[([\d,]*)\]', match[1]):
      size = math.prod(int(n) for n in shape.split(',') if n)
      size *= 1 if bits == 'red' else int(bits) // 8
      sizes[match[2]] = sizes.get(match[2], 0) + int(size * scale)
  return sizes


def report(axis: str, rows: list[Measured]) -> None:
  """Prints a Markdown table."""
  heads = ['mesh (data x label)', 'documents', 'labels', '10^9 operations']
  heads += [f'{kind}, KiB' for kind in KINDS]
  print(f'Along the {axis} axis, of each device:\n')
  print(f'| {" | ".join(heads)} |\n|{"---|" * len(heads)}')
  for row in rows:
    given = row.given
    cells = [
      f'{given.data} x {given.label}',
      f'{given.documents:,}',
      f'{given.labels:,}',
      f'{row.operations / 1e9:.2f}',
      *(f'{row.sent.get(kind, 0) / 1024:,.0f}' for kind in KINDS),
    ]
    print(f'| {" | ".join(cells)} |')


if __name__ == '__main__':
  app.run(main)
