"""The house rules: rooms, sizes, names, command lines."""

import ast
from collections.abc import Iterator
import pathlib
import re
import statistics
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = (
  'core data losses judge score select config train run sweep plan report '
  'experiments'
).split()
CODE = sorted(
  path
  for folder in ('xjax', 'experiments', 'tests', 'benchmarks', 'tpu_scripts')
  for path in (ROOT / folder).rglob('*.py')
)
FOLDERS = sorted(
  {path.parent for path in CODE if path.relative_to(ROOT).parts[0] == 'xjax'}
)
MAINS = sorted(
  path.stem
  for path in (ROOT / 'experiments').glob('*.py')
  if "__name__ == '__main__'" in path.read_text()
)
DRAWERS = {'utils', 'util', 'helpers', 'helper', 'misc', 'common', 'tools'}


def name(path: pathlib.Path) -> str:
  return str(path.relative_to(ROOT))


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
  if parts[0] == 'experiments':
    return 'experiments'
  if parts[0] == 'xjax' and len(parts) > 1 and parts[1] in ROOMS:
    return parts[1]
  return None


def arrows(source: str, module: str) -> list[str]:
  """The imports of a module that point right, as `line: module`."""
  here = ROOMS.index(room_of(module))
  return [
    f'{line}: {target}'
    for line, target in imported(ast.parse(source), module)
    if room_of(target) and ROOMS.index(room_of(target)) > here
  ]


def sized(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
  """Yields (function, lines, limit) for every function, methods as well.

  Docstrings are not counted.
  """
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      # A training or judging loop may be longer: its body reads top to bottom.
      loops = [n for n in node.body if isinstance(n, ast.For | ast.While)]
      mostly = 2 * sum(map(lines_of, loops)) > lines_of(node)
      docstring = ast.get_docstring(node, clean=False)
      lines = docstring.count('\n') + 1 if docstring is not None else 0
      yield node.name, lines_of(node) - lines, 80 if mostly else 60


def lines_of(node: ast.stmt) -> int:
  return node.end_lineno - node.lineno + 1


def lines_of_docstrings(tree: ast.Module) -> int:
  kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
  texts = (
    ast.get_docstring(node, clean=False)
    for node in ast.walk(tree)
    if isinstance(node, kinds)
  )
  return sum(text.count('\n') + 1 for text in texts if text is not None)


def test_the_rules_see_what_they_should():
  lazy = 'def f():\n  from xjax.run import fit\n'
  assert arrows(lazy, 'xjax.data.formats.jsonl') == [
    '2: xjax.run',
    '2: xjax.run.fit',
  ]
  assert arrows('from xjax import train', 'xjax.core.rng') == ['1: xjax.train']
  assert arrows('from ..train import fit', 'xjax.data.load')
  assert not arrows('import xjax.core.rng', 'xjax.data.formats.jsonl')
  long = 'def f():\n' + '  x = 1\n' * 61
  assert list(sized(ast.parse(long))) == [('f', 62, 60)]
  beside = 'def f():\n  for _ in x:\n    pass\n' + '  x = 1\n' * 61
  assert list(sized(ast.parse(beside))) == [('f', 64, 60)]
  loop = 'def f():\n  for _ in x:\n' + '    x = 1\n' * 61
  assert list(sized(ast.parse(loop))) == [('f', 63, 80)]
  assert lines_of_docstrings(ast.parse('"""A\n\nb\n"""\nx = 1\n')) == 4
  assert MAINS and len(CODE) > 10 and len(FOLDERS) > 20


@pytest.mark.parametrize(
  'path',
  [p for p in CODE if room_of('.'.join(p.relative_to(ROOT).parts))],
  ids=name,
)
def test_imports_point_left(path):
  module = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
  assert arrows(path.read_text(), module) == []


@pytest.mark.parametrize('path', CODE, ids=name)
def test_sizes(path):
  source = path.read_text()
  tree = ast.parse(source)
  assert source.count('\n') - lines_of_docstrings(tree) <= 400
  if 'tests' not in path.relative_to(ROOT).parts:
    long = [s for s in sized(tree) if s[1] > s[2]]
    assert long == []


@pytest.mark.parametrize('folder', FOLDERS, ids=name)
def test_a_folder_can_be_looked_over(folder):
  files = [p for p in folder.glob('*.py') if p.name != '__init__.py']
  assert len(files) <= 15


def test_the_median_function_is_short():
  lengths = [
    lines
    for path in CODE
    if path.relative_to(ROOT).parts[0] == 'xjax'
    for _, lines, _ in sized(ast.parse(path.read_text()))
  ]
  assert statistics.median(lengths) <= 10


@pytest.mark.parametrize('main', MAINS)
def test_mains_are_thin(main):
  source = (ROOT / 'experiments' / f'{main}.py').read_text()
  assert source.count('\n') <= 80


@pytest.mark.parametrize('path', CODE, ids=name)
def test_files_are_named_by_a_noun(path):
  assert path.stem not in DRAWERS
  assert not re.search(r'(_v\d+|_\d{1,2}|_new|_old|_final|_copy)$', path.stem)


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
  for node in tree.body:
    inner = node.body if isinstance(node, ast.ClassDef) else []
    for function in [node, *inner]:
      if isinstance(function, ast.FunctionDef):
        if not function.name.startswith('_') or function.name == '__init__':
          yield function


@pytest.mark.parametrize(
  'path', [p for p in CODE if p.relative_to(ROOT).parts[0] != 'tests'], ids=name
)
def test_public_arguments_are_annotated(path):
  for function in public_functions(ast.parse(path.read_text())):
    spec = function.args
    for argument in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]:
      where = f'{function.name}({argument.arg})'
      assert argument.annotation or argument.arg in ('self', 'cls'), where


def test_every_room_is_known():
  files = (
    path.relative_to(ROOT / 'xjax') for path in (ROOT / 'xjax').rglob('*.py')
  )
  rooms = {path.parts[0] for path in files if len(path.parts) > 1}
  assert rooms == set(ROOMS) - {'experiments'}


def test_every_module_says_what_it_is():
  for path in CODE:
    tree = ast.parse(path.read_text())
    if tree.body and path.relative_to(ROOT).parts[0] != 'tests':
      assert ast.get_docstring(tree), f'{name(path)} has no docstring'


def tracked() -> list[pathlib.Path]:
  listing = subprocess.run(
    ['git', 'ls-files', '--cached', '--others', '--exclude-standard'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  return [ROOT / line for line in listing.stdout.splitlines()]


def test_it_speaks_of_itself_alone():
  # Not of a machine's folders, nor of who wrote it when and why. .ci/run alone
  # may say where the real data lies.
  foreign = re.compile(
    r'/(root|home|tmp)/\w|\.\./shared'
    r'|\bissues?\b(?! tracking)|(?<![\w&/])#\d+\b',
    re.I,
  )
  assert all(map(foreign.search, ('/home/x', 'see issue 2', '(#12)')))
  for path in tracked():
    if path.is_file() and path.suffix not in ('.npz', '.gz', '.zip'):
      if path.name not in ('run', 'test_house.py'):
        found = foreign.search(path.read_text(errors='replace'))
        assert not found, f'{name(path)}: {found[0]}'


def test_no_test_is_skipped_or_silenced():
  pattern = re.compile(
    r'mark\.(skip|xfail)|pytest\.skip\(|importorskip|type: *ignore'
    r'|\b(TODO|FIXME)\b'
  )
  for path in CODE:
    if path.name != 'test_house.py':
      found = pattern.search(path.read_text())
      assert not found, f'{name(path)}: {found[0]}'


@pytest.mark.parametrize('main', MAINS)
def test_help(main):
  answer = subprocess.run(
    [sys.executable, '-m', f'experiments.{main}', '--help'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert answer.returncode == 0, answer.stderr
  assert '--workdir' in answer.stdout
  assert 'Traceback' not in answer.stderr


def test_readme_starts_with_two_commands():
  readme = (ROOT / 'README.md').read_text()
  install = 'python3 -m venv .venv && .venv/bin/pip install -e '
  assert (
    f'{install}. && .venv/bin/python -m experiments.train '
    '--config=experiments/configs/quickstart.py --workdir=runs/quickstart\n'
  ) in readme
  tests = f"{install}'.[test]' && .venv/bin/python -m pytest -n 3\n"
  assert tests in readme
  assert tests in (ROOT / '.ci' / 'run').read_text()


def test_readme_lists_every_config():
  readme = (ROOT / 'README.md').read_text()
  for path in (ROOT / 'experiments' / 'configs').glob('*.py'):
    assert path.stem == '__init__' or f'| `{path.stem}` |' in readme
