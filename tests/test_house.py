"""The house rules: sizes, names, command lines; test_rooms.py has the rooms."""

import ast
import collections
from collections.abc import Iterator
import functools
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
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
  for path in (ROOT / 'xjax' / 'commands').glob('*.py')
  if path.stem not in ('__init__', 'main')
)
INIT = '__init__.py'
# These are lowered as the folders shrink.
MOST_LINES = {'xjax': 66_610, 'tests': 57_470}
DRAWERS = {'utils', 'util', 'helpers', 'helper', 'misc', 'common', 'tools'}


def name(path: pathlib.Path) -> str:
  return str(path.relative_to(ROOT))


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text())


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
  long = 'def f():\n' + '  x = 1\n' * 61
  assert list(sized(ast.parse(long))) == [('f', 62, 60)]
  beside = 'def f():\n  for _ in x:\n    pass\n' + '  x = 1\n' * 61
  assert list(sized(ast.parse(beside))) == [('f', 64, 60)]
  loop = 'def f():\n  for _ in x:\n' + '    x = 1\n' * 61
  assert list(sized(ast.parse(loop))) == [('f', 63, 80)]
  assert lines_of_docstrings(ast.parse('"""A\n\nb\n"""\nx = 1\n')) == 4
  assert MAINS and len(CODE) > 10 and len(FOLDERS) > 20


def test_files_and_functions_are_short():
  long = []
  for path in CODE:
    tree = tree_of(path)
    lines = path.read_text().count('\n') - lines_of_docstrings(tree)
    if lines > 400:
      long.append(f'{name(path)}: {lines} lines without docstrings')
    if 'tests' not in path.relative_to(ROOT).parts:
      long += [
        f'{name(path)}: {function} has {lines} lines'
        for function, lines, limit in sized(tree)
        if lines > limit
      ]
  assert long == []


def test_the_house_stays_small():
  lines = collections.Counter()
  for path in CODE:
    lines[path.relative_to(ROOT).parts[0]] += path.read_text().count('\n')
  assert {x: lines[x] for x in MOST_LINES if lines[x] > MOST_LINES[x]} == {}
  # A file that nobody could look for by itself belongs to another.
  tiny = [
    name(path)
    for path in CODE
    if path.parts[len(ROOT.parts)] == 'xjax'
    and path.name != INIT
    and path.read_text().count('\n') < 60
  ]
  assert len(tiny) <= 30, tiny


def test_a_folder_can_be_looked_over():
  files = {
    name(folder): len([p for p in folder.glob('*.py') if p.name != INIT])
    for folder in FOLDERS
    if folder.name != 'configs'  # a list, not a room to look over
  }
  assert {folder: n for folder, n in files.items() if n > 15} == {}


def test_every_folder_of_the_package_is_installed():
  # setup.py finds the folders that have an __init__.py.
  assert [name(f) for f in FOLDERS if not (f / INIT).exists()] == []


def test_the_median_function_is_short():
  lengths = [
    lines
    for path in CODE
    if path.relative_to(ROOT).parts[0] == 'xjax'
    for _, lines, _ in sized(tree_of(path))
  ]
  assert statistics.median(lengths) <= 10


def test_mains_are_thin():
  sources = {
    main: (ROOT / 'xjax' / 'commands' / f'{main}.py').read_text()
    for main in MAINS
  }
  lines = {
    main: source.count('\n') - lines_of_docstrings(ast.parse(source))
    for main, source in sources.items()
  }
  assert {main: n for main, n in lines.items() if n > 80} == {}


def test_files_are_named_by_a_noun():
  version = re.compile(r'(_v\d+|_\d{1,2}|_new|_old|_final|_copy)$')
  stems = {path.stem for path in CODE}
  assert [s for s in stems if s in DRAWERS or version.search(s)] == []


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
  for node in tree.body:
    inner = node.body if isinstance(node, ast.ClassDef) else []
    for function in [node, *inner]:
      if isinstance(function, ast.FunctionDef):
        if not function.name.startswith('_') or function.name == '__init__':
          yield function


def test_public_arguments_are_annotated():
  bare = [
    f'{name(path)}: {function.name}({argument.arg})'
    for path in CODE
    if path.relative_to(ROOT).parts[0] != 'tests'
    for function in public_functions(tree_of(path))
    for argument in arguments_of(function)
    if not argument.annotation and argument.arg not in ('self', 'cls')
  ]
  assert bare == []


def arguments_of(function: ast.FunctionDef) -> list[ast.arg]:
  spec = function.args
  return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]


def test_every_module_says_what_it_is():
  for path in CODE:
    tree = tree_of(path)
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
    if path.is_file() and path.suffix not in ('.npz', '.gz', '.zip', '.png'):
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


def test_readme_starts_with_two_commands():
  readme = (ROOT / 'README.md').read_text()
  install = 'python3 -m venv .venv && .venv/bin/pip install -e '
  assert (
    f"{install}'.[all]' && .venv/bin/python -m experiments.train "
    '--config=experiments/configs/quickstart.py --workdir=runs/quickstart\n'
  ) in readme
  tests = f"{install}'.[test]' && .venv/bin/python -m pytest -n 3\n"
  assert tests in readme
  assert tests in (ROOT / '.ci' / 'run').read_text()
