"""Defines the checks of accelerator.py: what is computed from which inputs."""

from collections.abc import Callable
import functools

from accelerator_compare import (
  BFLOAT16,
  FLOAT32,
  SIZES,
  Arrays,
  Check,
  one_device,
)
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.mesh import padded_labels, put_batch
from xjax.core.types import Ragged, ScoreKind
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.losses.bce import BCEConfig, bce
from xjax.losses.focal import FocalConfig
from xjax.losses.softmax import SoftmaxConfig
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.attention import self_attention
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.architecture import Activation, BertArchitecture
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.kahan import LEFT_OUT, kahan_slots
from xjax.networks.rows.storage import Storage, decode_weights
from xjax.networks.rows.update import FusedAdagrad, FusedAdam, FusedSGD
from xjax.networks.text_model import TextModelConfig, build
from xjax.networks.topk import head_topk
from xjax.train.parameters import by_path, from_paths

K = 10
RULES = {
  'SGD': FusedSGD(momentum=0.9),
  'Adagrad': FusedAdagrad(),
  'Adam': FusedAdam(),
}
ROWS = [(storage, 'SGD') for storage in Storage]
ROWS += [(Storage.FLOAT32, 'Adam'), (Storage.BFLOAT16, 'Adagrad')]


def checks() -> list[Check]:
  """Returns all checks."""
  # Sums in another order change the last bits of float32, and bfloat16 has 8
  # bits: its errors are about a thousandth in a product, and more in a gradient
  # through two layers.
  networks = {FLOAT32: 1e-4, BFLOAT16: 0.05}
  rows = {FLOAT32: 1e-3, BFLOAT16: 1e-2}
  all_checks = [
    Check('BERT', _network_inputs(_bert), _network(_bert), networks),
    Check('BiGRU-LWAN', _network_inputs(_lwan), _network(_lwan), networks),
    *(
      Check(
        f'{name} attention',
        functools.partial(_attention_inputs, packed),
        _attention,
        {FLOAT32: 1e-5, BFLOAT16: 0.02},
      )
      for name, packed in (('padded', False), ('packed', True))
    ),
    *(
      Check(
        f'loss {kind.__name__.removesuffix("Config")}',
        _head_inputs,
        functools.partial(_loss, kind),
        {FLOAT32: 1e-5, BFLOAT16: 0.02},
      )
      for kind in (BCEConfig, FocalConfig, SoftmaxConfig, SquaredHingeConfig)
    ),
  ]
  for storage, rule in ROWS:
    name = f'rows {storage.name}, {rule}'
    run = functools.partial(_rows, storage, rule)
    inputs = functools.partial(_row_inputs, storage)
    all_checks.append(Check(name, inputs, run, rows, each=True))
  exact = {FLOAT32: 0.0, BFLOAT16: 0.0}
  all_checks.append(Check('top-k with ties', _topk_inputs, _topk, exact))
  all_checks.append(Check('metrics', _topk_inputs, _metrics, {FLOAT32: 0.0}))
  return all_checks


def _bert(sizes: dict[str, int], dtype: str, rngs: nnx.Rngs) -> nnx.Module:
  architecture = BertArchitecture(
    vocab_size=sizes['words'],
    dim=sizes['dim'],
    layers=2,
    heads=sizes['heads'],
    inner=2 * sizes['dim'],
    positions=sizes['tokens'],
    token_types=2,
    activation=Activation.GELU,
    norm_eps=1e-12,
    pad_id=0,
    position_offset=0,
  )
  encoder = BertConfig(dropout=0.0, attention_dropout=0.0)
  config = TextModelConfig(
    NoEmbedding(), encoder, ClsConfig(dropout=0.0), OneVsAllConfig()
  )
  return _built(config, sizes, dtype, rngs, architecture)


def _lwan(sizes: dict[str, int], dtype: str, rngs: nnx.Rngs) -> nnx.Module:
  config = TextModelConfig()
  config.embedding.dim = config.encoder.units = sizes['dim'] // 2
  return _built(config, sizes, dtype, rngs)


def _built(config, sizes, dtype, rngs, architecture=None) -> nnx.Module:
  return build(
    config,
    vocab_size=sizes['words'],
    n_labels=sizes['labels'],
    architecture=architecture,
    dtype=jnp.dtype(dtype),
    rngs=rngs,
  )


Network = Callable[[dict[str, int], str, nnx.Rngs], nnx.Module]


def _network_inputs(network: Network) -> Callable[[dict[str, int]], Arrays]:
  """Returns what draws a batch, and the weights of a network."""

  def inputs(sizes: dict[str, int]) -> Arrays:
    rng, shape = np.random.default_rng(0), (sizes['documents'], sizes['tokens'])
    with jax.set_mesh(one_device()):
      state = nnx.state(network(sizes, FLOAT32, nnx.Rngs(0)))
      weights = by_path(state)
    lengths_B = rng.integers(2, shape[1], shape[0])
    lengths_B[0] = shape[1]
    tokens_BT = rng.integers(2, sizes['words'], shape)
    tokens_BT[np.arange(shape[1]) >= lengths_B[:, None]] = 0
    return {
      **{f'weights {path}': np.asarray(x) for path, x in weights.items()},
      'tokens': tokens_BT.astype(np.int32),
      'lengths': lengths_B.astype(np.int32),
      'positives': _distinct(rng, shape[0], sizes['labels']),
      **{f'size {name}': np.int64(size) for name, size in sizes.items()},
    }

  return inputs


def _distinct(rng, documents: int, labels: int) -> np.ndarray:
  """Returns four different labels of each document, int32."""
  rows = [rng.permutation(labels)[:4] for _ in range(documents)]
  return np.stack(rows).astype(np.int32)


def _network(network: Network) -> Callable[[Arrays, str], Arrays]:
  """Returns what computes a loss, its gradients and the best labels."""

  def run(inputs: Arrays, dtype: str) -> Arrays:
    sizes = {name: int(inputs[f'size {name}']) for name in SIZES}
    batch = TokenBatch(
      inputs['tokens'],
      inputs['lengths'],
      inputs['positives'],
      np.ones(sizes['documents'], bool),
      np.arange(sizes['documents'], dtype=np.int32),
    )
    abstract = nnx.eval_shape(lambda: network(sizes, dtype, nnx.Rngs(0)))
    graphdef, like = nnx.split(abstract)
    weights = {path: inputs[f'weights {path}'] for path in by_path(like)}
    params = from_paths(like, jax.tree.map(jnp.asarray, weights))

    @jax.jit
    def both(params: nnx.State, batch: TokenBatch) -> tuple:
      def total(params):
        return nnx.merge(graphdef, params).loss(batch, bce)

      model = nnx.merge(graphdef, params)
      _, scores = head_topk(model.head, model.features(batch), K)
      return *jax.value_and_grad(total)(params), scores

    mesh = one_device()
    loss, gradients, scores = both(params, put_batch(batch, mesh))
    # Labels of nearly equal scores may change places, so only the scores count.
    arrays = {f'gradient {p}': x for p, x in by_path(gradients).items()}
    return arrays | {'loss': loss[None], 'scores': scores}

  return run


def _attention_inputs(packed: bool, sizes: dict[str, int]) -> Arrays:
  rng = np.random.default_rng(1)
  shape = sizes['documents'], sizes['tokens']
  lengths_B1 = rng.integers(2, shape[1], (shape[0], 1))
  place_T = np.arange(shape[1])
  segments_BT = (place_T < lengths_B1).astype(np.int32)
  if packed:
    segments_BT *= 1 + (place_T >= lengths_B1 // 2)
  wide = (*shape, 3 * sizes['dim'])
  return {
    'inputs': _rounded(rng.standard_normal(wide)),
    'cotangents': _rounded(rng.standard_normal((*shape, sizes['dim']))),
    'segments': segments_BT if packed else segments_BT.astype(bool),
    'heads': np.int64(sizes['heads']),
  }


def _rounded(x: np.ndarray) -> np.ndarray:
  """Rounds to bfloat16, so that no dtype rounds the inputs."""
  return x.astype(jnp.bfloat16).astype(np.float32)


def _attention(inputs: Arrays, dtype: str) -> Arrays:
  segments_BT, heads = jnp.asarray(inputs['segments']), int(inputs['heads'])
  real_BT1 = segments_BT.astype(bool)[:, :, None]

  @jax.jit
  def run(inputs_BTX, d_BTD):
    out_BTD, pull = jax.vjp(
      lambda x: jnp.where(real_BT1, self_attention(x, segments_BT, heads), 0),
      inputs_BTX,
    )
    return out_BTD, pull(d_BTD)[0]

  arrays = (jnp.asarray(inputs[n], dtype) for n in ('inputs', 'cotangents'))
  out_BTD, d_BTX = run(*arrays)
  results = {'output': out_BTD, 'gradient': d_BTX}
  return {name: x.astype(jnp.float32) for name, x in results.items()}


def _head_inputs(sizes: dict[str, int]) -> Arrays:
  rng, rows = np.random.default_rng(2), padded_labels(sizes['rows'])
  documents, dim = 16 * sizes['documents'], sizes['dim'] // 2
  return {
    'kernel': _rounded(rng.standard_normal((rows, dim)) * dim**-0.5),
    'bias': rng.standard_normal(rows).astype(np.float32),
    'documents': _rounded(rng.standard_normal((documents, dim))),
    # Some rows fill up the head, and belong to no label.
    'labels': np.int64(rows - 5),
    'positives': _distinct(rng, documents, rows - 5),
  }


def _head(inputs: Arrays, storage: Storage) -> nnx.Module:
  """Returns an abstract head with several chunks of rows, one not full."""
  config = OneVsAllConfig(chunk=int(inputs['labels']) // 3 + 7, storage=storage)
  sizes = HeadInputs(inputs['documents'].shape[1], int(inputs['labels']))
  return nnx.eval_shape(lambda: config.build(sizes, nnx.Rngs(0)))


def _filled(head: nnx.Module, inputs: Arrays) -> nnx.State:
  like = nnx.state(head)
  return from_paths(
    like,
    {
      path: jnp.asarray(inputs[path].view(leaf.dtype))
      for path, leaf in by_path(like).items()
    },
  )


def _loss(kind: type, inputs: Arrays, dtype: str) -> Arrays:
  head, loss = _head(inputs, Storage.FLOAT32), kind().build()
  graphdef, mask_B = (
    nnx.graphdef(head),
    jnp.ones(len(inputs['documents']), bool),
  )
  positives_BP = jnp.asarray(inputs['positives'])

  @jax.jit
  def run(document_BD, rows):
    def total(document_BD, rows):
      model = nnx.merge(graphdef, rows)
      return model.loss(document_BD, positives_BP, mask_B, loss)

    return jax.value_and_grad(total, (0, 1))(document_BD, rows)

  document_BD = jnp.asarray(inputs['documents'], dtype)
  total, (d_document_BD, d_rows) = run(document_BD, _filled(head, inputs))
  arrays = {f'gradient {path}': x for path, x in by_path(d_rows).items()}
  arrays['gradient of features'] = d_document_BD.astype(jnp.float32)
  return arrays | {'loss': total[None]}


def _row_inputs(storage: Storage, sizes: dict[str, int]) -> Arrays:
  """Returns the rows of a head in a storage, with the inputs of a loss."""
  inputs = _head_inputs(sizes)
  with jax.set_mesh(one_device()):
    config = OneVsAllConfig(storage=storage)
    shape = HeadInputs(inputs['documents'].shape[1], int(inputs['labels']))
    rows = by_path(nnx.state(config.build(shape, nnx.Rngs(3))))
  # Files of arrays have no bfloat16.
  return inputs | {
    path: np.asarray(x).view(np.uint16 if x.dtype == jnp.bfloat16 else x.dtype)
    for path, x in rows.items()
  }


def _rows(
  storage: Storage, rule_name: str, inputs: Arrays, dtype: str
) -> Arrays:
  """Returns the loss, and the rows after two steps of a rule."""
  head, rule = _head(inputs, storage), RULES[rule_name]
  graphdef, rows = nnx.graphdef(head), _filled(head, inputs)
  documents, dim = inputs['documents'].shape
  slots = dict(rule.slots(len(inputs['bias']), dim))
  if storage is Storage.COMPENSATED:
    slots |= kahan_slots(np.arange(int(inputs['labels'])) % 3 == 0, dim)

  @jax.jit
  def run(document_BD, rows, slots, step):
    # A high rate, so that the rows after a step show the gradient.
    rate = jnp.float32(0.05 if rule_name == 'Adam' else 1.0)
    decay = jnp.float32(0.01)
    update = RowUpdate(
      rule, slots, StepScalars(rate, decay, jnp.uint32(7), step)
    )

    def total(document_BD):
      return fused_loss(
        nnx.merge(graphdef, rows),
        document_BD,
        jnp.asarray(inputs['positives']),
        jnp.ones(documents, bool),
        bce,
        update,
      )

    return jax.value_and_grad(total, has_aux=True)(document_BD)

  document_BD, results = jnp.asarray(inputs['documents'], dtype), {}
  for step in range(2):
    (loss, (rows, slots)), d_document_BD = run(
      document_BD, rows, slots, jnp.int32(step)
    )
    results[f'loss {step}'] = loss[None]
  stored = by_path(rows)
  values_LD = decode_weights(stored, jnp.float32)
  results |= {'rows': values_LD, 'bias': stored['bias']}
  results['gradient of features'] = d_document_BD.astype(jnp.float32)
  if storage is Storage.COMPENSATED:
    errors = jax.lax.bitcast_convert_type(slots.pop(LEFT_OUT), jnp.bfloat16)
    results['rounding errors'] = errors.astype(jnp.float32)
  elif storage is not Storage.FLOAT32:
    results['stored bits'] = jax.lax.bitcast_convert_type(
      stored['kernel'], jnp.dtype(f'uint{8 * storage.bytes}')
    )
  return results | {f'slot {n}': x for n, x in slots.items()}


def _topk_inputs(sizes: dict[str, int]) -> Arrays:
  """Returns small integers, so that scores are exact and often equal."""
  rng, labels, dim = np.random.default_rng(4), sizes['listed'], 16
  documents, rows = 16 * sizes['documents'], padded_labels(labels)
  return {
    'kernel': rng.integers(-1, 2, (rows, dim)).astype(np.float32),
    'bias': np.zeros(rows, np.float32),
    'documents': rng.integers(-1, 2, (documents, dim)).astype(np.float32),
    'labels': np.int64(labels),
    'slice': rng.random(labels) < 0.3,
    'allowed': rng.random((documents, labels)) < 0.5,
    'positives': _distinct(rng, documents, 50),
  }


def _topk(inputs: Arrays, dtype: str) -> Arrays:
  head = _head(inputs, Storage.FLOAT32)
  graphdef, rows = nnx.graphdef(head), _filled(head, inputs)

  @jax.jit
  def run(document_BD, rows):
    return head_topk(
      nnx.merge(graphdef, rows),
      document_BD,
      50,
      slices=[jnp.asarray(inputs['slice'])],
      allowed=jnp.asarray(inputs['allowed']),
    )

  ids, scores = run(jnp.asarray(inputs['documents'], dtype), rows)
  return {'ids': ids, 'scores': scores.astype(jnp.int32)}


def _metrics(inputs: Arrays, dtype: str) -> Arrays:
  """Returns the metrics of a device's lists; they are computed by NumPy."""
  ids = np.asarray(_topk(inputs, dtype)['ids'])[0]
  labels, documents = int(inputs['labels']), len(ids)
  scores = -np.arange(ids.shape[1], dtype=np.float32)
  predictions = Predictions(
    score_kind=ScoreKind.LOGIT,
    n_scored=labels,
    n_train=0,
    doc_ids=[str(i) for i in range(documents)],
    labels=[str(i) for i in range(labels)],
    train_counts=np.ones(labels, np.int32),
    lists={'all': LabelLists(ids, np.tile(scores, (documents, 1)))},
    gold=Ragged.of(inputs['positives']),
  )
  values = judge(predictions)[PROTOCOL]['all']
  numbers = {
    name: x for name, x in values.items() if isinstance(x, int | float)
  }
  return {name: np.float64([x]) for name, x in sorted(numbers.items())}
