"""Tests which values and combinations encoders, poolings and heads accept."""

import copy
import dataclasses

import pytest

from tests.fixtures.shrink import shrink
from xjax.core.errors import ConfigError
from xjax.data.config import FeatureFilesConfig, SubwordsConfig, WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.features import FeaturesConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.pooling import NoPooling, SelfAttentionConfig

ATTENTION = NeuralModel(pooling=SelfAttentionConfig(), head=OneVsAllConfig())
CONFIGS = {
  'bigru_att': Config(model=ATTENTION),
  'cnn_lwan': Config(model=NeuralModel(encoder=CNNConfig())),
  'han': Config(
    data=SyntheticData(tokens=WordsConfig(by_zone=True)),
    model=dataclasses.replace(ATTENTION, encoder=HANConfig()),
  ),
}
SIZES = ('filters', 'width', 'units', 'layers', 'zone_units')


@pytest.mark.parametrize('name', CONFIGS)
def test_these_go_together_and_shrink(name):
  config = CONFIGS[name]
  check_config(config)
  small = shrink(config)
  check_config(small)
  assert type(small.model.encoder) is type(config.model.encoder)
  sizes = vars(small.model.encoder)
  assert all(sizes[name] <= 16 for name in sizes if name in SIZES)
  assert small.data.tokens.by_zone == config.data.tokens.by_zone


@pytest.mark.parametrize(
  ('name', 'field', 'value'),
  [('cnn_lwan', field, 0) for field in ('filters', 'width')]
  + [('han', field, 0) for field in ('units', 'layers', 'zone_units')]
  + [(name, 'dropout', 1.0) for name in CONFIGS],
)
def test_every_number_has_a_range(name, field, value):
  config = copy.deepcopy(CONFIGS[name])
  setattr(config.model.encoder, field, value)
  with pytest.raises(ConfigError, match=f'config.model.encoder.{field}='):
    check_config(config)


@pytest.mark.parametrize(
  ('name', 'part', 'value', 'says'),
  [
    ('han', 'encoder', BiGRUConfig(), 'config.data.tokens.by_zone=True'),
    ('bigru_att', 'encoder', HANConfig(), 'config.data.tokens.by_zone=False'),
    ('bigru_att', 'pooling', NoPooling(), 'needs a pooling'),
    ('bigru_att', 'head', LabelAttentionConfig(), 'and needs NoPooling()'),
  ],
)
def test_what_does_not_go_together(name, part, value, says):
  model = dataclasses.replace(CONFIGS[name].model, **{part: value})
  with pytest.raises(ConfigError) as raised:
    check_config(dataclasses.replace(CONFIGS[name], model=model))
  assert says in str(raised.value)
  assert '\n' not in str(raised.value)


def test_packed_rows_are_of_one_length():
  """Checks that shorter buckets are refused: nothing would read them."""
  tokens = SubwordsConfig(64, buckets=(64,), packed=True)
  model = NeuralModel(NoEmbedding(), BertConfig())
  config = Config(data=SyntheticData(tokens=tokens), model=model)
  check_config(config)
  small = shrink(config)
  check_config(small)
  assert small.data.tokens == SubwordsConfig(16, (16,), packed=True)
  tokens.buckets = (32, 64)
  with pytest.raises(ConfigError, match=r'buckets=\(32, 64\): .* \(64,\)'):
    check_config(config)
  tokens.packed = False
  check_config(config)


def test_vectors_of_labels_are_made_of_no_words():
  """Checks that descriptor settings are refused where nothing reads them."""
  head = ZeroShotConfig()
  model = NeuralModel(embedding=FeaturesConfig(), head=head)
  data = SyntheticData(tokens=FeatureFilesConfig())
  config = Config(data=data, model=model)
  check_config(config)
  head.descriptor = DescriptorConfig(alt=True)
  with pytest.raises(ConfigError, match='config.model.head.descriptor=.*alt'):
    check_config(config)
  check_config(Config(model=NeuralModel(head=head)))
