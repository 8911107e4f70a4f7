"""The rooms of the library: their order, their budgets, who asks whom what."""

import ast
from collections.abc import Iterator
import io
import pathlib
import tokenize

from tests.test_house import CODE, INIT, ROOT, name, tree_of
from xjax.core.config_part import kinds
from xjax.models.contract import Model

ROOMS = (
  'core data losses judge networks train models run sweep plan report '
  'configs commands'
).split()
# How many code lines (without blank lines, comments and docstrings) a room may
# have. `python -m tests.test_rooms` prints how many it has.
BUDGETS = {
  'core': 1_670,
  'data': 9_370,
  'losses': 350,
  'judge': 5_220,
  'networks': 6_610,
  'train': 3_380,
  'models': 8_760,
  'run': 3_290,
  'sweep': 820,
  'plan': 1_070,
  'report': 3_560,
  'configs': 1_550,
  'commands': 1_270,
}


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
  """Yields (line, absolute module) of every import, lazy ones as well."""
  for node in ast.walk(tree):
    match node:
      case ast.Import():
        yield from ((node.lineno, alias.name) for alias in node.names)
      case ast.ImportFrom():
        base = package.split('.')[: -node.level or None] if node.level else []
        module = '.'.join([*base, *filter(None, [node.module])])
        yield node.lineno, module
        yield from (
          (node.lineno, f'{module}.{alias.name}') for alias in node.names
        )


def room_of(module: str) -> str | None:
  parts = module.split('.')
  if parts[0] == 'xjax' and len(parts) > 1 and parts[1] in ROOMS:
    return parts[1]
  return None


def arrows(tree: ast.AST, module: str) -> list[str]:
  """The imports of a module that point right, as `line: module`."""
  here = ROOMS.index(room_of(module))
  return [
    f'{line}: {target}'
    for line, target in imported(tree, module)
    if room_of(target) and ROOMS.index(room_of(target)) > here
  ]


def modules() -> dict[str, pathlib.Path]:
  """The files of the library, by the name of their module."""
  return {
    '.'.join(path.relative_to(ROOT).with_suffix('').parts): path
    for path in CODE
    if path.relative_to(ROOT).parts[0] == 'xjax' and path.name != INIT
  }


def circle_of(graph: dict[str, set[str]]) -> set[str]:
  """The files that import each other in a circle, or lie between circles."""
  left = dict(graph)
  while True:
    # A file that no other imports, or that imports no other, is in no circle.
    asked = set().union(*left.values())
    kept = {x for x, to in left.items() if x in asked and to}
    if len(kept) == len(left):
      return kept
    left = {x: to & kept for x, to in left.items() if x in kept}


def class_tests(tree: ast.AST) -> Iterator[tuple[int, str]]:
  """Yields (line, class) of what isinstance and class patterns ask for."""
  for node in ast.walk(tree):
    match node:
      case ast.Call(func=ast.Name('isinstance' | 'issubclass')):
        asked = node.args[1:]
      case ast.MatchClass():
        asked = [node.cls]
      case _:
        continue
    for part in asked:
      for x in ast.walk(part):
        if isinstance(x, ast.Name | ast.Attribute):
          yield node.lineno, x.id if isinstance(x, ast.Name) else x.attr


def code_lines(source: str) -> int:
  """The lines that have more than a comment, and are in no docstring."""
  tokens = tokenize.generate_tokens(io.StringIO(source).readline)
  empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
  empty |= {tokenize.DEDENT, tokenize.ENDMARKER}
  lines = {
    line
    for token in tokens
    if token.type not in empty
    for line in range(token.start[0], token.end[0] + 1)
  }
  for node in ast.walk(ast.parse(source)):
    holds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, holds) and ast.get_docstring(node) is not None:
      text = node.body[0]
      lines -= set(range(text.lineno, text.end_lineno + 1))
  return len(lines)


def lines_of_rooms() -> dict[str, int]:
  sizes = dict.fromkeys(ROOMS, 0)
  for module, path in modules().items():
    if room := room_of(module):
      sizes[room] += code_lines(path.read_text())
  return sizes


def test_the_rules_see_what_they_should():
  lazy = 'def f():\n  from xjax.run import fit\n'
  assert arrows(ast.parse(lazy), 'xjax.data.formats.jsonl') == [
    '2: xjax.run',
    '2: xjax.run.fit',
  ]
  for line, module, wrong in (
    ('from xjax import train', 'xjax.core.rng', ['1: xjax.train']),
    (
      'from ..train import fit',
      'xjax.data.load',
      ['1: xjax.train', '1: xjax.train.fit'],
    ),
    ('import xjax.core.rng', 'xjax.data.formats.jsonl', []),
  ):
    assert arrows(ast.parse(line), module) == wrong
  assert code_lines('"""A\n\nb\n"""\n\n# c\nx = """y\n\nz"""  # d\n') == 3
  chain = {'a': {'b'}, 'b': {'c'}, 'c': {'b', 'd'}, 'd': set()}
  assert circle_of(chain) == {'b', 'c'}
  assert circle_of({'a': {'b', 'c'}, 'b': {'c'}, 'c': set()}) == set()
  asks = 'isinstance(x, A | m.B)\nmatch x:\n  case C(y=D()):\n    pass\n'
  found = {kind for _, kind in class_tests(ast.parse(asks))}
  assert {'A', 'B', 'C', 'D'} <= found


def test_imports_point_left():
  wrong = {
    module: arrows(tree_of(path), module)
    for module, path in modules().items()
    if room_of(module)
  }
  assert {module: lines for module, lines in wrong.items() if lines} == {}


def test_no_files_import_each_other_in_a_circle():
  files = modules()
  graph = {
    module: {x for _, x in imported(tree_of(path), module)}
    & (files.keys() - {module})
    for module, path in files.items()
  }
  assert sorted(circle_of(graph)) == []


def test_a_kind_of_model_is_asked_for_only_in_its_own_file():
  # What a kind can do is said by its class: an attribute or a method.
  assert kinds(Model)  # imports them
  home = {kind.__name__: kind.__module__ for kind in subclasses(Model)}
  asked = [
    f'{module}: {line}: {kind}'
    for module, path in modules().items()
    for line, kind in class_tests(tree_of(path))
    if home.get(kind, module) != module
  ]
  assert asked == []
  words = [
    name(p) for p in modules().values() if 'kind_of_run' in p.read_text()
  ]
  assert words == []


def subclasses(kind: type) -> Iterator[type]:
  for sub in kind.__subclasses__():
    if sub.__module__.startswith('xjax.'):
      yield sub
      yield from subclasses(sub)


def test_rooms_keep_to_their_budgets():
  sizes = lines_of_rooms()
  over = {x: n for x, n in sizes.items() if n > BUDGETS[x]}
  assert over == {}
  # A budget that a room does not need any more is lowered.
  assert {x: n for x, n in sizes.items() if BUDGETS[x] - n > 200} == {}


def test_every_room_is_known():
  files = (
    path.relative_to(ROOT / 'xjax') for path in (ROOT / 'xjax').rglob('*.py')
  )
  rooms = {path.parts[0] for path in files if len(path.parts) > 1}
  assert rooms == set(ROOMS)


if __name__ == '__main__':
  for room_, n_ in lines_of_rooms().items():
    print(f"  '{room_}': {n_ + -n_ % 50},  # {n_}")
