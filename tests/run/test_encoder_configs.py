"""Values and combinations of parts that neural models accept, or refuse."""

import copy
import dataclasses

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from xjax.configs import quickstart
from xjax.core.errors import ConfigError
from xjax.data.config import FeatureFilesConfig, WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.schema import Label, LabelSpace
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.neural_plan import check_hierarchy
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.features import FeaturesConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig, NoPooling, SelfAttentionConfig
from xjax.run.fit import fit
from xjax.train.workdir import Workdir

ATTENTION = NeuralModel(pooling=SelfAttentionConfig(), head=OneVsAllConfig())
FEATURES = SyntheticData(tokens=FeatureFilesConfig())
CONFIGS = {
  'bigru_att': Config(model=ATTENTION),
  'cnn_lwan': Config(model=NeuralModel(encoder=CNNConfig())),
  'han': Config(
    data=SyntheticData(tokens=WordsConfig(by_zone=True)),
    model=dataclasses.replace(ATTENTION, encoder=HANConfig()),
  ),
  'frozen': Config(
    data=FEATURES,
    model=NeuralModel(
      *(FeaturesConfig(), NoEncoder()), *(MeanConfig(), OneVsAllConfig())
    ),
  ),
}


@pytest.mark.parametrize(
  ('name', 'path', 'value', 'says'),
  [
    ('han', 'model.encoder', BiGRUConfig(), 'data.tokens.by_zone=True'),
    ('bigru_att', 'model.encoder', HANConfig(), 'data.tokens.by_zone=False'),
    ('bigru_att', 'model.pooling', NoPooling(), 'needs a pooling'),
    ('bigru_att', 'model.head', LabelAttentionConfig(), 'and needs NoPooling'),
    ('frozen', 'data.tokens', WordsConfig(), 'model.embedding=FeaturesConfig'),
    ('frozen', 'model.embedding', EmbeddingConfig(), 'ding=EmbeddingConfig'),
    ('frozen', 'model.embedding.dim', 0, 'model.embedding.dim=0'),
    ('frozen', 'model.embedding.dropout', 1.0, 'dropout=1.0'),
    ('frozen', 'model.encoder', HANConfig(), 'by_zone'),
    ('frozen', 'model.pooling', NoPooling(), 'needs a pooling'),
    ('frozen', 'data.tokens', FeatureFilesConfig(max_tokens=2), 'buckets'),
    ('han', 'model.encoder.zone_units', 0, 'model.encoder.zone_units='),
  ],
)
def test_what_cannot_be_is_one_line(name, path, value, says):
  config = copy.deepcopy(CONFIGS[name])
  check_config(config)
  set_field(config, path, value)
  with pytest.raises(ConfigError) as raised:
    check_config(config)
  assert says in str(raised.value)
  assert '\n' not in str(raised.value)


def set_field(config, path, value):
  *parts, name = path.split('.')
  holder = config
  for part in parts:
    holder = getattr(holder, part)
  setattr(holder, name, value)


@pytest.mark.parametrize(
  ('system', 'path', 'value', 'says'),
  [
    ('hgclr', 'views.heads', 7, 'must divide'),
    ('hgclr', 'views.segment', 1, 'must be at least .* path down to'),
    ('radar', 'head.heads', 7, 'must divide'),
    ('hbgl', 'head.pretraining.segment', 1, 'must be at least .* down to'),
  ],
)
def test_a_wrong_size_leaves_no_config(system, path, value, says, tmp_path):
  config = shrink(quickstart.get_config(system))
  config.train = dataclasses.replace(config.train, rates=(), layer_decay=1.0)
  set_field(config, f'model.{path}', value)
  with pytest.raises(ConfigError, match=f'config.model.{path}={value}: {says}'):
    fit(config, tmp_path)
  workdir = Workdir.at(tmp_path)
  assert not workdir.config.exists() and not workdir.corpus.exists()


def model_of(system):
  return shrink(quickstart.get_config(system)).model


def space_of(labels, concepts=()):
  """Makes a label space; `'ab'` is a label a with the parent b."""
  labels, concepts = (
    [Label(x[0], x[0], parents=tuple(x[1:])) for x in part]
    for part in (labels, concepts)
  )
  n = len(labels)
  return LabelSpace(labels, np.ones(n, int), 5, n, concepts=concepts)


@pytest.mark.parametrize(
  ('system', 'part', 'instead'),
  [
    ('hbgl', 'head', 'another head'),
    ('radar', 'head', 'another head'),
    ('hgclr', 'views', r'NoViews\(\)'),
    ('graph', 'head.graph', r'NoGraph\(\)'),
  ],
)
def test_parents_of_concepts_are_no_parents_of_labels(system, part, instead):
  model = model_of(system)
  check_hierarchy(model, space_of(['ax', 'b'], ['x']))
  says = f'config.model.{part}=.* no label that the model scores has a parent; '
  says += f'.* set config.model.{part} to {instead}'
  with pytest.raises(ConfigError, match=says):
    check_hierarchy(model, space_of(['a', 'b'], ['x', 'yx']))


def test_only_a_graph_reads_children_that_are_concepts():
  space = space_of(['a', 'b'], ['ya'])
  check_hierarchy(model_of('graph'), space)
  with pytest.raises(ConfigError, match='no label that the model scores has a'):
    check_hierarchy(model_of('radar'), space)
