"""Fixtures: the devices of each module, and small models that have stages."""

import dataclasses

import pytest

from tests.fixtures.shortlist_runs import by_levels, reranker
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.data.config import WordsConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.stage_config import StageConfig
from xjax.models.trees.vectors import StageVectors
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.run.fit import fit
from xjax.train.neural_train import NeuralTrain


@pytest.fixture(scope='session')
def stage():
  """A stage with a small encoder, which is trained for a few steps."""
  return StageConfig(
    tokens=WordsConfig(max_tokens=16, buckets=(8, 16), min_count=1),
    model=NeuralModel(
      EmbeddingConfig(dim=8),
      BiGRUConfig(units=4),
      SelfAttentionConfig(),
      OneVsAllConfig(),
    ),
    train=NeuralTrain(
      batch_size=50, steps=4, checkpoint_every=2, judge_every=2
    ),
    batch_size=32,
  )


@pytest.fixture(scope='session')
def joined_config(stage):
  """The config of a tree on TF-IDF features and the vectors of the stage."""
  model, train = RUNS['xr']
  model = dataclasses.replace(
    model, vectors=StageVectors(stage=stage, weight=2.0)
  )
  return config_of(model, dataclasses.replace(train, matched=3))


@pytest.fixture(scope='session')
def joined(devices, joined_config, tmp_path_factory):
  """The result of fit; tests must copy its workdir before they change it."""
  with devices(1):
    return fit(joined_config, tmp_path_factory.mktemp('joined') / 'run')


@pytest.fixture(scope='session')
def reranked(devices, tmp_path_factory):
  """The result of a run that ranks a tree's labels; copy it to change it."""
  with devices(1):
    return fit(reranker(), tmp_path_factory.mktemp('reranked') / 'run')


@pytest.fixture(scope='session')
def levelled(devices, tmp_path_factory):
  """The result of a run with two levels of clusters; copy it to change it."""
  with devices(1):
    return fit(by_levels(), tmp_path_factory.mktemp('levelled') / 'run')


@pytest.fixture(scope='session')
def bootstrapped(devices, tmp_path_factory):
  """The result of a run by levels with fitted label rows."""
  folder = tmp_path_factory.mktemp('bootstrapped') / 'run'
  with devices(1):
    return fit(by_levels(bootstrap=True), folder)


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield
