"""Runs the mains in this process, and makes files to judge."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import importlib
import io
import json
import logging as python_logging
import os
import pathlib
import subprocess
import sys
import warnings

from absl import app, flags as absl_flags, logging
import numpy as np
import pytest
import scipy.sparse

from tests.fixtures.vector_files import json_lines
from xjax.commands.main import run_command
from xjax.core.types import Ragged, ScoreKind
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_DOCS, N_TRAIN, L = 40, 120, 12


@dataclasses.dataclass
class Done:
  stdout: str
  stderr: str


@pytest.fixture(scope='session')
def run_main(devices) -> Callable[..., Done]:
  """Runs `xjax <name>` here: a process of its own takes seconds.

  The command must leave with `code`.
  """
  # These calls define flags that must outlive the flags of a main.
  app.define_help_flags()
  for library in (
    'grain',
    'xjax.models.neural.neural_model',
    'xjax.report.terminal.run_summary',
  ):
    importlib.import_module(library)
  shared = importlib.import_module('xjax.commands.flags.program')

  def run(
    name: str, *arguments: object, stdin: str = '', code: int = 0
  ) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
      patch.chdir(ROOT)
      # As `python -m experiments.NAME` begins.
      main = str(ROOT / 'experiments' / f'{name}.py')
      patch.setattr(sys, 'argv', [main, *map(str, arguments)])
      patch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(stdin.encode())))
      patch.setattr(shared, 'keep_freed_memory', lambda: None)
      stack.enter_context(devices(1))  # the usual case
      stack.enter_context(contextlib.redirect_stdout(out))
      stack.enter_context(contextlib.redirect_stderr(err))
      stack.enter_context(log_to(err))
      stack.enter_context(own_flags())
      stack.enter_context(warnings.catch_warnings())
      # ml_collections loads config files by load_module().
      warnings.filterwarnings('ignore', r'.*load_module\(\)')
      with pytest.raises(SystemExit) as left:
        run_command(name)
    assert (left.value.code or 0) == code, err.getvalue()
    return Done(out.getvalue(), err.getvalue())

  return run


def run_process(name: str, *arguments: object, code: int = 0) -> Done:
  """Runs `xjax <name>` in a process of its own, on one device."""
  done = subprocess.run(
    [sys.executable, '-m', 'xjax', name, *map(str, arguments)],
    cwd=ROOT,
    env={**os.environ, 'JAX_NUM_CPU_DEVICES': '1'},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == code, done.stderr
  return Done(done.stdout, done.stderr)


@contextlib.contextmanager
def log_to(stream: io.StringIO) -> Iterator[None]:
  """absl's log goes there, and then is as it was before a main's show_log."""
  root, handler = python_logging.getLogger(), logging.get_absl_handler()
  handlers, filters = root.handlers[:], handler.filters[:]
  formatter, level = handler.formatter, logging.get_absl_logger().level
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(handler.python_handler, 'stream', stream)
    try:
      yield
    finally:
      root.handlers[:], handler.filters[:] = handlers, filters
      handler.setFormatter(formatter)
      logging.get_absl_logger().setLevel(level)


@contextlib.contextmanager
def own_flags() -> Iterator[None]:
  """Flags are those of one main: others have flags of the same names."""
  before, level = set(absl_flags.FLAGS), logging.get_absl_logger().level
  try:
    yield
  finally:
    for name in set(absl_flags.FLAGS) - before:
      delattr(absl_flags.FLAGS, name)
    absl_flags.FLAGS.unparse_flags()  # --verbosity sets the level
    logging.get_absl_logger().setLevel(level)


@pytest.fixture(scope='session')
def evaluate(run_main) -> Callable[..., Done]:
  return functools.partial(run_main, 'evaluate')


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> pathlib.Path:
  """Scores of another system, gold and training labels, in many formats."""
  here = tmp_path_factory.mktemp('files')
  rng = np.random.default_rng(0)
  gold = rng.random((N_DOCS, L)) < np.linspace(0.4, 0.02, L)
  gold[:3] = False
  train = rng.random((N_TRAIN, L)) < np.linspace(0.6, 0.005, L)
  train[:50, 2], train[50:, 2] = True, False  # 50 documents
  scores = (rng.random((N_DOCS, L)) + 0.4 * gold) * (
    rng.random(gold.shape) < 0.8
  )
  scores[0, 0] = 1.5
  save = scipy.sparse.save_npz
  save(here / 'scores.npz', scipy.sparse.csr_matrix(scores / 1.6))
  for name, labels in (('gold', gold), ('train', train)):
    xc_text(here / f'{name}.txt', labels)
    save(here / f'{name}.npz', scipy.sparse.csr_matrix(labels.astype(float)))
    rows = ({'id': str(i), 'labels': ids(row)} for i, row in enumerate(labels))
    json_lines(here / f'{name}.jsonl', rows)
  xc_text(here / 'other.txt', train[:N_DOCS])
  np.savetxt(here / 'inv_prop.txt', np.linspace(1, 9, L))
  right = zip(*np.nonzero(gold[:20] & (scores[:20] > 0)), strict=True)
  (here / 'filter.txt').write_text(''.join(f'{d} {i}\n' for d, i in right))
  np.save(here / 'w.npy', rng.random((L, 10)))
  (here / 'odd.txt').write_text('1\n3\n5\n')
  parents = [
    {'id': '0'},
    *({'id': str(i), 'parents': ['0']} for i in range(1, 6)),
  ]
  parents += ({'id': str(i), 'parents': [str(i - 5)]} for i in range(6, L))
  json_lines(here / 'labels.jsonl', parents)
  return here


@pytest.fixture(scope='session')
def two_systems(tmp_path_factory) -> list[pathlib.Path]:
  """Predictions of two systems for four documents."""
  folder = tmp_path_factory.mktemp('two')
  scores = np.tile(np.array([3, 1, -1], np.float32), (4, 1))
  for name, order in (('one', [0, 1, 2]), ('two', [2, 1, 0])):
    lists = LabelLists(np.tile(np.array(order, np.int32), (4, 1)), scores)
    Predictions(
      score_kind=ScoreKind.LOGIT,
      n_scored=3,
      n_train=9,
      doc_ids=tuple('abcd'),
      labels=('x', 'y', 'z'),
      train_counts=np.array([9, 3, 0], np.int32),
      lists={'all': lists},
      gold=Ragged.of([[0], [0, 1], [2], []]),
    ).save(folder / f'{name}.npz')
  return [folder / 'one.npz', folder / 'two.npz']


def ids(row):
  return [str(i) for i in np.flatnonzero(row)]


def xc_text(path, labels):
  rows = (','.join(ids(row)) + ' 0:1' for row in labels)
  path.write_text(f'{len(labels)} 1 {L}\n' + ''.join(r + '\n' for r in rows))


@pytest.fixture(scope='module')
def given(folder) -> tuple[str, ...]:
  return (
    f'--predictions={folder}/scores.npz',
    f'--gold={folder}/gold.txt',
    f'--train_labels={folder}/train.txt',
  )


@pytest.fixture(scope='module')
def judged(evaluate, given, tmp_path_factory) -> Callable[..., dict]:
  """Calls with --output, and gives metrics.json and what was printed."""

  out = tmp_path_factory.mktemp('judged')

  def call(*arguments: object, files: tuple[str, ...] = given) -> dict:
    done = evaluate(*files, *arguments, f'--output={out}')
    metrics = json.loads((out / 'metrics.json').read_text())
    return metrics | {'printed': done.stdout}

  return call
