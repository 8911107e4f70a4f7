"""The name of a config class of one's own says which class it is."""

import dataclasses

import pytest

from xjax.core.errors import ConfigError
from xjax.losses.loss import LossConfig
from xjax.models.config_check import check_config
from xjax.models.config_json import from_json, to_json
from xjax.models.contract import Config


@pytest.fixture
def own_class():
  """Defines losses in modules of the user, for the time of a test."""
  classes = []

  def define(name):
    space = {'build': lambda self: None, '__module__': 'mine', '__doc__': ''}
    classes.append(dataclasses.dataclass(type(name, (LossConfig,), space)))
    return classes[-1]

  yield define
  for cls in classes:
    cls.abstract = True  # it stays a subclass for some time


def config_with(loss):
  config = Config()
  train = dataclasses.replace(config.train, loss=loss)
  return dataclasses.replace(config, train=train)


def test_a_name_of_xjax_is_refused(own_class):
  config = config_with(own_class('FocalConfig')())
  message = 'two kinds of LossConfig are called FocalConfig, in the modules '
  message += 'mine and xjax.losses.focal; give yours another name'
  with pytest.raises(ConfigError) as error:
    check_config(config)
  assert str(error.value) == f'config.train.loss: {message}'
  with pytest.raises(ConfigError, match=message):
    from_json(to_json(config), Config)


def test_a_class_that_a_notebook_defines_again_is_the_later(own_class):
  own_class('AgainConfig')
  config = config_with(own_class('AgainConfig')())
  check_config(config)
  again = from_json(to_json(config), Config)
  assert type(again.train.loss) is type(config.train.loss)
