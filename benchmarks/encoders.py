"""Times training steps of each encoder against torch and the hardware's limit.

  python benchmarks/encoders.py        (a minute or two, nothing else running)

A step is forward, backward (to the inputs too, as if embeddings were trained)
and Adam. Both sides have the same inputs, sizes and dropout, and two threads.
Each side is a process, and the processes take turns. The benchmark prints the
median steps per second of both and their ratio, and the steps per second that
the bare matrix products would allow. It exits with 1 if a ratio misses its
bound.
"""

from collections.abc import Callable
import json
import sys

from absl import app, flags
from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from measurement import HERE, Side, peer_python, seconds_of, use_cores
import numpy as np
import optax

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.networks.encoders.cnn import CNN, CNNConfig
from xjax.networks.encoders.han import HAN, HANConfig
from xjax.networks.encoders.recurrent_cells import BiGRU, BiGRUConfig

BOUNDS = {'bigru': 1.1, 'cnn': 1.1, 'han': 0.0}
SIZES = {
  'batch': 32,
  'tokens': 256,
  'zones': 4,  # for HAN; the tokens are divided among the zones
  'dim': 200,
  'units': 300,
  'filters': 200,
  'width': 3,
  'dropout': 0.2,
  'learning_rate': 1e-3,
  'threads': 2,
}

_STEPS = flags.DEFINE_integer('steps', 5, 'Number of steps per turn.', 1)
_TURNS = flags.DEFINE_integer('turns', 4, 'Number of turns per side.', 1)
_SIDE = flags.DEFINE_bool(
  'side', False, 'Run only our side, which answers lines of standard input.'
)


def main(argv: list[str]) -> None:
  """Starts both sides and lets them take turns."""
  del argv
  use_cores(SIZES['threads'])
  if _SIDE.value:
    serve()
    return
  peer = [peer_python(), HERE / 'encoders_peer.py', json.dumps(SIZES)]
  ours = [sys.executable, __file__, '--side']
  sides = {'ours': Side(ours), 'torch': Side(peer)}
  missed = 0
  for name, bound in BOUNDS.items():
    limit = sides['ours'].ask('limit', name, 1)[0]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(1 + _TURNS.value):  # the first turn compiles or allocates
      for side, process in sides.items():
        seconds[side].append(process.ask('step', name, _STEPS.value))
    missed += report(name, bound, limit, seconds)
  sys.exit(int(missed > 0))


def report(
  name: str, bound: float, limit: float, seconds: dict[str, list[list[float]]]
) -> int:
  """Prints the comparison of an encoder; returns 1 if it misses its bound."""
  median = {side: np.median(turns[1:]) for side, turns in seconds.items()}
  ratio = median['torch'] / median['ours']
  verdict = f' (bound {bound}: {"ok" if ratio >= bound else "MISSED"})'
  print(
    f'{name:6} ours {1 / median["ours"]:6.2f} steps/s, torch '
    f'{1 / median["torch"]:6.2f}, ratio {ratio:.2f}'
    + (verdict if bound else '')
    + f'; the bare products {1 / limit:.2f} steps/s',
    flush=True,
  )
  return int(ratio < bound)


def serve() -> None:
  """Answers lines `step|limit ENCODER COUNT` with the seconds of each step."""
  steps: dict[str, Callable[[], None]] = {}
  with jax.set_mesh(make_mesh(MeshConfig())):
    for line in sys.stdin:
      what, name, count = line.split()
      if what == 'limit':
        seconds = [limit(name)]
      else:
        if name not in steps:
          steps[name] = make_step(name)
        seconds = [seconds_of(steps[name]) for _ in range(int(count))]
      print(json.dumps(seconds), flush=True)


def make_step(name: str) -> Callable[[], None]:
  """Returns a training step of an encoder."""
  encoder = make_encoder(name)
  graphdef, params = nnx.split(encoder)
  optimizer = optax.adam(SIZES['learning_rate'])
  rng = np.random.default_rng(0)
  tokens, shape = SIZES['tokens'], (SIZES['batch'],)
  if name == 'han':
    tokens, shape = tokens // SIZES['zones'], (*shape, SIZES['zones'])
  x = jnp.asarray(rng.normal(size=(tokens, *shape, SIZES['dim'])), jnp.float32)
  real = jnp.ones((tokens, *shape), bool)

  def loss(params: nnx.State, x: jax.Array, key: jax.Array) -> jax.Array:
    rngs = nnx.Rngs(dropout=key)
    return (nnx.merge(graphdef, params)(x, real, rngs) ** 2).mean()

  @jax.jit
  def step(params: nnx.State, slots: optax.OptState, key: jax.Array) -> tuple:
    gradients, d_x = jax.grad(loss, argnums=(0, 1))(params, x, key)
    updates, slots = optimizer.update(gradients, slots, params)
    return optax.apply_updates(params, updates), slots, d_x

  state = [params, optimizer.init(params)]
  keys = iter(jax.random.split(jax.random.key(0), 10_000))

  def call() -> None:
    *state[:], _ = jax.block_until_ready(step(*state, next(keys)))

  return call


def make_encoder(name: str) -> nnx.Module:
  """Returns an encoder with the sizes of SIZES."""
  dim, units, rate = SIZES['dim'], SIZES['units'], SIZES['dropout']
  rngs = nnx.Rngs(0)
  match name:
    case 'bigru':
      return BiGRU(dim, BiGRUConfig(units, 1, rate), rngs=rngs)
    case 'cnn':
      filters = CNNConfig(SIZES['filters'], SIZES['width'], rate)
      return CNN(dim, filters, rngs=rngs)
  return HAN(dim, HANConfig(units, 1, units, rate), rngs=rngs)


def limit(name: str) -> float:
  """Returns the seconds of the matrix products that a step must compute."""
  dim, units, zones = SIZES['dim'], SIZES['units'], SIZES['zones']
  rows, tokens = SIZES['batch'], SIZES['tokens']
  match name:
    case 'bigru':
      return bigru_limit(tokens, rows, dim, units)
    case 'cnn':
      return products(tokens * rows, SIZES['width'] * dim, SIZES['filters'])
  return (
    bigru_limit(tokens // zones, rows * zones, dim, units)
    + products(tokens * rows, 2 * units, 2 * units)
    + bigru_limit(zones, rows, 2 * units, units)
  )


def bigru_limit(steps: int, rows: int, dim: int, units: int) -> float:
  """Returns the limit of one layer in both directions."""
  inputs = products(steps * rows, dim, 3 * units)
  a, b = (jnp.ones((steps * rows, n * units)) for n in (1, 3))
  recurrent = best_of(lambda a, b: a.T @ b, a, b)
  h, kernel = jnp.ones((rows, units)), jnp.zeros((units, 3 * units))
  recurrent += repeated(
    steps, lambda h, kernel: sum(jnp.split(h @ kernel, 3, 1)), h, kernel
  )
  recurrent += repeated(
    steps, lambda h, kernel: jnp.tile(h, 3) @ kernel, h, kernel.T
  )
  return 2 * (inputs + recurrent)


def repeated(
  steps: int, product: Callable, h: jax.Array, kernel: jax.Array
) -> float:
  """Returns the seconds of `steps` products, each on the previous result."""

  def run(h: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.fori_loop(0, steps, lambda _, h: product(h, kernel), h)

  return best_of(run, h, kernel)


def products(rows: int, inner: int, columns: int) -> float:
  """Returns the seconds of a product and of its two gradient products."""
  a, b, c = (
    jnp.ones(s) for s in ((rows, inner), (inner, columns), (rows, columns))
  )
  return (
    best_of(lambda a, b: a @ b, a, b)
    + best_of(lambda c, b: c @ b.T, c, b)
    + best_of(lambda a, c: a.T @ c, a, c)
  )


def best_of(function: Callable, *args: jax.Array) -> float:
  """Returns the least seconds of several calls, without compilation."""
  compiled = jax.jit(function).lower(*args).compile()
  calls = [lambda: jax.block_until_ready(compiled(*args))] * 6
  return min(map(seconds_of, calls))


if __name__ == '__main__':
  app.run(main)
