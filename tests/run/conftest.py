"""Fixtures: the devices of each module, runs to change, an encoder's corpus."""

import dataclasses
import shutil

import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.shrink import shrink
from tests.fixtures.vector_files import write_corpus
from xjax.data.config import FeatureFilesConfig, TextVectorsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('encoder') / 'model'
  write_encoder(folder, pooler=True)
  return TextVectorsConfig(str(folder), max_tokens=16)


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return write_corpus(tmp_path_factory.mktemp('data'))


@pytest.fixture
def settings(data_dir):
  """A config that reads vectors, which do not exist yet."""
  tokens = FeatureFilesConfig()
  data = JsonlData(dir=str(data_dir), tokens=tokens, labels='all', workers=1)
  return dataclasses.replace(shrink(Config()), data=data)


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield


@pytest.fixture
def workdir(finished, tmp_path):
  """A copy of the finished run, to change and to go on in."""
  return shutil.copytree(finished.workdir, tmp_path / 'run')
