import pytest

from xjax.core.errors import ConfigError
from xjax.models.contract import Config
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.sweep.overrides import override
from xjax.train.neural_train import Schedule
from xjax.train.optimizer_config import AdamW


def test_sets_fields_and_leaves_the_rest():
  base = Config()
  new = override(
    base,
    {
      'model.encoder.units, model.encoder.layers': 2,
      'train.learning_rate': 1,
      'train.optimizer': AdamW(weight_decay=0.1),
      'data.zones': ('header',),
    },
  )
  assert (new.model.encoder.units, new.model.encoder.layers) == (2, 2)
  assert type(new.train.learning_rate) is float
  assert new.train.optimizer == AdamW(weight_decay=0.1)
  assert new.data.zones == ('header',)
  assert base == Config()
  assert override(new, {}) == new and override(base, {}) == base


def test_a_dict_sets_fields_below_and_a_part_takes_a_place():
  new = override(Config(), {'train': {'steps': 7, 'schedule': 'cosine'}})
  assert new.train.steps == 7 and new.train.schedule is Schedule.COSINE
  assert new.train.batch_size == Config().train.batch_size
  new = override(Config(), {'model.encoder': CNNConfig(filters=3)})
  assert new.model.encoder == CNNConfig(filters=3)
  same = override(Config(), {'model.encoder': BiGRUConfig(units=9)})
  assert same.model.encoder == BiGRUConfig(units=9)


@pytest.mark.parametrize(
  'values, message',
  [
    ({'train.step': 1}, 'did you mean steps'),
    ({'train.steps.more': 1}, 'has no fields of its own'),
    ({'model.encoder': 3}, r'one by one.*\(got 3\)'),
    ({'train.steps': 1.5}, r'train\.steps: expected'),
    ({'train': {'stepps': 1}}, 'stepps'),
    ({'train.schedule': 'square'}, "'square' must be one of"),
    ({'train.optimizer': {'kind': 'sgd'}}, "unknown kind 'sgd'"),
  ],
)
def test_says_what_is_wrong(values, message):
  with pytest.raises(ConfigError, match=message):
    override(Config(), values)
