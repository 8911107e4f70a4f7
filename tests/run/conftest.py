"""Two small finished runs that tests of this room share."""

import dataclasses

import pytest

from xjax.config.run import Config, shrink
from xjax.run.fit import fit
from xjax.score.config import DescriptorConfig, DescriptorWeights, UnifiedConfig


@pytest.fixture(scope='module')
def n_devices():
  """Of a module's runs; those on meshes have another."""
  return 1


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield


@pytest.fixture
def all_devices(devices, so_many_devices):
  """For a test on a mesh in a module of others."""
  with devices(8):
    yield


@pytest.fixture(scope='session')
def config():
  """Two held-out labels, an epoch and more, a judging on the way."""
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=40, hold_out_labels=2),
    train=dataclasses.replace(
      small.train, steps=6, learning_rate=0.02, judge_every=3
    ),
  )


@pytest.fixture(scope='session')
def finished(devices, config, tmp_path_factory):
  """What fit returned; its workdir must not be changed: copy it."""
  with devices(1):
    return fit(config, tmp_path_factory.mktemp('finished') / 'run')


@pytest.fixture(scope='session')
def described_config(config):
  """Labels known by rows of their own and by descriptors of frozen words."""
  head = UnifiedConfig(
    chunk=8,
    hidden_labels=2,
    descriptor=DescriptorConfig(alt=True, weights=DescriptorWeights.IDF),
  )
  embedding = dataclasses.replace(
    config.model.embedding, frozen=True, init_scale=1.0
  )
  model = dataclasses.replace(config.model, head=head, embedding=embedding)
  return dataclasses.replace(config, model=model)


@pytest.fixture(scope='session')
def described(devices, described_config, tmp_path_factory):
  """What fit returned of it; its workdir must not be changed: copy it."""
  with devices(1):
    return fit(described_config, tmp_path_factory.mktemp('described') / 'run')
