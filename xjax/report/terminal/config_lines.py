"""Describes the configs that come with xjax, without loading them."""

from collections.abc import Sequence
import re

from xjax.report.table import Table, plain_text
from xjax.run.named_configs import ShippedConfig

_HEADER = 'config', 'trains', 'data', 'hardware'
_LONGEST = 60  # characters of the column `trains`


def configs_text(configs: Sequence[ShippedConfig]) -> str:
  """Returns a table of configs, and the variants of those that have some."""
  rows = list(map(_row, configs))
  lines = [plain_text(Table.of(_HEADER, rows, len(_HEADER)))]
  with_variants = [config for config in configs if config.variants]
  if with_variants:
    lines += ['', 'Variants, as in --config=NAME:VARIANT:']
  lines += [f'  {c.name}: {", ".join(c.variants)}' for c in with_variants]
  return '\n'.join(lines)


def _row(config: ShippedConfig) -> tuple[str, ...]:
  text = ' '.join(config.text.split())
  summary = text.partition('. ')[0].rstrip('.').removeprefix('Trains ')
  if len(summary) > _LONGEST:
    summary = summary[: _LONGEST - 3].rsplit(' ', 1)[0] + '...'
  hardware = _sentence('Hardware', text).split(' (')[0]
  return config.name, summary, _sentence('Data', text), hardware


def _sentence(title: str, text: str) -> str:
  match = re.search(rf'\b{title}: (.*?)\.(?: |$)', text)
  return match[1] if match else ''
