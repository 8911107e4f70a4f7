"""Tests that one-vs-all rows load by label, from a storage to another."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from xjax.core.mesh import DATA, LABEL
from xjax.core.mesh_config import MeshConfig
from xjax.data.schema import LabelSpace
from xjax.data.text.words import Vocabulary
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params, read_some
from xjax.train.initial.warm_start import warm_start
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir

KERNEL = 'head/kernel'


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


def started(config, source, space, vocab):
  """Returns the fresh parameters, the warm ones and the saved ones."""
  plan, state, before = first_state(config, space, len(vocab))
  state, _ = warm_start(state, str(source.path), space, vocab)
  params = by_path(state.params)
  for name, param in by_path(plan.abstract.params).items():
    assert params[name].sharding == param.sharding
    assert params[name].dtype == param.dtype
  assert params[KERNEL].sharding.spec[0] == (LABEL, DATA)
  saved = read_params(source.checkpoints, 1)
  return before, params_of(state), saved


def reading(monkeypatch):
  """Records the parameters read from now on, and whether sharded."""
  seen, name = {}, 'xjax.train.initial.warm_start.read_some'

  def spy(folder, step, wanted):
    seen.update({name: x.sharding is not None for name, x in wanted.items()})
    return read_some(folder, step, wanted)

  monkeypatch.setattr(name, spy)
  return seen


def test_rows_are_rounded_to_the_storage_of_the_run(config, runs, monkeypatch):
  seen = reading(monkeypatch)
  source = runs[Storage.FLOAT32]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  here = stored_as(config, Storage.COMPENSATED)
  before, after, saved = started(here, source, space, vocab)
  assert seen['head/bias'] and seen[KERNEL]  # where these rows lie
  n = space.n_trained
  expected = saved[KERNEL].astype(before[KERNEL].dtype)
  np.testing.assert_array_equal(after[KERNEL][:n], expected[:n])
  np.testing.assert_array_equal(after[KERNEL][n:], before[KERNEL][n:])


def test_weights_of_one_byte_need_their_exponents(config, runs, caplog):
  caplog.set_level('INFO')
  source = runs[Storage.FLOAT8]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  here = stored_as(config, Storage.FLOAT32)
  before, after, _ = started(here, source, space, vocab)
  np.testing.assert_array_equal(after[KERNEL], before[KERNEL])
  assert 'skipped head/kernel: has another meaning' in caplog.text
  wide = stored_as(config, Storage.FLOAT8)
  wide.model.embedding.dim = 16
  before, after, _ = started(wide, source, space, vocab)
  assert 'skipped head/exponent: shape' in caplog.text
  name = 'head/exponent'
  np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize('there', [Storage.FLOAT32, Storage.FLOAT8])
def test_rows_of_other_labels_are_found_by_id(config, runs, there, monkeypatch):
  seen = reading(monkeypatch)
  source = runs[there]
  space, vocab = source.label_space(), Vocabulary.load(source.vocab)
  # Our labels are theirs backwards without the first, and a new one.
  order = list(range(space.n_trained - 1, 0, -1))
  labels = [space.labels[i] for i in order]
  labels.append(dataclasses.replace(space.labels[0], id='new'))
  counts = np.ones(len(labels), np.int32)
  ours = LabelSpace(tuple(labels), counts, space.n_train, len(labels))
  before, after, saved = started(stored_as(config, there), source, ours, vocab)
  names = [name for name in after if name.startswith('head/')]
  assert not any(seen[name] for name in names)
  assert len(names) == (3 if there is Storage.FLOAT8 else 2)
  for name in names:
    expected = before[name].copy()
    expected[: len(order)] = saved[name][order]
    np.testing.assert_array_equal(after[name], expected, err_msg=name)
