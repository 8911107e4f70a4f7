"""Runs our side of linear.py by xjax train, as a user would.

  python linear_ours.py predict WORKDIR SPLIT

prints the milliseconds per document for 5 and for 100 labels, after the run's
features were computed.

  python linear_ours.py train WORKDIR ROWS

trains the run's model again, on the same rows as the peers instead of text, and
prints the seconds, the memory in bytes before training, and the peak memory.
The comparison only assumes that our models are saved in WORKDIR/model/.
"""

from collections.abc import Mapping
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

from measurement import memory, seconds_of
import numpy as np
from scipy import sparse

from xjax.core.ranking import Query
from xjax.core.types import Ragged
from xjax.data.documents import Documents
from xjax.data.label_trees.label_tree import TreeInputs
from xjax.data.load import load_corpus
from xjax.judge.predictions import Predictions
from xjax.models import contract
from xjax.models.linear.classifiers import PartFiles
from xjax.run.evaluate_split import evaluate_split
from xjax.run.open_run import OpenRun, open_run
from xjax.train.workdir import Workdir

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The same values as in linear_peer.py.
TIMED = 5, 100  # numbers of labels per document
DOCUMENTS = 2000  # documents that are timed
LEAST = 5.0  # seconds that all turns take together, at least


@dataclasses.dataclass(frozen=True)
class Figures:
  """Holds the predictions and figures of a run.

  Attributes:
    predictions: predictions of the judged split.
    seconds: seconds of training on rows.
    ms: milliseconds per document, for each number of TIMED.
    model: bytes of the model on disk.
    peak: peak memory in bytes until the model is trained on rows.
    before: memory in bytes before training.
  """

  predictions: Predictions
  seconds: float
  ms: list[float]
  model: int
  peak: int
  before: int


def train_and_time(
  config: str,
  fields: Mapping[str, object],
  rows: pathlib.Path,
  workdir: pathlib.Path,
  split: str,
  environment: Mapping[str, str],
) -> Figures:
  """Trains by a config with overridden fields, judges the run and times it."""
  shutil.rmtree(workdir, ignore_errors=True)  # otherwise train would resume it
  command = [sys.executable, '-m', 'xjax', 'train', f'--config={config}']
  command += [f'--config.{name}={value}' for name, value in fields.items()]
  command.append(f'--workdir={workdir}')
  subprocess.run(command, cwd=ROOT, env=environment, check=True)
  ms = run_command('predict', workdir, split, environment)
  seconds, before, peak = run_command('train', workdir, rows, environment)
  files = [path for path in (workdir / 'model').rglob('*') if path.is_file()]
  return Figures(
    predictions=evaluate_split(workdir, split).predictions,
    seconds=seconds,
    ms=ms,
    model=sum(path.stat().st_size for path in files),
    peak=int(peak),
    before=int(before),
  )


def run_command(
  name: str,
  workdir: pathlib.Path,
  argument: str | pathlib.Path,
  environment: Mapping[str, str],
) -> list[float]:
  """Runs this script in another process; returns the numbers it prints last."""
  command = [sys.executable, __file__, name, workdir, argument]
  done = subprocess.run(
    command, stdout=subprocess.PIPE, text=True, check=True, env=environment
  )
  return [float(number) for number in done.stdout.splitlines()[-1].split()]


def train_on_rows(workdir: str, folder: str) -> list[float]:
  """Returns seconds of training, memory before it, and peak memory in bytes."""
  home = Workdir.at(workdir)
  config = contract.load_config(home.config)
  files = (pathlib.Path(folder) / f'{part}_train.npz' for part in 'XY')
  x, y = (sparse.csr_array(sparse.load_npz(file)) for file in files)
  gold = Ragged(y.indptr.astype(np.int64), y.indices.astype(np.int32))
  # Without documents: no compared tree clusters labels by their texts.
  data = TreeInputs(home.label_space(), gold, x)
  never = types.SimpleNamespace(check=lambda: None)  # no signal stops training
  run = contract.Run(config, home, never)

  def train(parts: pathlib.Path) -> None:
    for number in range(config.model.n_trees):
      config.model.train_file(number, data, PartFiles(parts), run)

  before = memory('VmRSS')
  with tempfile.TemporaryDirectory() as parts:
    seconds = seconds_of(lambda: train(pathlib.Path(parts)))
  return [seconds, before, memory('VmHWM')]


def milliseconds(workdir: str, split_name: str) -> list[float]:
  """Returns milliseconds per document, for documents batch by batch."""
  run = open_run(workdir)
  data, seed = run.config.data, run.config.seed
  split = load_corpus(data, seed, run.space, [split_name]).split(split_name)
  # A block remembers its features, which the first turn computes.
  _, block = next(Documents.of_split(split).blocks(DOCUMENTS))
  return [1000 * best_of(run, block, k) / len(block) for k in TIMED]


def best_of(run: OpenRun, documents: Documents, k: int) -> float:
  """Returns the seconds of the best turn, after one turn that compiles."""
  seconds = []
  while len(seconds) < 2 or sum(seconds[1:]) < LEAST:
    seconds.append(seconds_of(lambda: run.rank(documents, Query(k))))
  return min(seconds[1:])


if __name__ == '__main__':
  _, command, *arguments = sys.argv
  commands = {'predict': milliseconds, 'train': train_on_rows}
  print(*commands[command](*arguments))
