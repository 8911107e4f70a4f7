"""An encoder that was trained, written and begun with again."""

import json

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from xjax.core.errors import ConfigError
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.text.subwords import Subwords
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.model_folder import ModelFolder
from xjax.run.export_encoder import export_encoder
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.parameters import by_path
from xjax.train.train_config import NoTrain


def config_of(folder=''):
  pooling = ClsConfig(pooler=True)
  model = NeuralModel(NoEmbedding(), BertConfig(), pooling, OneVsAllConfig())
  data = SyntheticData(tokens=SubwordsConfig())
  config = shrink(Config(data=data, model=model))
  config.model.encoder.folder = folder
  return config


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run') / 'w'
  fit(config_of(), folder)
  return folder


@pytest.fixture(scope='module')
def exported(run, tmp_path_factory):
  folder = tmp_path_factory.mktemp('exported') / 'm'
  assert export_encoder(run, folder).step in (1, 2)
  return folder


@pytest.mark.thorough
def test_the_folder_has_what_was_trained(run, exported):
  found = ModelFolder.at(str(exported))
  trained = {
    path: np.asarray(x)
    for path, x in by_path(open_run(run).scorer.params).items()
    if path.startswith(('encoder/', 'pooling/dense/'))
  }
  params = found.parameters()
  assert params.keys() == trained.keys()
  assert all(np.array_equal(params[path], trained[path]) for path in params)
  kept = json.loads((run / 'features' / 'encoder.json').read_text())
  assert kept.items() <= found.config.items()


def test_the_tokenizer_is_that_of_the_run(run, exported):
  kept = Subwords.load(run / 'features' / 'tokenizer.json')
  assert Subwords.of_folder(exported).digest == kept.digest
  config = json.loads((exported / 'tokenizer_config.json').read_text())
  assert config['model_max_length'] == 16
  for name in ('pad', 'unk', 'cls', 'sep', 'mask'):
    assert config[f'{name}_token'] == f'[{name.upper()}]'


def test_other_runs_have_no_such_encoder(tmp_path):
  config = Config(model=ExactMatchModel(), train=NoTrain())
  fit(shrink(config), tmp_path / 'w')
  with pytest.raises(ConfigError, match='has no encoder of the BERT family'):
    export_encoder(tmp_path / 'w', tmp_path / 'm')
  assert not (tmp_path / 'm').exists()
