"""Trains MiniLM on EURLEX57K for accelerator.py, from one file of inputs.

`prepare` reads the corpus and the encoder as the config eurlex57k_minilm does,
and returns token ids, labels, the encoder's weights in bfloat16 and the recipe:
what a machine without the corpus needs. `train` trains by the recipe, and
judges on dev after the last step.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
import json
import time
from typing import Any

from accelerator_compare import one_device
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.mesh import put_batch
from xjax.core.types import Ragged, ScoreKind, offsets_of
from xjax.data.text.words import PAD_ID, UNKNOWN_ID
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.models.config_json import from_json, to_json
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.text_model import (
  TextModelConfig,
  build,
  initial_biases,
  smoothed_priors,
)
from xjax.networks.topk import head_topk
from xjax.train.batches.dense import EvalBatches, TrainBatches
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import label_row_optimizer, make_optimizer
from xjax.train.parameters import PIECE_VECTORS, by_path, replace_values
from xjax.train.state import StatePlan, TrainState, plan_state, with_label_start
from xjax.train.step import make_train_step

K = 50
_AHEAD = 8  # batches that are made before they are needed


def prepare(data: str, labels: str, encoder: str) -> dict[str, np.ndarray]:
  """Returns the inputs of `train`, from a corpus and an encoder's folder."""
  from xjax.configs.eurlex57k_encoders import eurlex57k_minilm
  from xjax.data.documents import Documents
  from xjax.data.load import load_corpus
  from xjax.networks.pretrained.model_folder import ModelFolder
  from xjax.train.batches.inputs import TokenReader

  config = eurlex57k_minilm()
  config.data.dir, config.data.labels = data, labels
  corpus = load_corpus(config.data, config.seed)
  folder = ModelFolder.at(encoder)
  reader = TokenReader(config.data, folder.tokenizer(), 0, K)
  space = corpus.label_space
  arrays = {'counts': space.train_counts[: space.n_trained]}
  for name in ('train', 'dev'):
    split = corpus.split(name)
    tokens = reader.batches(Documents.of_split(split)).tokens
    arrays |= _packed(f'{name} tokens', tokens)
    arrays |= _packed(f'{name} gold', split.gold)
  return packed_inputs(
    arrays,
    folder.parameters(),
    {
      'train': to_json(config.train),
      'buckets': list(config.data.tokens.buckets),
      'seed': config.seed,
      'n_train': space.n_train,
      'padding': folder.tokenizer().pad_id,
      'encoder': dict(folder.config),
    },
  )


def tiny_inputs() -> dict[str, np.ndarray]:
  """Returns inputs of `train` with random documents and a small encoder."""
  from xjax.networks.pretrained.architecture import small_encoder
  from xjax.networks.pretrained.convert import parameter_shapes

  rng, labels, words = np.random.default_rng(0), 30, 100
  sizes = small_encoder(BertConfig.architecture, words, 16)
  shapes = parameter_shapes(architecture_of(sizes, 'the encoder'), False)
  arrays = {'counts': np.full(labels, 3, np.int32)}
  for name, documents in (('train', 48), ('dev', 16)):
    lengths = rng.integers(3, 16, documents)
    tokens = [rng.integers(2, words, n) for n in lengths]
    gold = [[int(ids[0]) % labels] for ids in tokens]
    arrays |= _packed(f'{name} tokens', Ragged.of(tokens))
    arrays |= _packed(f'{name} gold', Ragged.of(gold))
  train = NeuralTrain(batch_size=8, steps=6)
  weights = {
    path: 0.02 * rng.standard_normal(shape).astype(np.float32)
    for path, shape in shapes.items()
  }
  return packed_inputs(
    arrays,
    weights,
    {
      'train': to_json(train),
      'buckets': [8, 16],
      'seed': 0,
      'n_train': 48,
      'padding': 0,
      'encoder': sizes,
    },
  )


def _packed(name: str, rows: Ragged) -> dict[str, np.ndarray]:
  return {
    f'{name} lengths': rows.lengths.astype(np.uint16),
    name: rows.values.astype(np.uint16),
  }


def _rows(inputs: Mapping[str, np.ndarray], name: str) -> Ragged:
  offsets = offsets_of(inputs[f'{name} lengths'].astype(np.int64))
  return Ragged(offsets, inputs[name].astype(np.int32))


def packed_inputs(
  arrays: dict[str, np.ndarray],
  weights: Mapping[str, np.ndarray],
  recipe: dict[str, Any],
) -> dict[str, np.ndarray]:
  """Returns all inputs as arrays, without the pieces that no document has."""
  names = [name for name in arrays if name.endswith('tokens')]
  needed = np.array([PAD_ID, UNKNOWN_ID, recipe['padding']], np.uint16)
  used = np.unique(np.concatenate([needed, *(arrays[n] for n in names)]))
  arrays |= {
    n: np.searchsorted(used, arrays[n]).astype(np.uint16) for n in names
  }
  recipe['padding'] = int(np.searchsorted(used, recipe['padding']))
  recipe['encoder'] = recipe['encoder'] | {'vocab_size': len(used)}
  for path, x in weights.items():
    x = x[used] if path == PIECE_VECTORS else x
    arrays[f'weights {path}'] = x.astype(jnp.bfloat16).view(np.uint16)
  return arrays | {'recipe': np.array(json.dumps(recipe))}


def train(inputs: Mapping[str, np.ndarray], dtype: str) -> dict[str, Any]:
  """Trains by the recipe on one device, and judges on dev.

  The minutes are those from the first array to the last metric, compilation
  included. Unlike a run, no checkpoint is written or chosen: the parameters
  after the last step are judged.
  """
  begin = time.perf_counter()
  recipe = json.loads(str(inputs['recipe']))
  config = from_json(recipe['train'], NeuralTrain)
  counts, mesh = inputs['counts'], one_device()
  plan = _planned(recipe, config, counts, dtype, mesh)
  gold = _rows(inputs, 'train gold')
  batches = TrainBatches(
    _rows(inputs, 'train tokens'),
    gold.keep(gold.values < len(counts)),
    batch_size=config.batch_size,
    buckets=recipe['buckets'],
    padding=recipe['padding'],
    seed=recipe['seed'],
  )
  step = make_train_step(
    plan, make_optimizer(config), config.loss.build(), mesh, config.accumulate
  )
  key, losses, starts = jax.random.key(recipe['seed']), [], []
  with jax.set_mesh(mesh):
    state = _pretrained(plan.init(jax.random.fold_in(key, 2**31)), inputs)
    for number, batch in enumerate(_made_ahead(batches, config.steps)):
      state, metrics = step(state, put_batch(batch, mesh), key)
      if number % 50 == 49 or number == config.steps - 1:
        losses.append(float(metrics.loss))  # waits for the step
        starts.append((number, time.perf_counter()))
    trained = time.perf_counter()
    ids, scores = _ranked(plan, state.averaged_params(), inputs, recipe, mesh)
  metrics = _metrics(ids, scores, inputs, recipe)
  end = time.perf_counter()
  # The first half compiles the programs of all lengths.
  half = starts[len(starts) // 2 :]
  steady = (half[-1][1] - half[0][1]) / max(1, half[-1][0] - half[0][0])
  return {
    'minutes': (end - begin) / 60,
    'training_minutes': (trained - begin) / 60,
    'milliseconds_per_step': 1e3 * steady,
    'steps': config.steps,
    'losses': losses,
    'metrics': {f'dev {name}': metrics[name] for name in ('RP@5', 'nDCG@5')},
  }


def _planned(recipe, config, counts, dtype, mesh) -> StatePlan:
  biases = initial_biases(smoothed_priors(counts, recipe['n_train']))
  model = TextModelConfig(
    NoEmbedding(), BertConfig(), ClsConfig(), OneVsAllConfig()
  )
  architecture = architecture_of(recipe['encoder'], 'the encoder')
  plan = plan_state(
    lambda rngs: build(
      model,
      vocab_size=architecture.vocab_size,
      n_labels=len(counts),
      architecture=architecture,
      dtype=jnp.dtype(dtype),
      rngs=rngs,
    ),
    make_optimizer(config),
    mesh,
    config.freeze,
    config.average,
    label_row_optimizer(config, counts),
  )
  return with_label_start(plan, biases)


def _pretrained(
  state: TrainState, inputs: Mapping[str, np.ndarray]
) -> TrainState:
  params = by_path(state.params)
  weights = {
    name.removeprefix('weights '): inputs[name].view(jnp.bfloat16)
    for name in inputs
    if name.startswith('weights encoder/')
  }
  return state.with_params(
    {
      path: replace_values(params[path], x.astype(np.float32))
      for path, x in weights.items()
    }
  )


def _made_ahead(batches: TrainBatches, steps: int) -> Iterator[TokenBatch]:
  """Yields the first batches, which two threads make before they are needed."""
  with ThreadPoolExecutor(2) as threads:
    waiting = [threads.submit(batches.__getitem__, i) for i in range(_AHEAD)]
    for number in range(steps):
      yield waiting.pop(0).result()
      waiting.append(threads.submit(batches.__getitem__, number + _AHEAD))


def _ranked(plan, params, inputs, recipe, mesh) -> tuple[np.ndarray, ...]:
  """Returns the best labels of dev's documents, and their scores."""
  tokens = _rows(inputs, 'dev tokens')
  batches = EvalBatches(
    tokens,
    Ragged.of([()] * len(tokens)),
    batch_size=min(512, len(tokens)),
    buckets=recipe['buckets'],
    padding=recipe['padding'],
  )
  k = min(K, len(inputs['counts']))

  @jax.jit
  def rank(params: nnx.State, batch: TokenBatch) -> tuple[jax.Array, jax.Array]:
    model = nnx.merge(plan.graphdef, params)
    return head_topk(model.head, model.features(batch), k)

  ids = np.zeros((len(tokens), k), np.int32)
  scores = np.zeros((len(tokens), k), np.float32)
  for batch in batches:
    found = jax.device_get(rank(params, put_batch(batch, mesh)))
    at = batch.doc_B[batch.mask_B]
    ids[at], scores[at] = (x[0][batch.mask_B] for x in found)
  return ids, scores


def _metrics(ids, scores, inputs, recipe) -> dict[str, Any]:
  gold, counts = _rows(inputs, 'dev gold'), inputs['counts']
  # Labels without training documents come after those that are scored.
  labels = max(len(counts), int(gold.values.max()) + 1)
  predictions = Predictions(
    score_kind=ScoreKind.LOGIT,
    n_scored=len(counts),
    n_train=recipe['n_train'],
    doc_ids=[str(i) for i in range(len(ids))],
    labels=[str(i) for i in range(labels)],
    train_counts=np.pad(counts, (0, labels - len(counts))),
    lists={'all': LabelLists(ids, scores)},
    gold=gold,
  )
  return judge(predictions)[PROTOCOL]['all']
