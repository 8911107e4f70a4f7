"""Times a training step of BiGRU-LWAN against LibMultiLabel and the hardware.

  python benchmarks/bigru_lwan.py        (a minute or two, nothing else running)

Both sides have the same batch, sizes, dropout and Adam, and two threads. They
run one after the other, each in its own process. The benchmark prints the
seconds of the bare matrix products of a step, then the median seconds per step
and the peak memory of each side. It exits with 1 if a ratio to the peer misses
its bound.
"""

from collections.abc import Callable
import sys
import time

from absl import app, flags
import jax
import jax.numpy as jnp
from measurement import (
  HERE,
  memory,
  outputs_of,
  peer_python,
  seconds_of,
  use_cores,
)
import numpy as np

from xjax.core.mesh import make_mesh, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.losses.bce import bce
from xjax.models.contract import Config
from xjax.networks.batch import TokenBatch
from xjax.networks.text_model import build
from xjax.train.optimizer import make_optimizer
from xjax.train.state import plan_state
from xjax.train.step import make_train_step

SECONDS_BOUND, MEMORY_BOUND = 0.5, 1.0
SIZES = {
  'batch': 16,
  'length': 500,
  'vocab': 150_000,
  'dim': 200,
  'units': 300,
  'labels': 4271,
  'threads': 2,
}

_STEPS = flags.DEFINE_integer('steps', 8, 'Number of timed steps per side.', 1)
_SIDE = flags.DEFINE_enum(
  'side',
  None,
  ['limit', 'ours'],
  'Run only this side; the arguments are IN.npz OUT.npz.',
)


def main(argv: list[str]) -> None:
  """Runs the three sides and compares."""
  use_cores(SIZES['threads'])
  if _SIDE.value:
    inputs = dict(np.load(argv[1], allow_pickle=False))
    sides = {'limit': limit, 'ours': ours}
    np.savez(argv[2], **sides[_SIDE.value](inputs))
    return
  command = [sys.executable, __file__, '--side']
  commands = {
    'limit': [*command, 'limit'],
    'ours': [*command, 'ours'],
    'LibMultiLabel': [peer_python(), HERE / 'bigru_lwan_peer.py'],
  }
  outputs = {name: run(command) for name, command in commands.items()}
  sys.exit(report(outputs))


def run(command: list) -> dict[str, np.ndarray]:
  """Runs one side in its own process, with the same batch and sizes."""
  config = Config()
  rng = np.random.default_rng(0)
  shape = SIZES['batch'], SIZES['length']
  return outputs_of(
    command,
    **SIZES,
    tokens=rng.integers(2, SIZES['vocab'], shape),
    positives=rng.integers(0, SIZES['labels'], (shape[0], 5)),
    embedding_dropout=config.model.embedding.dropout,
    encoder_dropout=config.model.encoder.dropout,
    learning_rate=config.train.learning_rate,
    steps=_STEPS.value + 2,  # the first two steps compile or allocate
  )


def report(outputs: dict[str, dict[str, np.ndarray]]) -> int:
  """Prints the comparison; returns the exit status."""
  limit = float(outputs['limit']['seconds'])
  print(f'bare matrix products {limit:.2f} s')
  seconds, peak = {}, {}
  for name in ('ours', 'LibMultiLabel'):
    steps = outputs[name]['seconds'][2:]
    seconds[name], peak[name] = np.median(steps), outputs[name]['peak'] / 2**30
    print(
      f'{name:20} {seconds[name]:.2f} s per step ({steps.min():.2f} - '
      f'{steps.max():.2f}; {seconds[name] / limit:.2f} x the products), '
      f'peak {peak[name]:.2f} GiB'
    )
  ratios = [
    ('seconds', seconds['ours'] / seconds['LibMultiLabel'], SECONDS_BOUND),
    ('memory', peak['ours'] / peak['LibMultiLabel'], MEMORY_BOUND),
  ]
  for name, ratio, bound in ratios:
    verdict = 'ok' if ratio <= bound else 'MISSED'
    print(f'{name} ratio {ratio:.2f} (bound {bound}): {verdict}')
  return int(any(ratio > bound for _, ratio, bound in ratios))


def limit(inputs: dict[str, np.ndarray]) -> dict[str, float]:
  """Returns the seconds of the matrix products that a step must compute."""
  tokens = int(inputs['batch'] * inputs['length'])
  dim, units, labels = (int(inputs[n]) for n in ('dim', 'units', 'labels'))
  # (rows, inner size, columns, number) of forward products.
  forward = [
    (tokens, dim, 3 * units, 2),
    (tokens, units, 3 * units, 2),
    (tokens, 2 * units, labels, 2),
  ]
  seconds = 0.0
  for rows, inner, columns, count in forward:
    a, b, c = (
      jnp.ones(s) for s in ((rows, inner), (inner, columns), (rows, columns))
    )
    products = [lambda a, b, c: a @ b, lambda a, b, c: c @ b.T]
    products.append(lambda a, b, c: a.T @ c)
    for product in products:
      seconds += count * best_of(jax.jit(product), a, b, c)
  return {'seconds': seconds}


def best_of(function: Callable, *args: jax.Array) -> float:
  """Returns the least seconds of several calls, without compilation."""

  def call() -> None:
    jax.block_until_ready(function(*args))

  call()
  return min(seconds_of(call) for _ in range(5))


def ours(inputs: dict[str, np.ndarray]) -> dict[str, object]:
  """Times the trainer's step: forward, loss, backward, Adam."""
  config = Config()
  config.model.embedding.dim = int(inputs['dim'])
  config.model.encoder.units = int(inputs['units'])
  mesh = make_mesh(MeshConfig())
  optimizer = make_optimizer(config.train)
  plan = plan_state(
    lambda rngs: build(
      config.model,
      vocab_size=int(inputs['vocab']),
      n_labels=int(inputs['labels']),
      rngs=rngs,
    ),
    optimizer,
    mesh,
  )
  documents, length = inputs['tokens'].shape
  batch = TokenBatch(
    tokens_BT=inputs['tokens'].astype(np.int32),
    lengths_B=np.full(documents, length, np.int32),
    positives_BP=inputs['positives'].astype(np.int32),
    mask_B=np.ones(documents, bool),
    doc_B=np.arange(documents, dtype=np.int32),
  )
  step = make_train_step(plan, optimizer, bce, mesh)
  seconds, losses = [], []
  with jax.set_mesh(mesh):
    state, batch = plan.init(jax.random.key(0)), put_batch(batch, mesh)
    for _ in range(int(inputs['steps'])):
      start = time.perf_counter()
      state, metrics = step(state, batch, jax.random.key(1))
      losses.append(float(metrics.loss))
      seconds.append(time.perf_counter() - start)
  return {'seconds': seconds, 'losses': losses, 'peak': memory('VmHWM')}


if __name__ == '__main__':
  app.run(main)
