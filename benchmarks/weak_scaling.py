"""Computes the work and traffic per device of a one-vs-all step.

  python benchmarks/weak_scaling.py                 (seconds, any CPU)

Compiles the pass over the label rows for 1 to 8 fake CPU devices, but does not
run it. From the compiled programs it prints the operations of a device (nearly
all in matrix products) and the bytes that a device sends to collectives. It
exits with 1 if either grows by more than 1 % when labels and devices double.
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
from xjax.networks.heads.chunks import ALL_DEVICES, row_spec
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAll, OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD

ROWS = 10752  # per device: 2.75 million labels on 256 devices
DOCUMENTS = 512


@dataclasses.dataclass(frozen=True)
class HeadPass:
  """Holds the sizes of a pass over all label rows (BF16), with their update."""

  documents: int = DOCUMENTS  # in the whole batch
  labels: int = ROWS
  data: int = 1  # devices along each axis of the mesh
  label: int = 1
  positives: int = 64
  dim: int = 768
  chunk: int = 8 * ROWS  # one chunk: compilers count a loop's operations once


KINDS = ('all-gather', 'reduce-scatter', 'all-reduce')


def main(argv: list[str]) -> None:
  """Prints a table for more labels and a table for more documents."""
  del argv
  jax.config.update('jax_num_cpu_devices', 8)
  sizes = (1, 2, 4, 8)
  flat = [measure_pass(HeadPass(label=n, labels=ROWS * n)) for n in sizes]
  report('label', flat)
  print()
  labels = 8 * ROWS
  report(
    'data',
    [
      measure_pass(
        HeadPass(data=n, labels=labels, documents=DOCUMENTS * n // 8)
      )
      for n in sizes
    ],
  )
  spread = [
    max(x) / min(x)
    for x in zip(*((m.operations, sum(m.sent.values())) for m in flat[1:]))
  ]
  sys.exit(int(max(spread) > 1.01))


@dataclasses.dataclass(frozen=True)
class Measurement:
  """Holds the figures of a compiled program for one device.

  Attributes:
    sizes: sizes of the pass.
    operations: number of operations of all kinds.
    sent: kind of collective -> bytes of its operands.
  """

  sizes: HeadPass
  operations: float
  sent: dict[str, int]


def measure_pass(sizes: HeadPass) -> Measurement:
  """Compiles a pass for its mesh and returns its figures."""
  program = compile_pass(sizes)
  operations = program.cost_analysis()['flops']
  return Measurement(sizes, operations, count_sent_bytes(program, sizes))


def compile_pass(sizes: HeadPass) -> jax.stages.Compiled:
  """Compiles the loss, its gradient by features, and the update of the rows."""
  count = sizes.data * sizes.label
  devices = np.array(jax.devices()[:count]).reshape(sizes.data, sizes.label)
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))

  def head() -> OneVsAll:
    return OneVsAllConfig(chunk=sizes.chunk, storage=Storage.BFLOAT16).build(
      HeadInputs(sizes.dim, sizes.labels), nnx.Rngs(0)
    )

  def array(dtype: jnp.dtype, *shape: int, spec: P = BATCH):
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  def run(rows, document_BD, positives_BP, mask_B, scalars):
    step = RowUpdate(FusedSGD(), {}, StepScalars(*scalars))

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
      # CPUs would gather features of 2 bytes as 4 bytes.
      array(jnp.float32, sizes.documents, sizes.dim),
      array(jnp.int32, sizes.documents, sizes.positives),
      array(bool, sizes.documents),
    )
    scalars = [
      array(x, spec=P()) for x in (jnp.float32, jnp.float32, jnp.uint32)
    ]
    return jax.jit(run, donate_argnums=0).lower(rows, *batch, scalars).compile()


def _among_single_devices(line: str) -> bool:
  """Returns whether each group of a collective is one device."""
  # JAX 0.12 names the axes of the mesh, older releases list the devices.
  if match := re.search(r'replica_groups=mesh\[(.*?)\] \{(.*?)\}', line):
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
    return {sizes[axis] for axis in re.findall(r'\w+', match[2])} == {'1'}
  return bool(re.search(r'replica_groups=\{\{\d+\}', line))


def count_sent_bytes(
  program: jax.stages.Compiled, sizes: HeadPass
) -> dict[str, int]:
  """Returns kind of collective -> bytes that a device sends.

  A program only has the size of the result on a device: for all-gather the
  parts of all devices, for reduce-scatter the device's own part.
  """
  count, bytes_of = sizes.data * sizes.label, {}
  collective = re.compile(rf' = (\(?[^=]*?) ({"|".join(KINDS)})(?:-start)?\(')
  for line in program.as_text().splitlines():
    match = collective.search(line)
    if match is None or _among_single_devices(line):
      continue
    scale = {'all-gather': 1 / count, 'reduce-scatter': count}.get(match[2], 1)
    for bits, shape in re.findall(r'[a-z](\d+|red)\[([\d,]*)\]', match[1]):
      size = math.prod(int(n) for n in shape.split(',') if n)
      size *= 1 if bits == 'red' else int(bits) // 8
      bytes_of[match[2]] = bytes_of.get(match[2], 0) + int(size * scale)
  return bytes_of


def report(axis: str, rows: list[Measurement]) -> None:
  """Prints a Markdown table."""
  heads = ['mesh (data x label)', 'documents', 'labels', '10^9 operations']
  heads += [f'{kind}, KiB' for kind in KINDS]
  print(f'Along the {axis} axis, per device:\n')
  print(f'| {" | ".join(heads)} |\n|{"---|" * len(heads)}')
  for row in rows:
    cells = [
      f'{row.sizes.data} x {row.sizes.label}',
      f'{row.sizes.documents:,}',
      f'{row.sizes.labels:,}',
      f'{row.operations / 1e9:.2f}',
      *(f'{row.sent.get(kind, 0) / 1024:,.0f}' for kind in KINDS),
    ]
    print(f'| {" | ".join(cells)} |')


if __name__ == '__main__':
  app.run(main)
