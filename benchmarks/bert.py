r"""Times steps of BERT encoders against transformers and the hardware's limit.

  python benchmarks/bert.py --peer_python=PYTHON    (10 minutes, alone, 24 GiB)
  python benchmarks/bert.py --device=cuda --dtype=bfloat16 --batch=32 \
    --rows='base 512 train,base 512 infer' --bound=0.8

PYTHON has torch and transformers (the extra `parity`); the default is this
Python. A training step is forward, backward, clipping and AdamW for all weights
of the encoder and of a dense layer on [CLS] over 4,271 labels. An inference
step ends with the best 50 labels. Weights are random; both sides have the same
sizes and dropout. Each side is a process, and the processes take turns. Our
step is the trainer's step; the peer uses torch's scaled_dot_product_attention,
plain and compiled. The benchmark prints the time of the bare matrix products of
a step, then the medians, the share of the bare products in our time, and the
ratio of our time to the faster peer. It exits with 1 if the ratio exceeds the
bound.

On CPUs that are not from Intel, MKL's products may take twice the time of those
of oneDNN or XLA. --frozen makes the compiled peer use oneDNN for inference, by
an option of inductor that torch calls experimental. Then a step of either side
takes little more than the bare products, so the ratio cannot be far below 1.
"""

from collections.abc import Callable
import json
import sys

from absl import app, flags
from accelerator_steps import bert_architecture
from flax import nnx
import jax
from jax import lax
import jax.numpy as jnp
from measurement import HERE, Side, seconds_of, use_cores
import numpy as np

from xjax.core.mesh import make_mesh, put_batch
from xjax.core.mesh_config import MeshConfig
from xjax.losses.bce import bce
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.text_model import build
from xjax.networks.topk import head_topk
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import make_optimizer
from xjax.train.optimizer_config import AdamW
from xjax.train.state import plan_state
from xjax.train.step import make_train_step

# Both sides keep freed memory, as our mains do (core/allocation.py); this makes
# the peer faster too.
_ENVIRONMENT = {
  'MALLOC_ARENA_MAX': '1',
  'MALLOC_MMAP_MAX_': '0',
  'MALLOC_TOP_PAD_': str(64 << 20),
  'MALLOC_TRIM_THRESHOLD_': '-1',
  'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
}
SIZES = {
  # Features, layers, heads, inner features.
  'models': {'minilm': (384, 6, 12, 1536), 'base': (768, 12, 12, 3072)},
  'vocab': 30_522,
  'labels': 4271,
  'positives': 5,
  'learning_rate': 5e-5,
  'threads': 2,
}
ROWS = [
  f'{model} {tokens} {kind}'
  for model in SIZES['models']
  for tokens in (128, 512)
  for kind in ('train', 'infer')
]

_PEER = flags.DEFINE_string(
  'peer_python', sys.executable, 'Python that has torch and transformers.'
)
_ROWS = flags.DEFINE_list('rows', ROWS, 'Rows: MODEL TOKENS train|infer, ...')
_COMPILED = flags.DEFINE_bool('compiled', True, 'Run torch.compile too.')
_FROZEN = flags.DEFINE_bool(
  'frozen', False, 'Freeze the weights of the compiled peer for inference.'
)
_TURNS = flags.DEFINE_integer('turns', 5, 'Number of turns per side.', 1)
_STEPS = flags.DEFINE_integer('steps', 1, 'Number of steps per turn.', 1)
_BATCH = flags.DEFINE_integer('batch', 8, 'Number of documents per step.', 1)
_BOUND = flags.DEFINE_float('bound', 0.75, 'Bound of the ratios.')
_DEVICE = flags.DEFINE_enum(
  'device', 'cpu', ['cpu', 'cuda'], 'Device of both sides.'
)
_DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  ['float32', 'bfloat16'],
  'Dtype of products; weights are float32.',
)
_DROPOUT = flags.DEFINE_float('dropout', 0.1, "Dropout of layers' outputs.")
_ATTENTION_DROPOUT = flags.DEFINE_float(
  'attention_dropout', 0.1, 'Dropout of attention weights.'
)
_SIDE = flags.DEFINE_bool(
  'side', False, 'Run only our side, which answers lines of standard input.'
)


def main(argv: list[str]) -> None:
  """Starts all sides and lets them take turns."""
  if _DEVICE.value == 'cpu':
    use_cores(SIZES['threads'])
  if _SIDE.value:
    serve()
    return
  ours = start([sys.executable, __file__, '--side', *sys.argv[1:]])
  peers = {'eager': peer(compiled=False)}
  if _COMPILED.value:
    peers['compiled'] = peer(compiled=True)
  sides = {'ours': ours, **peers}
  missed = 0
  for row in _ROWS.value:
    for process in peers.values():
      process.ask('step', row, 0)  # waits until the process is idle
    limit = ours.ask('limit', row, 1)[0]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(1 + _TURNS.value):
      for side, process in sides.items():
        of_turn = process.ask('step', row, _STEPS.value)
        seconds[side] += of_turn if turn else []  # the first turn compiles
    missed += report(row, limit, seconds)
  sys.exit(int(missed > 0))


def peer(compiled: bool) -> Side:
  """Starts a process of the peer."""
  sizes = SIZES | {
    'batch': _BATCH.value,
    'dropout': _DROPOUT.value,
    'attention_dropout': _ATTENTION_DROPOUT.value,
    'device': _DEVICE.value,
    'dtype': _DTYPE.value,
    'compiled': compiled,
    'frozen': _FROZEN.value,
  }
  return start([_PEER.value, HERE / 'bert_peer.py', json.dumps(sizes)])


def start(command: list) -> Side:
  """Starts a side, which returns the seconds of steps; [] if it cannot run."""
  return Side(command, _ENVIRONMENT | {'JAX_PLATFORMS': _DEVICE.value})


def report(row: str, limit: float, seconds: dict[str, list[float]]) -> int:
  """Prints the comparison of a row; returns 1 if it misses the bound."""
  median = {side: float(np.median(t)) for side, t in seconds.items() if t}
  ours = median['ours']
  ratio = ours / min(median[side] for side in median if side != 'ours')
  verdict = 'ok' if ratio <= _BOUND.value else 'MISSED'
  print(
    f'{row:17} products {limit:8.4f} s'
    + ''.join(f', {side} {time_:8.4f}' for side, time_ in median.items())
    + f'; share of the products {limit / ours:.2f}, ratio {ratio:.2f} '
    f'(bound {_BOUND.value}: {verdict})',
    flush=True,
  )
  return int(verdict == 'MISSED')


def serve() -> None:
  """Answers lines `step|limit MODEL TOKENS train|infer COUNT`."""
  row, step = None, None
  mesh = make_mesh(MeshConfig())
  with jax.set_mesh(mesh):
    for line in sys.stdin:
      what, model, tokens, kind, count = line.split()
      row_of_line = model, int(tokens), kind
      if what == 'limit':
        row, step = None, None  # frees the memory of the last step
        seconds = [limit(*row_of_line)]
      else:
        if row_of_line != row:
          row, step = row_of_line, make_step(*row_of_line, mesh)
        seconds = [seconds_of(step) for _ in range(int(count))]
      print(json.dumps(seconds), flush=True)


def make_step(
  model: str, tokens: int, kind: str, mesh: jax.sharding.Mesh
) -> Callable[[], None]:
  """Returns the trainer's step, or the step of a scorer."""
  train = NeuralTrain(
    learning_rate=SIZES['learning_rate'],
    optimizer=AdamW(weight_decay=0.01),
    clip_norm=1.0,
  )
  optimizer = make_optimizer(train)
  plan = plan_state(lambda rngs: tagger(model, tokens, rngs), optimizer, mesh)
  state = [plan.init(jax.random.key(0))]
  batch = put_batch(documents(tokens), mesh)
  if kind == 'train':
    step = make_train_step(plan, optimizer, bce, mesh)

    def call() -> None:
      state[0], metrics = step(state[0], batch, jax.random.key(1))
      jax.block_until_ready((state, metrics))

    return call

  @jax.jit
  def best(params: nnx.State, batch: TokenBatch) -> tuple[jax.Array, jax.Array]:
    model = nnx.merge(plan.graphdef, params)
    return head_topk(model.head, model.features(batch), 50)

  params = state.pop().params  # frees the optimizer's slots
  return lambda: jax.block_until_ready(best(params, batch))


def tagger(model: str, tokens: int, rngs: nnx.Rngs) -> nnx.Module:
  """Builds the model of a row."""
  dim, layers, heads, inner = SIZES['models'][model]
  encoder = BertConfig(
    dropout=_DROPOUT.value, attention_dropout=_ATTENTION_DROPOUT.value
  )
  pooling = ClsConfig(dropout=_DROPOUT.value)
  return build(
    NeuralModel(NoEmbedding(), encoder, pooling, OneVsAllConfig()),
    vocab_size=SIZES['vocab'],
    n_labels=SIZES['labels'],
    architecture=bert_architecture(
      dim, layers, heads, inner, SIZES['vocab'], tokens
    ),
    dtype=jnp.dtype(_DTYPE.value),
    rngs=rngs,
  )


def documents(tokens: int) -> TokenBatch:
  """Returns a batch without padding."""
  rng, size = np.random.default_rng(0), _BATCH.value
  gold = np.arange(SIZES['positives'], dtype=np.int32)
  return TokenBatch(
    tokens_BT=rng.integers(1, SIZES['vocab'], (size, tokens)).astype(np.int32),
    lengths_B=np.full(size, tokens, np.int32),
    positives_BP=np.tile(gold, (size, 1)),
    mask_B=np.ones(size, bool),
    doc_B=np.arange(size, dtype=np.int32),
  )


def limit(model: str, tokens: int, kind: str) -> float:
  """Returns the seconds of the matrix products that a step must compute."""
  dim, layers, heads, inner = SIZES['models'][model]
  rows = _BATCH.value * tokens
  of_layer = [(rows, dim, 3 * dim), (rows, dim, dim)]
  of_layer += [(rows, dim, inner), (rows, inner, dim)]
  seconds = sum(products((), *sizes, kind) for sizes in of_layer)
  # On CPUs, attention heads are multiplied one by one to stay in the cache.
  turns = heads if _DEVICE.value == 'cpu' else 1
  stack = (_BATCH.value, heads // turns)
  size = dim // heads
  for sizes in ((tokens, size, tokens), (tokens, tokens, size)):
    seconds += turns * products(stack, *sizes, kind)
  head = products((), _BATCH.value, dim, SIZES['labels'], kind)
  return layers * seconds + head


def products(
  stack: tuple[int, ...], rows: int, inner: int, columns: int, kind: str
) -> float:
  """Returns the seconds of a stack of products; for train, with gradients."""
  sizes = [(rows, inner, columns)]
  if kind == 'train':
    sizes += [(rows, columns, inner), (inner, rows, columns)]
  return sum(
    best_of(
      jnp.ones((*stack, n, k), _DTYPE.value),
      jnp.ones((*stack, k, m), _DTYPE.value),
    )
    for n, k, m in sizes
  )


def best_of(a: jax.Array, b: jax.Array) -> float:
  """Returns the seconds of a product, from many that reuse the same memory."""

  @jax.jit
  def repeated(count: int, a: jax.Array, b: jax.Array) -> jax.Array:
    def step(_: int, carried: tuple) -> tuple[jax.Array, jax.Array]:
      a, out = carried
      # Each step reads the previous result, so that XLA cannot skip a step.
      first = (0,) * a.ndim
      return a.at[first].add(0 * out[first]), a @ b

    return lax.fori_loop(0, count, step, (a, a @ b))[1]

  def seconds(count: int) -> float:
    calls = [lambda: jax.block_until_ready(repeated(count, a, b))] * 3
    return min(map(seconds_of, calls))

  seconds(1)
  count = 2 + int(0.2 / seconds(1))
  return (seconds(1 + count) - seconds(1)) / count


if __name__ == '__main__':
  app.run(main)
