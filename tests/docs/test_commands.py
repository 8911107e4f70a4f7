"""Every command of the pages names flags, configs and fields that exist."""

import re
import runpy
import sys

from absl import flags as absl_flags
from ml_collections import config_flags
import pytest

from tests.commands.conftest import own_flags
from tests.docs.commands import Call, calls_of
from tests.docs.pages import PAGES, ROOT, blocks_of
from xjax.commands.flags.config import TupleParser, replace_config_names
from xjax.commands.main import COMMANDS
from xjax.models.config_check import check_config
from xjax.models.contract import Config
from xjax.run.named_configs import shipped_configs


@pytest.fixture(scope='module')
def calls(tmp_path_factory) -> list[Call]:
  """All calls of xjax's programs on all pages."""
  return [
    call
    for page in PAGES
    for block in blocks_of(page)
    if block.language == 'sh'
    for call in calls_of(block, tmp_path_factory.mktemp('block'))
  ]


@pytest.fixture(scope='module')
def parsers() -> dict[str, dict[str, absl_flags.ArgumentParser]]:
  """The flags of each main, and what parses their values."""
  parsers = {}
  for main in COMMANDS:
    before = set(absl_flags.FLAGS)
    with own_flags():
      runpy.run_module(f'xjax.commands.{main}', run_name='docs')
      new = set(absl_flags.FLAGS) - before
      parsers[main] = {name: absl_flags.FLAGS[name].parser for name in new}
    parsers[main]['import'] = absl_flags.ArgumentParser()
  return parsers


def parse_config(arguments: tuple[str, ...]) -> Config:
  """Reads --config and --config.FIELD as the mains do."""
  argv = ['docs', *arguments]
  replace_config_names(argv)
  for element in (int, float, str):
    config_flags.register_flag_parser_for_type(
      tuple[element, ...], TupleParser(element)
    )
  values = absl_flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config', None, '', lock_config=True, flag_values=values
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(ROOT)
    patch.setattr(sys, 'argv', argv)  # config_flags reads fields from there
    values(argv)
  return values['config'].value


def test_the_pages_have_commands_of_every_main(calls, parsers):
  assert {call.main for call in calls if not call.benchmark} == set(parsers)


def test_every_flag_is_one_of_its_main(calls, parsers):
  for call in calls:
    if call.benchmark:
      continue
    for name, value in call.flags():
      if name.startswith('config.'):
        continue
      assert name in parsers[call.main], f'{call.place}: --{name}'
      if value is not None and name != 'config':
        parsers[call.main][name].parse(value)


def test_every_flag_of_a_benchmark_is_defined_there(calls):
  for call in calls:
    if call.benchmark:
      source = (ROOT / 'benchmarks' / f'{call.main}.py').read_text()
      for name, _ in call.flags():
        assert f"'{name}'" in source, f'{call.place}: --{name}'


@pytest.mark.filterwarnings(r'ignore:.*load_module\(\)')
def test_every_config_takes_the_fields_that_are_set(calls):
  for call in calls:
    config = tuple(a for a in call.arguments if a.startswith('--config'))
    if config and re.split('[=:]', config[0])[1] in shipped_configs():
      check_config(parse_config(config))


def test_every_block_that_is_not_run_says_why():
  for page in PAGES:
    for block in blocks_of(page):
      assert block.language in ('sh', 'python', 'json', '')
      assert not block.not_run or block.language == 'sh'
