"""A step of a one-vs-all head on more devices: work and traffic of each.

  python benchmarks/weak_scaling.py                 (seconds, any CPU)

Compiles the pass over the rows of 1 to 8 fake CPU devices and prints, read from
the compiled programs: operations of a device (matrix products are nearly all)
and the bytes it gives to collectives. Nothing is run. Exits 1 where either
grows by more than 1 % as labels and devices double.
"""

import dataclasses
import sys

from absl import app
import jax
import numpy as np

from xjax.core.mesh import DATA, LABEL
from xjax.losses.bce import bce
from xjax.plan.collectives import bytes_by_kind, compiled_collectives
from xjax.plan.head_traffic import HeadPass
from xjax.plan.lowering import lowered_pass
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import SGD

ROWS = 10752  # of a device: 2.75 million labels on 256
DOCUMENTS = 512
BASE = HeadPass(
  documents=DOCUMENTS,
  positives=64,
  labels=ROWS,
  dim=768,
  data=1,
  label=1,
  # CPUs would gather 2 bytes a feature as 4.
  feature_bytes=4,
  storage=Storage.BFLOAT16,
  rule=SGD(),
  chunk=8 * ROWS,  # one: compilers count the operations of a loop's body once
)
KINDS = ('all-gather', 'reduce-scatter', 'all-reduce')


def main(argv: list[str]) -> None:
  """Prints a table of labels growing and one of documents growing."""
  del argv
  jax.config.update('jax_num_cpu_devices', 8)
  sizes = (1, 2, 4, 8)
  flat = [
    measured(dataclasses.replace(BASE, label=n, labels=ROWS * n)) for n in sizes
  ]
  report('label', flat)
  print()
  labels = 8 * ROWS
  report(
    'data',
    [
      measured(
        dataclasses.replace(
          BASE, data=n, labels=labels, documents=DOCUMENTS * n // 8
        )
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
  count = given.data * given.label
  devices = np.array(jax.devices()[:count]).reshape(given.data, given.label)
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))
  program = lowered_pass(given, mesh, bce).compile()
  return Measured(
    given,
    program.cost_analysis()['flops'],
    bytes_by_kind(compiled_collectives(program.as_text())),
  )


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
