r"""Times a step of the one-vs-all head against bare products, dense and torch.

  python benchmarks/ova_head.py --peer_python=PYTHON    (a quarter of an hour)
  python benchmarks/ova_head.py --device=cuda --peer_python=PYTHON

PYTHON has torch. A step is the loss of all labels (binary cross entropy), the
gradients of the documents' features and of the label rows, and SGD of the rows.
The limit is its three matrix products: [B, D] [D, L], [B, L] [L, D] and
[L, B] [B, D]. They are timed one after the other, in two ways: as JAX runs
them, with results in new memory, whose pages must be cleared first; and in
place, with results in the memory of the previous step, without that cost. The
other sides are the dense formulation in JAX and in torch (linear, BCE with
logits, SGD) and, on GPUs, torch's in chunks of labels. Each side is a process,
and the processes take turns of some consecutive steps, as in training. The best
step of each side counts, because other processes disturb it least; nothing else
should run. Memory is the peak above the idle process with compiled programs. On
CPUs the benchmark exits with 1 if a bound is exceeded:

  time / bare products                 0.85
  time / the better dense formulation  0.5 (D = 64), 0.75 (D = 768)
  memory / weights                     1.15

On GPUs the products are in bfloat16, and the bounds are 1 / 0.45 of the time of
the bare products and 1.1 of the memory of weights, features and one chunk. For
the largest heads that fit, there is no dense side to compare with.
"""

from collections.abc import Callable
import ctypes
import functools
import sys
from typing import Any

from absl import app, flags
from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from measurement import HERE, Side, memory, reset_peak, seconds_of, use_cores

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.numerics import full_precision, product
from xjax.losses.bce import bce
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAll, OneVsAllConfig
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD

POSITIVES = 8
STEPS = 3  # per turn
IN_PLACE = 'products in place'
# Labels, features, documents, storage, labels per chunk.
ROWS = {
  'cpu': [
    '655360 64 64 float32 4096',
    '655360 64 256 float32 2048',
    '131072 768 64 float32 1024',
    '131072 768 256 float32 1024',
  ],
  'cuda': [
    '2800000 768 1024 bfloat16 16384',
    '2800000 768 1024 float8 16384',
    '100000000 64 1024 bfloat16 65536',
    '100000000 768 256 float8 65536',
  ],
}
BOUNDS = {'products': 0.85, 'memory': 1.15}
DENSE_BOUNDS = {64: 0.5, 768: 0.75}  # by the number of features
# Dense formulations with more logits do not fit a GPU.
_DENSE_LOGITS = 4e9

_PEER = flags.DEFINE_string(
  'peer_python', '', "Python that has torch; '': torch is not run."
)
_DEVICE = flags.DEFINE_enum(
  'device', 'cpu', ['cpu', 'cuda'], 'Device of all sides.'
)
_ROWS = flags.DEFINE_list(
  'rows', None, 'Rows in the format of ROWS, separated by commas.'
)
_TURNS = flags.DEFINE_integer('turns', 6, 'Number of turns per side.', 1)
_SIDE = flags.DEFINE_string(
  'side', '', 'Run only this side, which answers lines of standard input.'
)


def main(argv: list[str]) -> None:
  """Starts the sides of each row and lets them take turns."""
  del argv
  if _DEVICE.value == 'cpu':
    use_cores(2)
  if _SIDE.value:
    serve(_SIDE.value, _ROWS.value[0])
    return
  print(
    '| labels | features | documents | storage | side | seconds '
    '| / products | / products in place | / dense | memory | / weights |\n|'
    + '---|'
    * 11
  )
  rows = _ROWS.value or ROWS[_DEVICE.value]
  failed = [fault for row in rows for fault in compare(row)]
  sys.exit('\n'.join(failed) if failed else 0)


def compare(row: str) -> list[str]:
  """Prints the lines of a row; returns a message per exceeded bound."""
  labels, dim, documents, storage, chunk = row.split()
  labels, dim, documents = int(labels), int(dim), int(documents)
  sides = {name: start(name, row) for name in sides_of(labels, documents)}
  times = {name: [] for name in sides}
  for _ in range(_TURNS.value):
    for name, side in sides.items():
      times[name] += [side.ask('step') for _ in range(STEPS)]
  seconds = {name: min(steps) for name, steps in times.items()}
  peaks = {name: side.ask('memory') for name, side in sides.items()}
  for side in sides.values():
    side.close()
  weights = labels * dim * jnp.dtype(Storage(storage).dtype).itemsize
  dense = [s for name, s in seconds.items() if name in ('dense', 'torch')]
  for name in sides:
    references = seconds['products'], seconds[IN_PLACE]
    references = *references, min(dense, default=None)
    ratios = ' | '.join(
      f'{seconds[name] / s:.2f}' if s else '' for s in references
    )
    print(
      f'| {labels:,} | {dim} | {documents} | {storage} | {name} '
      f'| {seconds[name]:.3f} | {ratios} | {peaks[name] / 2**20:,.0f} MiB '
      f'| {peaks[name] / weights:.2f} |',
      flush=True,
    )
  if _DEVICE.value == 'cuda':
    flops = 6 * labels * dim * documents
    print(
      f'{documents / seconds["fused"]:,.0f} documents/s, '
      f'{flops / seconds["fused"] / 1e12:,.0f} TFLOP/s of '
      f'{flops / seconds["products"] / 1e12:,.0f} bare',
      flush=True,
    )
    logits = 10 * documents * int(chunk)
    features = 8 * documents * dim
    allowed = {
      'time / products': (seconds['fused'] / seconds['products'], 1 / 0.45),
      'memory': (peaks['fused'] / (weights + features + logits), 1.1),
    }
  else:
    allowed = {
      'time / products': (
        seconds['fused'] / seconds['products'],
        BOUNDS['products'],
      ),
      'memory': (peaks['fused'] / weights, BOUNDS['memory']),
    }
    if dim in DENSE_BOUNDS:
      ratio = seconds['fused'] / min(dense)
      allowed['time / dense'] = (ratio, DENSE_BOUNDS[dim])
  return [
    f'{row}: {name} {ratio:.2f} exceeds {bound:.2f}'
    for name, (ratio, bound) in allowed.items()
    if ratio > bound
  ]


def sides_of(labels: int, documents: int) -> list[str]:
  """Returns the names of the sides that a row has on this device."""
  names = ['products', IN_PLACE, 'fused']
  fits = _DEVICE.value == 'cpu' or labels * documents < _DENSE_LOGITS
  if fits:
    names.append('dense')
  if _PEER.value and fits:
    names.append('torch')
    if _DEVICE.value == 'cuda':
      names.append('torch in chunks')
  return names


def start(name: str, row: str) -> Side:
  """Starts a side, and waits for its first step.

  It answers `step` with the seconds of a step, and `memory` with the peak bytes
  above the idle process.
  """
  command = [sys.executable, __file__, f'--side={name}', f'--rows={row}']
  command.append(f'--device={_DEVICE.value}')
  if name.startswith('torch'):
    *sizes, _, chunk = row.split()
    sizes.append(chunk if name.endswith('chunks') else '0')
    command = [_PEER.value, HERE / 'ova_head_peer.py', _DEVICE.value, *sizes]
  side = Side(command, {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'})
  side.ask('step')
  return side


def serve(name: str, row: str) -> None:
  """Answers lines of standard input."""
  *sizes, storage, chunk = row.split()
  labels, dim, documents = map(int, sizes)
  with jax.set_mesh(make_mesh(MeshConfig())):
    make = {
      'products': functools.partial(products, in_place=False),
      IN_PLACE: functools.partial(products, in_place=True),
      'dense': dense,
      'fused': functools.partial(
        fused, storage=Storage(storage), chunk=int(chunk)
      ),
    }[name]
    # A small first step allocates what libraries need, before memory is read.
    jax.block_until_ready(make(4096, dim, documents)()())
    begin = make(labels, dim, documents)
    idle = resident()
    step = begin()
    for line in sys.stdin:
      if line.strip() == 'memory':
        print(peak() - idle, flush=True)
        continue
      print(seconds_of(lambda: jax.block_until_ready(step())), flush=True)


def resident() -> int:
  """Returns bytes of this process on the device now, and resets the peak."""
  if _DEVICE.value == 'cuda':
    return jax.devices()[0].memory_stats()['bytes_in_use']
  ctypes.CDLL(None).malloc_trim(0)  # releases memory left by compilation
  reset_peak()
  return memory('VmRSS')


def peak() -> int:
  """Returns peak bytes of this process on the device since it was idle."""
  if _DEVICE.value == 'cuda':
    return jax.devices()[0].memory_stats()['peak_bytes_in_use']
  return memory('VmHWM')


def dtype() -> jnp.dtype:
  """Returns the dtype of products and features."""
  return jnp.dtype('bfloat16' if _DEVICE.value == 'cuda' else 'float32')


def batch(labels: int, dim: int, documents: int) -> tuple[jax.Array, ...]:
  """Returns (document_BD, positives_BP)."""
  key = jax.random.key(1)
  document_BD = jax.random.normal(key, (documents, dim), dtype())
  positives = jax.random.randint(key, (documents, POSITIVES), 0, labels)
  return document_BD / dim**0.5, positives


def fused(
  labels: int, dim: int, documents: int, storage: Storage, chunk: int
) -> Callable[[], Any]:
  """Returns our side: it updates rows in place, chunk by chunk."""

  def head() -> OneVsAll:
    rngs = nnx.Rngs(0)
    return OneVsAllConfig(chunk=chunk, storage=storage).build(
      HeadInputs(dim, labels), rngs
    )

  graphdef, abstract = nnx.split(nnx.eval_shape(head))
  init = jax.jit(lambda: nnx.state(head())).lower().compile()
  document_BD, positives_BP = batch(labels, dim, documents)

  def total(document_BD, params, key):
    scalars = StepScalars(jnp.float32(0.01), jnp.float32(0), key)
    return fused_loss(
      nnx.merge(graphdef, params),
      document_BD,
      positives_BP,
      jnp.ones(documents, bool),
      bce,
      RowUpdate(FusedSGD(), {}, scalars),
    )

  run = jax.jit(jax.value_and_grad(total, has_aux=True), donate_argnums=1)
  run = run.lower(document_BD, abstract, jnp.uint32(0)).compile()

  def begin() -> Callable[[], Any]:
    state = {'params': init()}

    def step():
      (loss, (rows, _)), d_document_BD = run(
        document_BD, state['params'], jnp.uint32(0)
      )
      state['params'] = rows
      return loss, d_document_BD, rows

    return step

  return begin


def dense(labels: int, dim: int, documents: int) -> Callable[[], Any]:
  """Returns the dense side: all logits, all gradients, then the update."""
  document_BD, positives_BP = batch(labels, dim, documents)
  init = jax.jit(lambda: jax.random.normal(jax.random.key(0), shape, dtype()))
  shape = labels, dim

  def total(kernel_LD, bias_L, document_BD):
    logits_BL = product(document_BD, kernel_LD, (1, 1)) + bias_L
    gold_BP = jnp.take_along_axis(logits_BL, positives_BP, axis=1)
    return jax.nn.softplus(logits_BL).sum() - gold_BP.sum()

  def update(kernel_LD, bias_L):
    loss, (d_kernel_LD, d_bias_L, d_document_BD) = jax.value_and_grad(
      total, argnums=(0, 1, 2)
    )(kernel_LD, bias_L, document_BD)
    kernel_LD -= 0.01 / documents * d_kernel_LD
    return kernel_LD, bias_L - 0.01 / documents * d_bias_L, loss, d_document_BD

  kernel = jax.ShapeDtypeStruct(shape, dtype())
  bias = jax.ShapeDtypeStruct((labels,), jnp.float32)
  run = jax.jit(update, donate_argnums=(0, 1)).lower(kernel, bias).compile()
  init = init.lower().compile()

  def begin() -> Callable[[], Any]:
    state = [init(), jnp.zeros(labels)]

    def step():
      *state[:], loss, d_document_BD = run(*state)
      return loss, d_document_BD, state[0]

    return step

  return begin


def products(
  labels: int, dim: int, documents: int, in_place: bool
) -> Callable[[], Any]:
  """Returns the limit: three products, one after the other, in parts if large.

  A part has at most as many labels as fit with dense logits. With in_place,
  results are written to the memory of the previous step's results.
  """
  part = labels
  if _DEVICE.value == 'cuda':
    part = min(labels, int(_DENSE_LOGITS / 4 / max(documents, dim)))
  kinds = [
    ((documents, dim), (part, dim), (1, 1)),
    ((documents, part), (part, dim), (1, 0)),
    ((documents, part), (documents, dim), (0, 0)),
  ]
  init = jax.jit(
    lambda shape: jax.random.normal(jax.random.key(0), shape, dtype()),
    static_argnums=0,
  )

  def bare(out, a, b, axes):
    del out  # donated: the result is written to its memory
    contracted = (((axes[0],), (axes[1],)), ((), ()))
    precision = full_precision(a.dtype)
    return lax.dot_general(a, b, contracted, precision=precision)

  run = jax.jit(bare, static_argnums=3, donate_argnums=0, keep_unused=True)

  def begin() -> Callable[[], Any]:
    arrays = {shape: init(shape) for *shapes, _ in kinds for shape in shapes}
    outs = [init(shape_of(*kind)) if in_place else None for kind in kinds]

    def step():
      for _ in range(-(-labels // part)):
        for i, (a, b, axes) in enumerate(kinds):
          result = run(outs[i], arrays[a], arrays[b], axes)
          jax.block_until_ready(result)
          outs[i] = result if in_place else None

    return step

  return begin


def shape_of(
  a: tuple[int, int], b: tuple[int, int], axes: tuple[int, int]
) -> tuple[int, int]:
  """Returns the shape of the product of two such arrays over these axes."""
  return a[1 - axes[0]], b[1 - axes[1]]


if __name__ == '__main__':
  app.run(main)
