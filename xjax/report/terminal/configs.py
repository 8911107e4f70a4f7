"""Describes the configs that come with xjax, without loading them."""

import ast
from collections.abc import Sequence
import dataclasses
import pathlib
import re

from xjax.report.table import Table, plain_text

_HEADER = 'config', 'trains', 'data', 'hardware'
_LONGEST = 60  # characters of the column `trains`


@dataclasses.dataclass(frozen=True)
class ConfigDescription:
  """Holds what the docstring of a config file says."""

  name: str  # of the file, without its suffix
  variants: tuple[str, ...]  # names that can follow the name and a colon
  summary: str  # the first sentence
  data: str
  hardware: str
  searched: str  # the whole text, in lower case


def describe(path: pathlib.Path) -> ConfigDescription:
  """Returns the description of a config file; the file is not run."""
  tree = ast.parse(path.read_text('utf-8'))
  text = ' '.join(ast.get_docstring(tree).split())
  return ConfigDescription(
    name=path.stem,
    variants=_variants(tree),
    summary=text.partition('. ')[0].rstrip('.'),
    data=_sentence('Data', text),
    hardware=_sentence('Hardware', text),
    searched=' '.join([path.stem, *_variants(tree), text]).lower(),
  )


def _variants(tree: ast.Module) -> tuple[str, ...]:
  """Returns the texts in the tuple SYSTEMS, or the keys of the dict SYSTEMS."""
  for node in tree.body:
    if isinstance(node, ast.Assign) and node.targets[0].id == 'SYSTEMS':
      is_dict = isinstance(node.value, ast.Dict)
      parts = node.value.keys if is_dict else ast.walk(node.value)
      texts = [part for part in parts if isinstance(part, ast.Constant)]
      texts.sort(key=lambda text: (text.lineno, text.col_offset))
      return tuple(text.value for text in texts)
  return ()


def _sentence(title: str, text: str) -> str:
  match = re.search(rf'\b{title}: (.*?)\.(?: |$)', text)
  return match[1] if match else ''


def configs_text(configs: Sequence[ConfigDescription]) -> str:
  """Returns a table of configs, and the variants of those that have some."""
  rows = [
    (c.name, _shorten(c.summary), c.data, c.hardware.split(' (')[0])
    for c in configs
  ]
  lines = [plain_text(Table.of(_HEADER, rows, len(_HEADER)))]
  with_variants = [config for config in configs if config.variants]
  if with_variants:
    lines += ['', 'Variants, as in --config=NAME:VARIANT:']
  lines += [f'  {c.name}: {", ".join(c.variants)}' for c in with_variants]
  return '\n'.join(lines)


def _shorten(text: str) -> str:
  text = text.removeprefix('Trains ')
  if len(text) <= _LONGEST:
    return text
  return text[: _LONGEST - 3].rsplit(' ', 1)[0] + '...'
