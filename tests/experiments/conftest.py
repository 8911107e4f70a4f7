"""experiments.evaluate in this process, and files for it to judge."""

from collections.abc import Callable
import contextlib
import dataclasses
import importlib
import io
import json
import pathlib
import sys

from absl import flags as absl_flags, logging
import numpy as np
import pytest
import scipy.sparse

N_DOCS, N_TRAIN, L = 40, 120, 12


@dataclasses.dataclass
class Done:
  """What a command has left."""

  code: int
  out: str
  err: str


@pytest.fixture(scope='module')
def evaluate() -> Callable[..., Done]:
  """Runs experiments.evaluate here: a process of its own takes seconds."""
  before = set(absl_flags.FLAGS)
  main = importlib.import_module('experiments.evaluate')
  flags = importlib.import_module('experiments.flags')
  ours = set(absl_flags.FLAGS) - before

  def call(*arguments: object) -> Done:
    for name in ours:
      absl_flags.FLAGS[name].unparse()
    out, err = io.StringIO(), io.StringIO()
    verbosity = logging.get_verbosity()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      try:
        argv = ['evaluate', *map(str, arguments)]
        flags._parse(argv, takes_arguments=False)
        code = flags._guarded(lambda _: main.main(), argv)
      except SystemExit as left:
        code = left.code
      finally:
        # A main shows its log; the tests after this one do not ask for it.
        logging.set_verbosity(verbosity)
    return Done(code, out.getvalue(), err.getvalue())

  yield call
  # Other mains have flags of the same names.
  for name in ours:
    delattr(absl_flags.FLAGS, name)
  for name in ('experiments.evaluate', 'experiments.judging_flags'):
    sys.modules.pop(name, None)


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
  words = ({'id': str(i), 'name': f'w{i % 2}'} for i in range(L))
  json_lines(here / 'words.jsonl', words)
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


def ids(row):
  return [str(i) for i in np.flatnonzero(row)]


def json_lines(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


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
    assert done.code == 0, done.err
    metrics = json.loads((out / 'metrics.json').read_text())
    return metrics | {'printed': done.out}

  return call
