"""The code blocks of every page run, one after the other, as a reader would."""

from collections.abc import Iterator
import contextlib
import fcntl
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs import material
from tests.docs.pages import PAGES, ROOT, blocks_of, name_of

# Parts of the checkout that commands name by paths relative to it.
PARTS = ('benchmarks', 'experiments', 'tpu_scripts')
# Its code blocks are files; tests/extending runs them.
FILES_OF_PARTS = 'docs/extending.md'
QUICKSTART = 'runs/quickstart'


def runnable(page: pathlib.Path) -> str:
  """Returns the blocks of a page as one bash script."""
  texts = []
  for block in blocks_of(page):
    if block.language == 'sh' and not block.not_run:
      texts.append(block.text)
    elif block.language == 'python' and name_of(page) != FILES_OF_PARTS:
      texts.append(f"python - <<'END_OF_BLOCK'\n{block.text}END_OF_BLOCK\n")
  return ''.join(texts)


SCRIPTS = {name_of(page): runnable(page) for page in PAGES}
SCRIPTS = {name: script for name, script in SCRIPTS.items() if script}


def quickstart_command() -> str:
  """Returns the training command of the README's first block."""
  block = next(b for b in blocks_of(ROOT / 'README.md') if b.language == 'sh')
  train = block.text.strip().split(' && ')[-1]
  assert QUICKSTART in train
  return train.replace('.venv/bin/python', 'python')


def make_workplace(folder: pathlib.Path) -> None:
  """Makes a folder in which commands run as in a checkout."""
  for name in PARTS:
    (folder / name).symlink_to(ROOT / name)
  (folder / 'bin').mkdir()
  for program, words in (('python', ''), ('xjax', '-m xjax ')):
    path = folder / 'bin' / program
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
    path.chmod(0o755)


def run(script: str, folder: pathlib.Path, optimized: bool = False) -> str:
  """Runs a script in a workplace, and returns what it prints.

  Most commands train for a few steps, so they keep the tests' XLA_FLAGS, which
  compile fast and run slowly, unless `optimized`.
  """
  environment = {**os.environ, 'JAX_NUM_CPU_DEVICES': '1'}
  if optimized:
    environment.pop('XLA_FLAGS', None)
  environment |= {
    'PATH': f'{folder}/bin:{environment["PATH"]}',
    'PYTHONPATH': str(ROOT),
    # Pages stop what they start gently, so no entry is left half written.
    'JAX_COMPILATION_CACHE_DIR': os.environ['XJAX_TESTS_FOLDER'] + '/docs/xla',
  }
  done = subprocess.run(
    ['bash', '-e', '-x', '-c', script],
    cwd=folder,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  assert done.returncode == 0, done.stdout[-5000:]
  return done.stdout


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[None]:
  """Lets one worker of the tests at a time do what is inside."""
  with (folder / 'lock').open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield


@pytest.fixture(scope='session')
def made() -> pathlib.Path:
  """The files that pages read, and quickstart's run, for all workers."""
  folder = pathlib.Path(os.environ['XJAX_TESTS_FOLDER'], 'docs')
  folder.mkdir(exist_ok=True)
  with alone(folder):
    if not (folder / 'done').exists():
      (folder / 'files').mkdir()
      material.write_documents(folder / 'files')
      material.write_xc_files(folder / 'files')
      material.write_encoder(folder / 'files' / 'encoder', folder / 'tiny')
      (folder / 'workplace').mkdir()
      make_workplace(folder / 'workplace')
      log = run(quickstart_command(), folder / 'workplace', optimized=True)
      (folder / 'quickstart.log').write_text(log)
      runs = folder / 'workplace' / QUICKSTART
      shutil.copytree(runs, folder / 'files' / QUICKSTART)
      (folder / 'done').touch()
  return folder / 'files'


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('page', SCRIPTS)
def test_the_blocks_of_a_page_run(page, made, tmp_path):
  shutil.copytree(made, tmp_path, dirs_exist_ok=True)
  make_workplace(tmp_path)
  printed = run(SCRIPTS[page], tmp_path, optimized=page == 'README.md')
  if page == 'README.md':
    shown = next(b.text for b in blocks_of(ROOT / page) if b.language == 'json')
    assert ids_of(shown) and ids_of(shown) in ids_of(printed)


def ids_of(text: str) -> str:
  """Returns the ids of all labels in a text, in their order."""
  return ' '.join(re.findall(r'"id": "(c[0-9]+)"', text))


def figures_of(log: str) -> list[dict[str, float]]:
  """Returns the metrics of each row of the first dev table in a log."""
  lines = log[log.index('dev, checkpoint of step') :].splitlines()
  names = lines[1].split('ranked by')[1].split()
  rows = (re.split(' (?:model|popularity prior) ', x) for x in lines[2:])
  figures = itertools.takewhile(lambda row: len(row) == 2, rows)
  return [dict(zip(names, row[1].split(), strict=True)) for row in figures]


@pytest.mark.thorough
def test_the_readme_shows_what_quickstart_prints(made):
  printed = figures_of((made.parent / 'quickstart.log').read_text())
  log = next(b for b in blocks_of(ROOT / 'README.md') if 'step 600' in b.text)
  shown = figures_of(log.text)
  # README leaves out some columns, and the slice between `all` and `few`.
  lines = [*printed[:2], *printed[4:6]]
  documents = [400, 400, 204, 204]
  for ours, line, n in zip(shown, lines, documents, strict=True):
    for metric, text in ours.items():
      # Other CPUs round in other ways, and so train another model of the same
      # quality. Its figures may differ by two standard errors of a share.
      value = float(text)
      error = 2 * (value * (1 - value) / n) ** 0.5
      assert float(line[metric]) == pytest.approx(value, abs=max(0.02, error))
