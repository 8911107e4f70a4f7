"""Our side of linear.py: runs of experiments.train, as a user has them.

  python linear_ours.py WORKDIR SPLIT

prints milliseconds of a document for 5 and for 100 labels, by a run whose
features are there.
All that the comparison knows of our models: they are in model/, and the seconds
of training alone in model/seconds.json.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import jax

from xjax.core.types import Batch, Scorer
from xjax.data.load import load_corpus
from xjax.evaluate.predictions import Predictions
from xjax.train.evaluation import evaluate_split
from xjax.train.fit import load

ROOT = pathlib.Path(__file__).resolve().parent.parent
# As in linear_peer.py: labels of a document; documents; seconds of all turns.
TIMED, DOCUMENTS, LEAST = (5, 100), 2000, 5.0


@dataclasses.dataclass(frozen=True)
class Run:
  """What is known of a run.

  Attributes:
    predictions: of the judged split.
    seconds: of training alone.
    ms: of a document, for each number of TIMED.
    model: bytes of the model on disk.
    peak: bytes held at most by the whole run, features and judging included.
  """

  predictions: Predictions
  seconds: float
  ms: list[float]
  model: int
  peak: int


def trained(
  config: pathlib.Path,
  fields: Mapping[str, object],
  workdir: pathlib.Path,
  split: str,
  environment: Mapping[str, str],
) -> Run:
  """Trains by a config whose fields are overridden, judges and times."""
  shutil.rmtree(workdir, ignore_errors=True)  # or it would go on in there
  command = [sys.executable, '-m', 'experiments.train', f'--config={config}']
  command += [f'--config.{name}={value}' for name, value in fields.items()]
  peak = peak_of([*command, f'--workdir={workdir}'], environment)
  model = workdir / 'model'
  timed = subprocess.run(
    [sys.executable, __file__, workdir, split],
    stdout=subprocess.PIPE,
    text=True,
    check=True,
    env=environment,
  )
  files = [path for path in model.rglob('*') if path.is_file()]
  return Run(
    predictions=evaluate_split(workdir, split).predictions,
    seconds=json.loads((model / 'seconds.json').read_text())['training'],
    ms=[float(ms) for ms in timed.stdout.split()[-len(TIMED) :]],
    model=sum(path.stat().st_size for path in files),
    peak=peak,
  )


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


def peak_of(command: list[str], environment: Mapping[str, str]) -> int:
  """Runs a command; bytes that it and its processes held at most together."""
  process = subprocess.Popen(
    command, cwd=ROOT, env=environment, start_new_session=True
  )
  most = 0
  while process.poll() is None:
    # Its own peak is exact; of several processes, memory they share is once.
    together = sum(held(pid, 'smaps_rollup', 'Pss') for pid in session(process))
    most = max(most, together, held(process.pid, 'status', 'VmHWM'))
    time.sleep(0.2)
  if process.returncode:
    sys.exit(f'failed: {" ".join(command)}')
  return most


def session(leader: subprocess.Popen) -> Iterator[int]:
  """Yields the processes that one has started, and itself."""
  for path in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      if os.getsid(int(path.name)) == leader.pid:
        yield int(path.name)


def held(pid: int, file: str, name: str) -> int:
  """Bytes, as a file of /proc has them; 0 where the process has ended."""
  with contextlib.suppress(OSError):
    text = pathlib.Path(f'/proc/{pid}/{file}').read_text()
    found = re.search(rf'^{name}:\s+(\d+) kB', text, re.M)
    return int(found[1]) * 1024 if found else 0
  return 0


if __name__ == '__main__':
  print(*milliseconds(sys.argv[1], sys.argv[2]))
