"""What every encoder of tokens promises: one battery for all of them."""

from collections.abc import Callable
import dataclasses
import functools
import operator

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.networks import assert_close, mesh_of, on_mesh, products
from xjax.core.errors import ConfigError
from xjax.core.mesh import DATA
from xjax.networks.batch import unpack_documents
from xjax.networks.encoders.bert import Bert, BertConfig, Transformer
from xjax.networks.encoders.cnn import CNN, CNNConfig
from xjax.networks.encoders.encoder import Remat
from xjax.networks.encoders.recurrent_cells import (
  BiGRU,
  BiGRUConfig,
  BiLSTM,
  BiLSTMConfig,
)
from xjax.networks.encoders.xlnet import XLNet, XLNetConfig
from xjax.networks.pretrained.architecture import (
  Activation,
  BertArchitecture,
  XLNetArchitecture,
)

T, B, D, H = 8, 8, 4, 5
LENGTHS = np.array([8, 3, 1, 5, 2, 6, 4, 8])
SIZES = {
  'vocab_size': 50,
  'dim': 16,
  'layers': 2,
  'heads': 4,
  'inner': 24,
  'activation': Activation.GELU,
  'norm_eps': 1e-12,
  'pad_id': 0,
}
BERT = BertArchitecture(**SIZES, positions=14, token_types=2, position_offset=2)


@dataclasses.dataclass(frozen=True)
class Kind:
  module: Callable
  config: Callable
  size: object = D  # of what it reads, or its architecture
  fields: dict = dataclasses.field(default_factory=dict)  # of the config
  products: int | None = None  # in a program of its gradients

  @property
  def reads_ids(self):
    return self.size is not D

  @property
  def close(self):
    return {'atol': 1e-5, 'rtol': 1e-5} if self.reads_ids else {'atol': 1e-6}

  def built(self, **fields):
    """An encoder whose biases are random too; rates are 0 if not given."""
    names = {x.name for x in dataclasses.fields(self.config)}
    rates = dict.fromkeys({'dropout', 'attention_dropout'} & names, 0.0)
    dtype = {'dtype': fields.pop('dtype')} if 'dtype' in fields else {}
    config = self.config(**rates | self.fields | fields)
    encoder = self.module(self.size, config, rngs=nnx.Rngs(0), **dtype)
    graphdef, params = nnx.split(encoder)
    rng = np.random.default_rng(1)
    params = jax.tree.map(
      lambda x: x + jnp.asarray(rng.normal(0, 0.2, x.shape), x.dtype), params
    )
    return nnx.merge(graphdef, params)

  def documents(self, width=T, noise=0):
    """Inputs [T, B] or [T, B, D], with noise at padding, and what is real."""
    real_TB = np.arange(width)[:, None] < LENGTHS
    rng = np.random.default_rng(0)
    if self.reads_ids:
      inputs = rng.integers(5, 50, (T, B)).astype(np.int32)
    else:
      inputs = rng.normal(size=(T, B, D)).astype(np.float32)
    more = [(0, width - T)] + [(0, 0)] * (inputs.ndim - 1)
    inputs = np.pad(inputs, more)
    inputs[~real_TB] = noise
    return jnp.asarray(inputs), jnp.asarray(real_TB)


KINDS = {
  'bigru': Kind(BiGRU, BiGRUConfig, D, {'units': H, 'layers': 1}, 16),
  'bilstm of two layers': Kind(
    BiLSTM, BiLSTMConfig, D, {'units': H, 'layers': 2}
  ),
  'cnn': Kind(CNN, CNNConfig, D, {'filters': H, 'width': 4}, 3),
  'bert': Kind(Bert, BertConfig, BERT),
  'xlnet': Kind(XLNet, XLNetConfig, XLNetArchitecture(**SIZES)),
}
PRETRAINED = [name for name in KINDS if KINDS[name].reads_ids]


@pytest.fixture(autouse=True)
def on_one_device():
  with on_mesh():
    yield


def compiled(encoder):
  """(inputs, real_TB, key) -> states; one by one, operations take longer."""
  graphdef, params = nnx.split(encoder)

  @jax.jit
  def run(params, inputs, real_TB, key):
    rngs = None if key is None else nnx.Rngs(dropout=key)
    return nnx.merge(graphdef, params)(inputs, real_TB, rngs)

  def states(inputs, real_TB, key=None):
    return np.asarray(run(params, inputs, real_TB, key))

  return states


@functools.cache
def exact_states(name):
  """The states of the documents, and the program that computes them."""
  run = compiled(KINDS[name].built())
  return run(*KINDS[name].documents()), run


@pytest.mark.parametrize('name', KINDS)
def test_neither_padding_nor_other_documents_matter(name):
  kind, (states, run) = KINDS[name], exact_states(name)
  inputs, real_TB = (np.array(x) for x in kind.documents())
  assert (states[~real_TB] == 0).all() and (states[real_TB] != 0).any()
  longer = run(*kind.documents(T + 4, noise=9))
  np.testing.assert_allclose(longer[:T], states, **kind.close)
  assert not longer[T:].any()
  n = LENGTHS[1]
  others = np.roll(np.arange(B), 3)
  others[1] = 1
  alone = run(inputs[:, others], real_TB[:, others])
  np.testing.assert_allclose(alone[:n, 1], states[:n, 1], **kind.close)


@pytest.mark.parametrize(
  ('name', 'part'),
  [*((name, 'dropout') for name in KINDS), ('bert', 'attention_dropout')],
)
def test_dropout_follows_from_the_given_key(name, part):
  kind, encoder = KINDS[name], KINDS[name].built(**{part: 0.5})
  documents, run = kind.documents(), compiled(encoder)
  first, again, other = (
    run(*documents, jax.random.key(seed)) for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(first, again)
  plain, real_TB = exact_states(name)[0], documents[1]
  assert not np.allclose(first, other) and not np.allclose(first, plain)
  if not kind.reads_ids:
    assert (first[real_TB] == 0).any() and not (plain[real_TB] == 0).any()
  kinds = {type(v) for _, v in nnx.iter_graph(encoder)}
  assert nnx.Rngs not in kinds and nnx.RngState not in kinds


@pytest.mark.parametrize('name', KINDS)
def test_bfloat16_is_near(name):
  kind, (exact, run) = KINDS[name], exact_states(name)
  inputs, real_TB = kind.documents()
  if kind.reads_ids:
    near = compiled(kind.built(dtype=jnp.bfloat16))(inputs, real_TB)
    most = 0.1 * np.abs(exact).max()
  else:
    near = run(inputs.astype(jnp.bfloat16), real_TB)
    most = 0.05 * KINDS[name].fields.get('layers', 1)
  assert near.dtype == jnp.bfloat16
  assert np.abs(near.astype(np.float32) - exact).max() < most


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('name', [x for x in KINDS if KINDS[x].products])
def test_float32_products_are_not_rounded(name, dtype):
  kind, (inputs, real_TB) = KINDS[name], KINDS[name].documents()
  graphdef, params = nnx.split(kind.built())

  def total(params, inputs):
    states = nnx.merge(graphdef, params)(inputs, real_TB, None)
    return states.sum().astype(jnp.float32)

  program = jax.grad(total, argnums=(0, 1)), params, inputs.astype(dtype)
  exact = kind.products if dtype == 'float32' else 0
  assert products(*program) == (kind.products, exact)


@pytest.mark.parametrize(
  ('name', 'shape'),
  [('bigru', (2, 4)), ('bilstm of two layers', (8, 1)), ('cnn', (2, 4))],
)
def test_meshes_agree_and_no_device_sees_the_documents_of_others(name, shape):
  kind = KINDS[name]
  inputs, real_TB = (np.asarray(x) for x in kind.documents(noise=9))
  graphdef, params = nnx.split(kind.built())
  params = jax.tree.map(np.asarray, params)

  @jax.jit
  @functools.partial(jax.grad, argnums=(0, 1))
  def gradients(params, inputs, real_TB):
    states = nnx.merge(graphdef, params)(inputs, real_TB, None)
    weights = jax.random.normal(jax.random.key(1), states.shape)
    return (states**2 * weights).sum()

  expected = jax.block_until_ready(gradients(params, inputs, real_TB))
  assert all(np.any(x) for x in jax.tree.leaves(expected))
  with on_mesh(*shape):
    sharding = jax.NamedSharding(mesh_of(*shape), jax.P(None, DATA))
    given = params, *jax.device_put((inputs, real_TB), sharding)
    program = gradients.lower(*given).compile()
    sharded, text = jax.block_until_ready(program(*given)), program.as_text()
  assert_close(sharded, expected, 1e-5, 1e-5)
  assert 'all-reduce' in text  # the gradients' sums
  for exchange in ('all-gather', 'all-to-all', 'collective-permute'):
    assert exchange not in text


def run_one_by_one(self, attend, h, seeds, keep=lambda *_: None, inputs=()):
  """Transformer.run as a loop over layers whose parameters are cut."""
  graphdef, params = nnx.split(self.layers)
  kept = []
  for i in range(self.count):
    of_layer = jax.tree.map(operator.itemgetter(i), (params, seeds, inputs))
    layer = nnx.merge(graphdef, of_layer[0])
    given = functools.partial(attend, *of_layer[2]), h, of_layer[1]
    results = layer(*given)
    h = results[1]
    kept.append(keep(*results))
  return h, jax.tree.map(lambda *x: jnp.stack(x), *kept)


@pytest.mark.parametrize('name', PRETRAINED)
def test_one_scanned_layer_is_all_layers(name, monkeypatch):
  inputs, real_TB = KINDS[name].documents()
  rates = dict.fromkeys(('dropout', 'attention_dropout'), 0.3)
  graphdef, params = nnx.split(KINDS[name].built(joined=(1, 2), **rates))
  weight = jax.random.normal(jax.random.key(1), (T, B, 32))

  def loss(params):
    rngs = nnx.Rngs(dropout=jax.random.key(7))
    h = nnx.merge(graphdef, params)(inputs, real_TB, rngs)
    return (h * weight).mean(), h

  # A new function each time, as jit keeps programs by function.
  scanned = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  monkeypatch.setattr(Transformer, 'run', run_one_by_one)
  one_by_one = jax.jit(jax.value_and_grad(lambda x: loss(x), has_aux=True))(
    params
  )
  assert_close(scanned, one_by_one, 1e-6, 1e-6)
  assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(scanned[1]))


@pytest.mark.thorough
@pytest.mark.parametrize('name', PRETRAINED)
def test_recomputed_layers_are_the_same_and_gradients_are_finite(name):
  inputs, real_TB = KINDS[name].documents()
  real_TB = real_TB.at[:, -1].set(False)  # the last one only fills the batch

  def loss(params, graphdef):
    encoder = nnx.merge(graphdef, params)
    h = encoder(inputs, real_TB, nnx.Rngs(dropout=jax.random.key(7)))
    return jnp.square(h).sum() + h[:, :, 0].sum()

  results, flops = [], []
  for remat in Remat:
    rates = dict.fromkeys(('dropout', 'attention_dropout'), 0.3)
    graphdef, params = nnx.split(KINDS[name].built(**rates, remat=remat))
    step = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    results.append(step(params, graphdef))
    program = step.lower(params, graphdef).as_text()
    flops.append(program.count('dot_general'))
  none, *others = map(jax.tree.leaves, results)
  for other in others:
    assert_close(other, none, 1e-5, 1e-5)
  assert all(np.isfinite(x).all() for x in none)
  # Dense layers are computed again only with EVERYTHING.
  assert flops[0] <= flops[1] < flops[2]
  assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(results[0][1]))


@pytest.mark.parametrize('name', PRETRAINED)
def test_states_are_of_every_layer(name):
  ids_TB, real_TB = KINDS[name].documents()
  read = nnx.jit(lambda encoder, *given: encoder.states(*given, None))
  given = KINDS[name].built(joined=(1, -1)), ids_TB, real_TB
  with pytest.raises(ConfigError, match='the layers 1 to 2, or -2 to -1'):
    KINDS[name].built(joined=(3,))
  states = [np.asarray(x) for x in read(*given)]
  assert [s.shape for s in states] == [(B, T, 16)] * 3
  last = exact_states(name)[0].swapaxes(0, 1)
  real_BT = np.asarray(real_TB).T
  np.testing.assert_allclose(states[-1][real_BT], last[real_BT], 1e-5, 1e-5)
  both = np.concatenate(states[1:], axis=2)[real_BT]
  joined = compiled(given[0])(*given[1:]).swapaxes(0, 1)
  np.testing.assert_allclose(joined[real_BT], both, 1e-5, 1e-5)
  # If no head reads them, the states of the layers are not kept.
  texts = [
    read.lower(KINDS[name].built(joined=layers), *given[1:]).as_text()
    for layers in ((1, -1), (), (2,))
  ]
  assert [f'tensor<2x{B}x{T}x16xf32>' in x for x in texts] == [
    True,
    False,
    False,
  ]


def packed():
  """The documents in five rows: ids, numbers of documents, first tokens."""
  ids_TB, _ = KINDS['bert'].documents()
  ids, segments = np.zeros((2, 5, T), np.int32)
  first = np.zeros(B, np.int32)
  for row, members in enumerate([[0], [6, 1, 2], [4, 3], [5], [7]]):
    at = 0
    for number, document in enumerate(members, 1):
      end = at + LENGTHS[document]
      ids[row, at:end] = ids_TB[: LENGTHS[document], document]
      segments[row, at:end] = number
      first[document] = row * T + at
      at = end
  return ids.T, segments.T, first


@pytest.mark.parametrize('name', PRETRAINED)
def test_documents_of_a_packed_row_do_not_see_one_another(name):
  graphdef, params = nnx.split(KINDS[name].built())
  weight = np.random.default_rng(3).normal(size=(B, T, 16))

  @jax.jit
  @functools.partial(jax.grad, has_aux=True)
  def run(params, ids, segments, first=None):
    rows = nnx.merge(graphdef, params)(ids, segments, None)
    h = rows.swapaxes(0, 1)
    if first is not None:
      h = unpack_documents(h, first, jnp.asarray(LENGTHS))
    return (h * weight).sum(), (h, rows)

  d_apart, (apart, _) = run(params, *KINDS[name].documents())
  d_together, (together, rows) = run(params, *packed())
  assert (np.asarray(rows)[packed()[1] == 0] == 0).all()
  np.testing.assert_allclose(together, apart, rtol=0, atol=1e-5)
  assert_close(d_apart, d_together, rtol=0.0001, atol=0.0001)


def test_unpacking_stays_on_its_device():
  first = packed()[2]
  rows = np.random.default_rng(0).normal(size=(5, T, 16)).astype(np.float32)
  # Four devices with the same five rows each.
  tiled = [np.concatenate([x] * 4) for x in (rows, first, LENGTHS)]
  want = unpack_documents(*map(jnp.asarray, (rows, first, LENGTHS)))
  with on_mesh(4):
    sharding = jax.NamedSharding(mesh_of(4), jax.P(DATA))
    unpack = jax.jit(unpack_documents)
    lowered = unpack.lower(*(jax.device_put(x, sharding) for x in tiled))
    assert 'all-gather' not in lowered.compile().as_text()
    got = unpack(*tiled)
  np.testing.assert_array_equal(got, np.concatenate([want] * 4))
