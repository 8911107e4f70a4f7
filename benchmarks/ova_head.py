r"""A step of the one-vs-all head beside bare products, dense ones, and torch.

  python benchmarks/ova_head.py --peer_python=PYTHON    (a quarter of an hour)
  python benchmarks/ova_head.py --device=cuda --peer_python=PYTHON

PYTHON has torch. A step is the loss of all labels (binary cross entropy), the
gradient of the documents' features, that of the rows, and SGD of the rows. The
limit is the three matrix products of it: [B, D] [D, L], [B, L] [L, D] and
[L, B] [B, D], which are timed bare, one after the other, in the same run: as
JAX runs them, with results in new memory, whose pages have to be cleared first,
and in place, where the results of the step before lie, without any such cost.
Next to them: the dense formulation in JAX and in torch (linear, BCE with
logits, SGD), and on GPUs torch's in chunks of labels. Each side has a process
of its own, and they take turns of some steps, as in training one follows the
other; the best step of each counts, which a busy neighbour disturbs least.
Nothing else should run. Memory is the peak beyond the idle process, its
programs compiled. On CPUs it exits 1 where a bound is exceeded:

  time / bare products                 0.85
  time / the better dense formulation  0.5 (D = 64), 0.75 (D = 768)
  memory / weights                     1.15

On GPUs the products are in bfloat16, and the bounds are 1 / 0.45 of the bare
products and 1.1 of the memory of weights, features and one chunk; the largest
heads that fit are run for their speed alone.
"""

from collections.abc import Callable
import ctypes
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from absl import app, flags
from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp

from xjax.core.mesh import MeshConfig, make_mesh
from xjax.core.numerics import full_precision, product
from xjax.losses.bce import bce
from xjax.score.heads.fused import Pace, RowStep, fused_loss
from xjax.score.heads.ova import OneVsAll
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import SGD

HERE = pathlib.Path(__file__).resolve().parent
POSITIVES = 8
STEPS = 3  # of a turn
IN_PLACE = 'products in place'
# Labels, features, documents, storage, labels of a chunk.
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
# Of a GPU: dense formulations of more than this do not fit.
_DENSE_LOGITS = 4e9

_PEER = flags.DEFINE_string('peer_python', '', "With torch; '': none.")
_DEVICE = flags.DEFINE_enum('device', 'cpu', ['cpu', 'cuda'], 'For all sides.')
_ROWS = flags.DEFINE_list('rows', None, 'As in ROWS, with commas.')
_TURNS = flags.DEFINE_integer('turns', 6, 'Turns of each side.', 1)
_SIDE = flags.DEFINE_string('side', '', 'One of ours alone, asked by line.')


def main(argv: list[str]) -> None:
  """Starts the sides of each row and lets them take turns."""
  del argv
  if _DEVICE.value == 'cpu':
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
  if _SIDE.value:
    serve(_SIDE.value, _ROWS.value[0])
    return
  print(
    '| labels | features | documents | storage | side | seconds | of products '
    '| of those in place | of dense | memory | of weights |\n|' + '---|' * 11
  )
  rows = _ROWS.value or ROWS[_DEVICE.value]
  failed = [fault for row in rows for fault in compare(row)]
  sys.exit('\n'.join(failed) if failed else 0)


def compare(row: str) -> list[str]:
  """Prints a row's lines; returns the bounds that it exceeds."""
  labels, dim, documents, storage, chunk = row.split()
  labels, dim, documents = int(labels), int(dim), int(documents)
  sides = {name: Side(name, row) for name in sides_of(labels, documents)}
  times = {name: [] for name in sides}
  for _ in range(_TURNS.value):
    for name, side in sides.items():
      times[name] += [side.ask('step') for _ in range(STEPS)]
  seconds = {name: min(each) for name, each in times.items()}
  memory = {name: side.ask('memory') for name, side in sides.items()}
  for side in sides.values():
    side.close()
  weights = labels * dim * jnp.dtype(Storage(storage).dtype).itemsize
  dense = [s for name, s in seconds.items() if name in ('dense', 'torch')]
  for name in sides:
    best = {'products': seconds['products'], IN_PLACE: seconds[IN_PLACE]}
    best['dense'] = min(dense, default=None)
    of = ' | '.join(
      f'{seconds[name] / s:.2f}' if s else '' for s in best.values()
    )
    print(
      f'| {labels:,} | {dim} | {documents} | {storage} | {name} '
      f'| {seconds[name]:.3f} | {of} | {memory[name] / 2**20:,.0f} MiB '
      f'| {memory[name] / weights:.2f} |',
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
      'of products': (seconds['fused'] / seconds['products'], 1 / 0.45),
      'memory': (memory['fused'] / (weights + features + logits), 1.1),
    }
  else:
    allowed = {
      'of products': (
        seconds['fused'] / seconds['products'],
        BOUNDS['products'],
      ),
      'memory': (memory['fused'] / weights, BOUNDS['memory']),
    }
    if dim in DENSE_BOUNDS:
      of_dense = seconds['fused'] / min(dense)
      allowed['of dense'] = (of_dense, DENSE_BOUNDS[dim])
  return [
    f'{row}: {name} {found:.2f} exceeds {bound:.2f}'
    for name, (found, bound) in allowed.items()
    if found > bound
  ]


def sides_of(labels: int, documents: int) -> list[str]:
  """The sides that a row has on this device."""
  names = ['products', IN_PLACE, 'fused']
  fits = _DEVICE.value == 'cpu' or labels * documents < _DENSE_LOGITS
  if fits:
    names.append('dense')
  if _PEER.value and fits:
    names.append('torch')
    if _DEVICE.value == 'cuda':
      names.append('torch in chunks')
  return names


class Side:
  """A process that answers lines with a number each."""

  def __init__(self, name: str, row: str):
    """Starts it and waits until it has made a first step."""
    command = [sys.executable, __file__, f'--side={name}', f'--rows={row}']
    command.append(f'--device={_DEVICE.value}')
    if name.startswith('torch'):
      *sizes, _, chunk = row.split()
      sizes.append(chunk if name.endswith('chunks') else '0')
      command = [_PEER.value, str(HERE / 'ova_head_peer.py'), _DEVICE.value]
      command += sizes
    self._process = subprocess.Popen(
      command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env={**os.environ, 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
    )
    self.ask('step')

  def ask(self, what: str) -> float:
    """`step`: seconds of one; `memory`: bytes at most, beyond an idle one."""
    self._process.stdin.write(what + '\n')
    self._process.stdin.flush()
    return json.loads(self._process.stdout.readline())

  def close(self) -> None:
    """Ends it."""
    self._process.stdin.close()
    self._process.wait()


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
    # What a library makes or reads when it is first used is not the step's.
    jax.block_until_ready(make(4096, dim, documents)()())
    begin = make(labels, dim, documents)
    idle = resident()
    step = begin()
    for line in sys.stdin:
      if line.strip() == 'memory':
        print(peak() - idle, flush=True)
        continue
      start = time.perf_counter()
      jax.block_until_ready(step())
      print(time.perf_counter() - start, flush=True)


def resident() -> int:
  """Bytes of this process on the device, now; the peak begins anew."""
  if _DEVICE.value == 'cuda':
    return jax.devices()[0].memory_stats()['bytes_in_use']
  ctypes.CDLL(None).malloc_trim(0)  # what compiling has left behind
  pathlib.Path('/proc/self/clear_refs').write_text('5')
  return _status('VmRSS')


def peak() -> int:
  """Bytes of this process on the device at most, since it was idle."""
  if _DEVICE.value == 'cuda':
    return jax.devices()[0].memory_stats()['peak_bytes_in_use']
  return _status('VmHWM')


def _status(name: str) -> int:
  text = pathlib.Path('/proc/self/status').read_text()
  line = next(line for line in text.splitlines() if line.startswith(name))
  return int(line.split()[1]) * 1024


def dtype() -> jnp.dtype:
  """Of products and features."""
  return jnp.dtype('bfloat16' if _DEVICE.value == 'cuda' else 'float32')


def batch(labels: int, dim: int, documents: int) -> tuple[jax.Array, ...]:
  """(document_BD, positives_BP)."""
  key = jax.random.key(1)
  document_BD = jax.random.normal(key, (documents, dim), dtype())
  positives = jax.random.randint(key, (documents, POSITIVES), 0, labels)
  return document_BD / dim**0.5, positives


def fused(
  labels: int, dim: int, documents: int, storage: Storage, chunk: int
) -> Callable[[], Any]:
  """Ours: rows are changed where they lie, chunk by chunk."""

  def head() -> OneVsAll:
    rngs = nnx.Rngs(0)
    return OneVsAll(labels, dim, chunk=chunk, storage=storage, rngs=rngs)

  graphdef, abstract = nnx.split(nnx.eval_shape(head))
  init = jax.jit(lambda: nnx.state(head())).lower().compile()
  document_BD, positives_BP = batch(labels, dim, documents)

  def total(document_BD, params, key):
    pace = Pace(jnp.float32(0.01), jnp.float32(0), key)
    return fused_loss(
      nnx.merge(graphdef, params),
      document_BD,
      positives_BP,
      jnp.ones(documents, bool),
      bce,
      RowStep(SGD(), {}, pace),
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
  """The dense twin: all logits, all gradients, then the change."""
  document_BD, positives_BP = batch(labels, dim, documents)
  init = jax.jit(lambda: jax.random.normal(jax.random.key(0), shape, dtype()))
  shape = labels, dim

  def total(kernel_LD, bias_L, document_BD):
    logits_BL = product(document_BD, kernel_LD, (1, 1)) + bias_L
    gold_BP = jnp.take_along_axis(logits_BL, positives_BP, axis=1)
    return jax.nn.softplus(logits_BL).sum() - gold_BP.sum()

  def change(kernel_LD, bias_L):
    loss, (d_kernel_LD, d_bias_L, d_document_BD) = jax.value_and_grad(
      total, argnums=(0, 1, 2)
    )(kernel_LD, bias_L, document_BD)
    kernel_LD -= 0.01 / documents * d_kernel_LD
    return kernel_LD, bias_L - 0.01 / documents * d_bias_L, loss, d_document_BD

  kernel = jax.ShapeDtypeStruct(shape, dtype())
  bias = jax.ShapeDtypeStruct((labels,), jnp.float32)
  run = jax.jit(change, donate_argnums=(0, 1)).lower(kernel, bias).compile()
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
  """The limit: three products, one after the other; in parts where too large.

  A part has as many labels as dense logits of it fit. In place, results go
  where those of the step before lie.
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
    del out  # whose memory is written to
    contracted = (((axes[0],), (axes[1],)), ((), ()))
    precision = full_precision(a.dtype)
    return lax.dot_general(a, b, contracted, precision=precision)

  run = jax.jit(bare, static_argnums=3, donate_argnums=0, keep_unused=True)

  def begin() -> Callable[[], Any]:
    made = {shape: init(shape) for *shapes, _ in kinds for shape in shapes}
    outs = [init(shape_of(*kind)) if in_place else None for kind in kinds]

    def step():
      for _ in range(-(-labels // part)):
        for i, (a, b, axes) in enumerate(kinds):
          found = run(outs[i], made[a], made[b], axes)
          jax.block_until_ready(found)
          outs[i] = found if in_place else None

    return step

  return begin


def shape_of(
  a: tuple[int, int], b: tuple[int, int], axes: tuple[int, int]
) -> tuple[int, int]:
  """Of the product of two such arrays over these axes."""
  return a[1 - axes[0]], b[1 - axes[1]]


if __name__ == '__main__':
  app.run(main)
