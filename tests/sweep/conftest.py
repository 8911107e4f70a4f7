"""A stand-in for xjax train, and sweeps that it trains in no time."""

from collections.abc import Callable, Iterator
import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy
import sqlalchemy.event

from xjax.models.contract import Config
from xjax.sweep import trials as stored, workers
from xjax.sweep.config import Listed, Sweep
from xjax.sweep.launchers import Launcher
from xjax.sweep.session import SweepFolder, SweepSession
from xjax.sweep.workers import TrialWorkers
from xjax.train.neural_train import NeuralTrain

RATE, FAIL, WAIT = 'train.learning_rate', 'train.clip_norm', 'train.warmup'

# The metric of a stand-in grows to train.learning_rate. With train.clip_norm=1
# the stand-in fails. With train.warmup=1 it waits at its second judging, and
# with 2 also when it is asked to leave. Two at once in a workdir write `twice`.
STAND_IN = """
import ast, json, os, pathlib, signal, sys, time

def leave(*_):
  (workdir / 'asked').touch()
  if train['warmup'] == 2:
    return
  alive.unlink()
  sys.exit(75)

config, workdir = (a.partition('=')[2] for a in sys.argv[1:3])
text = pathlib.Path(config).read_text().partition('_CONFIG = ')[2]
config = ast.literal_eval(text.partition('def get_config')[0].strip())
workdir = pathlib.Path(workdir)
workdir.mkdir(parents=True, exist_ok=True)
with (workdir / 'starts').open('a') as file:
  file.write('.')
alive = workdir / 'alive'
if alive.exists():
  (workdir / 'twice').touch()
alive.write_text(str(os.getpid()))
train = config['train']
signal.signal(signal.SIGTERM, leave)
path = workdir / 'metrics.jsonl'
lines = path.read_text().splitlines() if path.exists() else []
for number in range(len(lines) + 1, 5):
  if train['clip_norm']:
    print('error: not today')
    alive.unlink()
    sys.exit(1)
  value = train['learning_rate'] * number / 4 + config['seed'] / 100
  step = train['steps'] * number // 4
  record = {'kind': 'judge', 'step': step, 'metrics': {'all': {'RP@5': value}}}
  with path.open('a') as file:
    file.write(json.dumps(record) + chr(10))
  while train['warmup'] and number == 2 and not (workdir / 'go').exists():
    time.sleep(0.01)
value = json.loads(path.read_text().splitlines()[-1])['metrics']['all']['RP@5']
(workdir / 'eval' / 'dev').mkdir(parents=True, exist_ok=True)
(workdir / 'eval' / 'dev' / 'metrics.json').write_text(
  json.dumps({'xjax': {'all': {'RP@5': value}}}))
(workdir / 'eval' / 'dev' / 'judged.json').write_text('{"files": {}}')
alive.unlink()
"""


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch) -> None:
  """Lets workers look for the end of a stand-in every 0.01 s."""
  monkeypatch.setattr(workers, '_LOOK_EVERY', 0.01)


@pytest.fixture(autouse=True)
def no_disk() -> Iterator[None]:
  """Switches off waiting for the disk: only a blackout could lose data."""

  def hurry(connection, _) -> None:
    connection.execute('PRAGMA synchronous=OFF')

  event = sqlalchemy.Engine, 'connect', hurry
  sqlalchemy.event.listen(*event)
  yield
  sqlalchemy.event.remove(*event)


STORAGE = stored._storage


@pytest.fixture(scope='session')
def empty_store(tmp_path_factory):
  path = tmp_path_factory.mktemp('store') / 'sweep.db'
  stored.TrialStore(path, Listed(()), None)
  return path


@pytest.fixture(autouse=True)
def copied_store(empty_store, monkeypatch) -> None:
  """Copies one empty database, because Optuna takes long to create one."""

  def copied(path):
    if not path.exists():
      shutil.copy(empty_store, path)
    return STORAGE(path)

  monkeypatch.setattr(stored, '_storage', copied)


@pytest.fixture
def stand_in(tmp_path) -> tuple[str, ...]:
  """Returns the words of a command that replaces xjax train."""
  path = tmp_path / 'stand_in.py'
  path.write_text(STAND_IN)
  return sys.executable, '-S', '-E', str(path)


@pytest.fixture
def session_of(tmp_path, stand_in):
  """Makes the session of a sweep, or of a list of trials."""

  def make(sweep, seeds=1, launcher=Launcher.LOCAL, **config) -> SweepSession:
    if not isinstance(sweep, Sweep):
      sweep = Sweep(Listed(tuple(sweep)))
    folder = SweepFolder.at(tmp_path / 'sweep')
    config = Config(**{'train': NeuralTrain(steps=8), **config})
    return SweepSession(sweep, config, folder, seeds, launcher, stand_in)

  return make


def run(session, workers=1):
  with session.start() as lock:
    return TrialWorkers(session, lock, workers).run()


# The sweep of session_of in a process of its own, to be killed.
SWEEP = """
import json, sys
from xjax.sweep import workers
from xjax.sweep.config import Listed, Sweep
from xjax.sweep.launchers import Launcher
from xjax.sweep.session import SweepFolder, SweepSession
from xjax.train.neural_train import NeuralTrain
from xjax.models.contract import Config
workers._LOOK_EVERY = 0.01
trials, folder, launcher, n_workers, train = map(json.loads, sys.argv[1:])
sweep, config = Sweep(Listed(tuple(trials))), Config(train=NeuralTrain(steps=8))
folder, launcher = SweepFolder.at(folder), Launcher(launcher)
session = SweepSession(sweep, config, folder, 1, launcher, train)
with session.start() as lock:
  workers.TrialWorkers(session, lock, n_workers).run()
"""


def start_sweep(session, workers=1) -> subprocess.Popen:
  folder, launcher = str(session.folder.path), session.launcher.value
  given = session.sweep.search.trials, folder, launcher, workers, session.train
  return subprocess.Popen(
    [sys.executable, '-c', SWEEP, *map(json.dumps, given)]
  )


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
  until = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < until
    time.sleep(0.01)


@contextlib.contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
  """Does the work in a thread beside what is inside."""
  thread = threading.Thread(target=work)
  thread.start()
  yield
  thread.join()
