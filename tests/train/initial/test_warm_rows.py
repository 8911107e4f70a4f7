"""Tests that one-vs-all rows load by label, from any storage to any."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL, make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.data.schema import LabelSpace
from xjax.data.text.words import Vocabulary
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.rows.storage import Storage, decode_weights
from xjax.networks.rows.update import FusedSGD
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params
from xjax.train.initial import warm_rows
from xjax.train.initial.warm_start import warm_start
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def n_devices():
  return 8


def stored_as(config, storage):
  return dataclasses.replace(
    config,
    model=NeuralModel(
      EmbeddingConfig(dim=8),
      NoEncoder(),
      MeanConfig(),
      OneVsAllConfig(chunk=8, storage=storage),
    ),
    train=dataclasses.replace(
      config.train, steps=1, judge_every=1, rows=FusedSGD(learning_rate=0.1)
    ),
    mesh=MeshConfig(data=2, label=4),
  )


@pytest.fixture(scope='module')
def runs(config, tmp_path_factory):
  """Returns workdirs of finished runs by the storage of their rows."""
  folder = tmp_path_factory.mktemp('rows')
  kinds = Storage.FLOAT32, Storage.FLOAT8
  return {
    kind: Workdir.at(fit(stored_as(config, kind), folder / kind.name).workdir)
    for kind in kinds
  }


def weights_of(params):
  rows = {
    name.removeprefix('head/'): jnp.asarray(x)
    for name, x in params.items()
    if name in (warm_rows.KERNEL, warm_rows.EXPONENT)
  }
  return np.asarray(decode_weights(rows, np.float32))


def started(config, source, space, vocab):
  """Returns the fresh parameters, the warm ones and the saved ones."""
  mesh = make_mesh(config.mesh)
  plan = plan_neural(config, space, len(vocab), mesh)
  with jax.set_mesh(mesh):
    state = plan.init(jax.random.key(9))
  before = jax.tree.map(np.array, by_path(state.params))
  state, _ = warm_start(state, str(source.path), space, vocab)
  params = by_path(state.params)
  for name, param in by_path(plan.abstract.params).items():
    assert params[name].sharding == param.sharding
    assert params[name].dtype == param.dtype
  assert params[warm_rows.KERNEL].sharding.spec[0] == (LABEL, DATA)
  saved = read_params(source.checkpoints, 1)
  return before, jax.tree.map(np.array, params), saved


ERROR = {  # as a share of the largest weight of a row
  Storage.FLOAT32: 0.0,
  Storage.BFLOAT16: 2.0**-7,
  Storage.COMPENSATED: 2.0**-7,
  Storage.FLOAT8: 2.0**-3,
}


@pytest.mark.parametrize('there', [Storage.FLOAT32, Storage.FLOAT8])
@pytest.mark.parametrize('here', Storage)
def test_any_storage_to_any(config, runs, there, here, caplog):
  source = runs[there]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  with caplog.at_level('INFO'):
    before, after, saved = started(
      stored_as(config, here), source, space, vocab
    )
  n = space.n_trained
  expected, found = weights_of(saved)[:n], weights_of(after)
  error = 0.0 if there is here else ERROR[here]
  largest = np.abs(expected).max(axis=1, keepdims=True)
  assert (np.abs(found[:n] - expected) <= error * largest).all()
  np.testing.assert_array_equal(found[n:], weights_of(before)[n:])
  np.testing.assert_array_equal(after['head/bias'][:n], saved['head/bias'][:n])
  says = f'loaded  head/kernel: {n} of {n} labels'
  if there is not here:
    says += f', converted from {there.value}'
  assert f'{says}\n' in caplog.text
  assert not any(x in caplog.text for x in ('fresh', 'skipped', 'unused'))


def reading(monkeypatch):
  """Records the paths read from now on: {path: whether it has a sharding}."""
  seen, read = {}, warm_rows.read_some

  def spy(folder, step, wanted):
    seen.update({name: x.sharding is not None for name, x in wanted.items()})
    return read(folder, step, wanted)

  monkeypatch.setattr(warm_rows, 'read_some', spy)
  return seen


def test_rows_of_the_same_labels_are_read_where_they_lie(
  config, runs, monkeypatch
):
  seen, source = reading(monkeypatch), runs[Storage.FLOAT8]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  started(stored_as(config, Storage.FLOAT32), source, space, vocab)
  names = 'head/bias', warm_rows.KERNEL, warm_rows.EXPONENT
  assert seen == dict.fromkeys(names, True)


@pytest.mark.parametrize('there', [Storage.FLOAT32, Storage.FLOAT8])
def test_rows_of_other_labels_are_found_by_id(config, runs, there, monkeypatch):
  seen, source = reading(monkeypatch), runs[there]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  # Our labels are theirs backwards without the first, and a new one.
  order = list(range(space.n_trained - 1, 0, -1))
  labels = [space.labels[i] for i in order]
  labels.append(dataclasses.replace(space.labels[0], id='new'))
  counts = np.ones(len(labels), np.int32)
  ours = LabelSpace(tuple(labels), counts, space.n_train, len(labels))
  before, after, saved = started(stored_as(config, there), source, ours, vocab)
  assert not any(seen.values())
  for part in (weights_of, lambda params: params['head/bias']):
    expected = part(before).copy()
    expected[: len(order)] = part(saved)[order]
    np.testing.assert_array_equal(part(after), expected)
