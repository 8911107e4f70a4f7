"""Sets up what all tests share: eight CPU devices, checked types, caches."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import functools
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import time

import hypothesis
import jax
from jaxtyping import install_import_hook
import pytest

# Eight devices make sharding real. This must be set before any backend starts.
# Most whole runs use one device (fixture `devices`); test_overfit.py trains
# each kind of system on two.
jax.config.update('jax_num_cpu_devices', 8)

# Programs of tests run only a few times, so LLVM's optimizer and the emitters
# that fuse through MLIR would take most of the time. XLA's own passes, which
# decide how results are computed, stay on. XLA exits at an unknown flag. Flags
# of whoever starts the tests come last, and so win.
FLAGS = ['--xla_backend_optimization_level=0']
if jax.__version_info__[:2] == (0, 10):
  FLAGS += [
    '--xla_cpu_use_fusion_emitters=false',  # a third of the time
    # Workers share the cores: a program in parts takes a tenth more.
    '--xla_cpu_parallel_codegen_split_count=1',
  ]
os.environ['XLA_FLAGS'] = ' '.join([*FLAGS, os.environ.get('XLA_FLAGS', '')])

# Tests have no deadline, since the machine may be busy.
hypothesis.settings.register_profile('patient', deadline=None)
hypothesis.settings.load_profile('patient')

# Shapes and types of these rooms are checked at every call. The hook must be
# installed before any test imports them. Contracts are left out: they declare
# pytrees, which JAX's transformations fill with specs and None instead of
# arrays. Numba compiles functions of dual and tree_*. model_scorer is left out
# because the checks have been tried with its own tests only.
ROOT = pathlib.Path(__file__).resolve().parents[1]
CONTRACTS = 'head', 'encoder', 'view', 'loss', 'metric'
CHECKED = [
  '.'.join(['xjax', *path.with_suffix('').parts])
  for pattern in (
    'networks/encoders/*.py',
    'networks/heads/*.py',
    'networks/heads/generation/*.py',
    'networks/views/*.py',
    'networks/best_labels.py',
    'networks/topk.py',
    'losses/*.py',
    'judge/metrics/*.py',
    'models/linear/*.py',
    'models/neural/proposer.py',
    'run/strategies/*.py',
  )
  for path in (
    path.relative_to(ROOT / 'xjax')
    for path in sorted((ROOT / 'xjax').glob(pattern))
  )
  if path.stem not in ('__init__', 'dual', 'listed', 'sparse_fit', *CONTRACTS)
]
install_import_hook(CHECKED, 'beartype.beartype')

DEVICES = jax.devices  # all of them, whatever the fixture `devices` says

# These fixtures are shared by tests of several rooms.
pytest_plugins = ['tests.fixtures.runs']

PEERS = pathlib.Path(os.environ.get('XJAX_PEERS_DIR', '/nowhere'))

# Maps each cluster command to the file that stands in for it.
SLURM = 'sbatch', 'srun', 'squeue', 'scancel', 'scontrol'
STAND_INS = {
  **dict.fromkeys(SLURM, 'slurm.py'),
  'gcloud': 'gcloud.py',
  'kubectl': 'kubectl.py',
}

# This variable tells the workers of a pytest run, and the runs of .ci/run,
# where their folder is.
FOLDER = 'XJAX_TESTS_FOLDER'


@functools.cache
def _loads_lightgbm() -> bool:
  from xjax.core.errors import UserError
  from xjax.models.stack.boosted import load_lightgbm

  try:
    return bool(load_lightgbm())
  except UserError:  # small systems lack libgomp
    return False


# A clone may lack these. A test that needs a missing one is left out.
NEEDS = {
  'real_data': lambda: 'XJAX_DATA_DIR' in os.environ,
  'chips': lambda: importlib.util.find_spec('libtpu') is not None,
  'parity': lambda: importlib.util.find_spec('torch') is not None,
  # This file is made last, so all peers are there if it is.
  'peers': (PEERS / 'made_from.txt').exists,
  'gensim': lambda: GENSIM,
  'lightgbm': _loads_lightgbm,
}
# Python 3.14 has no wheel of it.
GENSIM = importlib.util.find_spec('gensim') is not None
collect_ignore = ['train/initial/test_word2vec.py'] * (not GENSIM)


def pytest_configure(config: pytest.Config) -> None:
  """Prepared data and compiled programs go to a folder that is removed.

  Most of the tests' time is compiling, and many compile the same: a program
  compiled once is read again, by the other workers too. Processes that tests
  start, and kill, have a cache of their own, since a kill may leave half an
  entry there.
  """
  if config.option.markexpr == 'chips' and not NEEDS['chips']():
    raise pytest.UsageError("-m chips: pip install -e '.[test,chips]'")
  folder = os.environ.get(FOLDER)
  if folder is None:  # neither a worker nor a run of .ci/run
    folder = tempfile.mkdtemp(prefix='xjax_tests_')
    os.environ[FOLDER] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
  jax.config.update('jax_compilation_cache_dir', f'{folder}/programs')
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  own = pathlib.Path(folder, os.environ.get('PYTEST_XDIST_WORKER', 'alone'))
  os.environ.update(
    XJAX_CACHE_DIR=str(own / 'data'),
    JAX_COMPILATION_CACHE_DIR=str(own / 'programs'),
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
  )


def pytest_collection_modifyitems(
  config: pytest.Config, items: list[pytest.Item]
) -> None:
  def possible(item: pytest.Item) -> bool:
    return all(item.get_closest_marker(n) is None or NEEDS[n]() for n in NEEDS)

  config.hook.pytest_deselected(items=[i for i in items if not possible(i)])
  items[:] = [i for i in items if possible(i)]


@dataclasses.dataclass(frozen=True)
class Cluster:
  """The command lines of clusters, of which stand-ins note every call.

  Attributes:
    folder: of the stand-ins' files.
  """

  folder: pathlib.Path

  def calls(self, having: str = '') -> list[str]:
    """The calls so far that have a text in them."""
    path = self.folder / 'calls'
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if having in line]


@pytest.fixture
def cluster(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
  """Stand-ins come first in PATH: no test asks a real cluster anything."""
  folder = tmp_path / 'cluster'
  (folder / 'bin').mkdir(parents=True)
  (folder / 'started').touch()
  for name, file in STAND_INS.items():
    # Stand-ins start at once without site-packages, which only YAML needs.
    options = '' if name == 'kubectl' else '-S -E'
    words = sys.executable, options, str(ROOT / 'tests' / 'stand_ins' / file)
    path = folder / 'bin' / name
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$0" "$@"\n')
    path.chmod(0o755)
  monkeypatch.setenv('PATH', f'{folder}/bin:{os.environ["PATH"]}')
  monkeypatch.setenv('STAND_IN', str(folder))
  monkeypatch.setenv('POLL', '0.05')
  return Cluster(folder)


@pytest.fixture
def wait_for() -> Callable[..., None]:
  """Waits until a condition is met, in seconds at most."""

  def wait(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
      assert time.monotonic() < until
      time.sleep(0.01)

  return wait


@pytest.fixture(scope='session')
def data_dir() -> pathlib.Path:
  """The folder of real data, for tests marked real_data."""
  return pathlib.Path(os.environ['XJAX_DATA_DIR'])


@pytest.fixture(scope='session')
def devices() -> Callable[[int], contextlib.AbstractContextManager]:
  """As if there were so many: programs for eight compile twice as long."""

  @contextlib.contextmanager
  def so_many(count: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(jax, 'device_count', lambda: count)
      patch.setattr(jax, 'devices', lambda: DEVICES()[:count])
      yield

  return so_many
