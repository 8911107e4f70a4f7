"""Our side of linear.py: runs of experiments.train, as a user has them.

  python linear_ours.py predict WORKDIR SPLIT

prints milliseconds of a document for 5 and for 100 labels, by a run whose
features are there.

  python linear_ours.py train WORKDIR ROWS

trains such a run's model once more, on the rows that peers get and not on text,
and prints seconds, and bytes held before that and at most until its end.
All that the comparison knows of our models: they are in model/.
"""

from collections.abc import Mapping
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import jax
from linear_peer import held, seconds_of
import numpy as np
from scipy import sparse

from xjax.config.json import load_config
from xjax.core.types import Batch, Ragged, Scorer
from xjax.data.load import load_corpus
from xjax.judge.predictions import Predictions
from xjax.run.evaluate import evaluate_split
from xjax.run.fit import load
from xjax.run.sparse import train_linear, train_tree
from xjax.score.config import LinearModel
from xjax.score.linear.part_files import PartFiles
from xjax.score.trees.contract import TreeData
from xjax.train.workdir import Workdir

ROOT = pathlib.Path(__file__).resolve().parent.parent
# As in linear_peer.py: labels of a document; documents; seconds of all turns.
TIMED, DOCUMENTS, LEAST = (5, 100), 2000, 5.0


@dataclasses.dataclass(frozen=True)
class Run:
  """What is known of a run.

  Attributes:
    predictions: of the judged split.
    seconds: of training alone, on rows.
    ms: of a document, for each number of TIMED.
    model: bytes of the model on disk.
    peak: bytes held at most until it is trained on rows.
    before: bytes held before that.
  """

  predictions: Predictions
  seconds: float
  ms: list[float]
  model: int
  peak: int
  before: int


def trained(
  config: str,
  fields: Mapping[str, object],
  rows: pathlib.Path,
  workdir: pathlib.Path,
  split: str,
  environment: Mapping[str, str],
) -> Run:
  """Trains by a config whose fields are overridden, judges and times."""
  shutil.rmtree(workdir, ignore_errors=True)  # or it would go on in there
  command = [sys.executable, '-m', 'experiments.train', f'--config={config}']
  command += [f'--config.{name}={value}' for name, value in fields.items()]
  command.append(f'--workdir={workdir}')
  subprocess.run(command, cwd=ROOT, env=environment, check=True)
  ms = printed('predict', workdir, split, environment)
  seconds, before, peak = printed('train', workdir, rows, environment)
  files = [path for path in (workdir / 'model').rglob('*') if path.is_file()]
  return Run(
    predictions=evaluate_split(workdir, split).predictions,
    seconds=seconds,
    ms=ms,
    model=sum(path.stat().st_size for path in files),
    peak=int(peak),
    before=int(before),
  )


def printed(
  what: str,
  workdir: pathlib.Path,
  of: str | pathlib.Path,
  environment: Mapping[str, str],
) -> list[float]:
  """What this script prints last, in a process of its own."""
  command = [sys.executable, __file__, what, workdir, of]
  done = subprocess.run(
    command, stdout=subprocess.PIPE, text=True, check=True, env=environment
  )
  return [float(number) for number in done.stdout.splitlines()[-1].split()]


def trained_on_rows(workdir: str, folder: str) -> list[float]:
  """Seconds of training, bytes held before it and at most until its end."""
  home = Workdir.at(workdir)
  config, space = load_config(home.config), home.label_space()
  files = (pathlib.Path(folder) / f'{part}_train.npz' for part in 'XY')
  x, y = (sparse.csr_array(sparse.load_npz(file)) for file in files)
  gold = Ragged(y.indptr.astype(np.int64), y.indices.astype(np.int32))
  # No documents: a tree by texts of labels is not among those compared.
  data = TreeData(space, gold, x)

  def train(parts: pathlib.Path) -> None:
    if isinstance(config.model, LinearModel):
      train_linear(config, data, PartFiles(parts), lambda: None)
      return
    for tree in range(config.model.n_trees):
      train_tree(config, data, tree, PartFiles(parts), lambda: None)

  before = held('VmRSS')
  with tempfile.TemporaryDirectory() as parts:
    seconds = seconds_of(lambda: train(pathlib.Path(parts)))
  return [seconds, before, held('VmHWM')]


def milliseconds(workdir: str, split_name: str) -> list[float]:
  """Of a document, where all are given one batch after the other."""
  run = load(workdir)
  data, seed = run.config.data, run.config.seed
  split = load_corpus(data, seed, run.space, [split_name]).split(split_name)
  batches, n = [], 0
  for batch in run.batches(split):
    if n < DOCUMENTS:
      batches.append(batch)
      n += int(batch.mask_B.sum())
  return [1000 * best_of(run, batches, k) / n for k in TIMED]


def best_of(run: Scorer, batches: list[Batch], k: int) -> float:
  """Seconds of the best of some turns; the first compiles."""
  seconds = []
  while len(seconds) < 2 or sum(seconds[1:]) < LEAST:
    start = time.perf_counter()
    jax.block_until_ready([run.topk(batch, k) for batch in batches])
    seconds.append(time.perf_counter() - start)
  return min(seconds[1:])


if __name__ == '__main__':
  _, what, *given = sys.argv
  print(*{'predict': milliseconds, 'train': trained_on_rows}[what](*given))
