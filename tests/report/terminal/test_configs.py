"""The list of configs, as `xjax configs` prints it."""

import importlib

import pytest

from xjax.report.terminal.configs import configs_text, describe
from xjax.run.named_configs import CONFIGS, config_names


@pytest.mark.parametrize('name', config_names())
def test_a_description_has_what_the_file_says(name):
  description = describe(CONFIGS / f'{name}.py')
  module = importlib.import_module(f'xjax.configs.{name}')
  assert description.variants == tuple(getattr(module, 'SYSTEMS', ()))
  assert description.name == name
  assert description.summary and description.data and description.hardware
  assert '\n' not in description.summary


def test_each_config_is_a_line_and_variants_follow():
  names = ['quickstart', 'xc_plt']
  text = configs_text([describe(CONFIGS / f'{name}.py') for name in names])
  header, first, second, _, _, variants = text.splitlines()
  assert header.split() == ['config', 'trains', 'data', 'hardware']
  assert first.startswith('quickstart  a small model on a synthetic corpus')
  assert second.startswith('xc_plt ') and second.endswith('two CPU cores')
  assert variants.startswith('  quickstart: exact_match, bigru_att, han')
