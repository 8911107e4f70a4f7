r"""Label trees and one-vs-all beside PECOS, napkinXC, omikuji, LibMultiLabel.

  python benchmarks/linear.py --dataset=bibtex --data=DIR --peer_python=PYTHON
  python benchmarks/linear.py --dataset=eurlex57k --data=DIR --peer_python=...
    (half an hour, alone, 12 GiB)

PYTHON is that of tests/parity/peers.sh. All sides are trained on the same rows,
each in a process of its own, one after the other, on two cores, and judged by
our evaluator: eurlex57k and tib_sid_en (their dev) on TF-IDF of words and pairs
of words, bibtex (its test) on its rows at length 1 and again as they are. Peers
are as linear_systems.py says; --only names some of them, or of ours.

Prints a line for every system and way of predicting: metrics; seconds of
training alone; milliseconds of a document, of the best 100 labels where all
documents are given at once; MB of the model on disk; GiB held at most until the
model is trained, and before training. Lists are the best 500 labels; where a
search ends with fewer, they are all that it reaches. Then what ours take of the
peer that they are to equal; exits 1 where that exceeds a bound.

--folder keeps what all did; what peers did there is not done again.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from absl import app, flags
import jax
from linear_rows import Rows, problems
import numpy as np
from scipy import sparse

from xjax.core.types import ScoreKind
from xjax.data.config import DataConfig, Eurlex57kData, JsonlData
from xjax.data.load import load_corpus
from xjax.evaluate.criteria import Criteria
from xjax.evaluate.judge import PROTOCOL, judge
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.score_files import JudgeFiles, read_judged
from xjax.train.evaluation import evaluate_split
from xjax.train.fit import load

HERE = pathlib.Path(__file__).resolve().parent
THREADS, TIMED = 2, 100  # TIMED labels are predicted where that is timed
KINDS = ('P@k', 'RP@k', 'nDCG@k', 'PSP@k', 'coverage@k')
COLUMNS = {
  'P@1': ('all', 'P@1'),
  'P@3': ('all', 'P@3'),
  'P@5': ('all', 'P@5'),
  'RP@5': ('all', 'RP@5'),
  'nDCG@5': ('all', 'nDCG@5'),
  'PSP@5': ('all', 'PSP@5'),
  'few RP@5': ('few', 'RP@5'),
  'cov@5': ('all', 'coverage@5'),
}
FLAT = ('pecos_flat', 'napkinxc_flat', 'libmultilabel_flat', 'svm', 'lr')
TREES = ('pecos', 'napkinxc', 'omikuji', 'libmultilabel')
BOUNDED = ('train', 'ms', 'model', 'peak')


@dataclasses.dataclass(frozen=True)
class Dataset:
  """What is run on a dataset.

  Attributes:
    split: that is judged.
    data: of ours, but for the folder; None: files of features.
    peers: names of linear_systems.SYSTEMS.
    beam: of searches.
    ours: what a model of ours is called -> its config.
    bounded: whether ratios to peers are held to their bounds.
  """

  split: str
  data: DataConfig | None
  peers: tuple[str, ...]
  beam: int
  ours: dict[str, str]
  bounded: bool = False


DATASETS = {
  'eurlex57k': Dataset(
    split='dev',
    data=Eurlex57kData(labels='label_universe.txt'),
    peers=TREES,
    beam=10,
    ours={
      'ours xr_linear': 'eurlex57k_xr_linear',
      'ours plt': 'eurlex57k_plt',
      'ours svm': 'eurlex57k_tfidf_svm',
      'ours lr': 'eurlex57k_tfidf_lr',
    },
    bounded=True,
  ),
  'tib_sid_en': Dataset(
    split='dev',
    data=JsonlData(labels='all', zones=('title', 'abstract')),
    peers=('pecos',),
    beam=20,
    ours={'ours xr_linear': 'tib_sid_xr_linear'},
  ),
  'bibtex': Dataset(
    split='test',
    data=None,
    peers=TREES + FLAT,
    beam=10,
    ours={
      'ours xr_linear': 'xc_xr_linear',
      'ours plt': 'xc_plt',
      'ours svm': 'xc_svm',
    },
  ),
}
# Of ours: (peer, its way of predicting, bound of each of BOUNDED's ratios).
BOUNDS = {
  'ours xr_linear': ('pecos', 'beam', (1.0, 1.0, 1.0, 1.0)),
  'ours plt': ('napkinxc', 'exact', (0.8, 0.2, 1.0, 1.0)),
}

_DATASET = flags.DEFINE_enum('dataset', 'bibtex', list(DATASETS), 'Which.')
_DATA = flags.DEFINE_string('data', None, 'Its folder.', required=True)
_PEER = flags.DEFINE_string('peer_python', None, 'Of the peers.')
_ONLY = flags.DEFINE_list('only', [], 'Some systems; none named: all.')
_FOLDER = flags.DEFINE_string('folder', None, 'For what all did.')
_TIMED = flags.DEFINE_string('timed', None, 'Alone: times a run of ours.')


@dataclasses.dataclass(frozen=True)
class Row:
  """A line of the table.

  Attributes:
    name: of the system.
    way: how it predicts.
    metrics: column -> value.
    train: seconds.
    ms: of a document.
    model: bytes on disk.
    peak: bytes held at most until it is trained.
    before: bytes held before training; None: not known.
  """

  name: str
  way: str
  metrics: dict[str, float | None]
  train: float
  ms: float
  model: int
  peak: int
  before: int | None = None


def main(argv: list[str]) -> None:
  """Runs all systems and compares."""
  del argv
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
  if _TIMED.value:
    print(milliseconds(_TIMED.value))
    return
  dataset = DATASETS[_DATASET.value]
  with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(_FOLDER.value or made)
    missed = 0
    for name, rows in problems(
      _DATASET.value, dataset.data, _DATA.value, dataset.split
    ):
      missed += compare(dataset, name, rows, folder / name)
  sys.exit(int(missed > 0))


def compare(
  dataset: Dataset,
  name: str,
  rows: Callable[[], Rows],
  folder: pathlib.Path,
) -> int:
  """Runs all systems on a problem and prints; how many bounds are missed."""
  data = folder / 'rows'
  if not data.exists():
    part = folder / 'part'
    part.mkdir(parents=True, exist_ok=True)
    for key, matrix in rows().items():
      sparse.save_npz(part / f'{key}.npz', matrix)
    part.rename(data)
  head = ''.join(f'{column:>10}' for column in COLUMNS)
  print(
    f'\n{name}\n{"":36}{head}{"train s":>10}{"ms/doc":>9}{"MB":>8}'
    f'{"GiB":>7}{"before":>7}'
  )
  found = []
  wanted = _ONLY.value or [*dataset.peers, *dataset.ours]
  for each in [*dataset.peers, *dataset.ours]:
    if each in wanted:
      run = peer if each in dataset.peers else ours
      for row in run(each, dataset, name, folder):
        print(line(row), flush=True)
        found.append(row)
  return sum(verdicts(row, found, dataset.bounded) for row in found)


def peer(
  name: str, dataset: Dataset, problem: str, folder: pathlib.Path
) -> list[Row]:
  """Runs a peer, unless that is done; a row for every way of predicting."""
  del problem
  out = folder / name
  if not (out / 'figures.json').exists():
    out.mkdir()  # what is half done is for the user to look at
    command = [_PEER.value, HERE / 'linear_peer.py', name, folder / 'rows', out]
    with (out / 'log.txt').open('w') as log:
      done = subprocess.run(
        [*command, str(dataset.beam)], stdout=log, stderr=log, env=environment()
      )
    if done.returncode:
      sys.exit(f'{name} failed:\n' + (out / 'log.txt').read_text()[-2000:])
  figures = json.loads((out / 'figures.json').read_text())
  return [
    Row(
      name,
      way,
      metrics=judged(out / f'{way}.npz', folder / 'rows'),
      train=figures['seconds'],
      ms=ms,
      model=figures['model'],
      peak=figures['peak'],
      before=figures['before'],
    )
    for way, ms in figures['ways'].items()
  ]


def environment() -> dict[str, str]:
  """Variables of both sides: as many threads as there are cores for them."""
  names = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
  return os.environ | dict.fromkeys(names, str(THREADS))


def judged(lists: pathlib.Path, rows: pathlib.Path) -> dict[str, float | None]:
  """The metrics of a file of scores, by our evaluator."""
  depth = int(np.diff(sparse.load_npz(lists).indptr).max())
  files = JudgeFiles(
    lists,
    gold=rows / 'Y_dev.npz',
    train_labels=rows / 'Y_train.npz',
    # Longer than any, so that a list that is not cut is known to be whole.
    depth=depth + 1,
    score_kind=ScoreKind.MARGIN,
  )
  return metrics_of(read_judged(files)[0])


def metrics_of(predictions: Predictions) -> dict[str, float | None]:
  """Column -> value; None: lists are too short to tell."""
  slices = judge(predictions, Criteria((1, 3, 5), KINDS))[PROTOCOL]
  return {
    column: slices.get(name, {}).get(metric)
    for column, (name, metric) in COLUMNS.items()
  }


def ours(
  name: str, dataset: Dataset, problem: str, folder: pathlib.Path
) -> list[Row]:
  """Trains a model of ours by its config; this is all that knows of them.

  Relies on model/train.json in the workdir, {"seconds", "features_seconds"} of
  training, on the folder model/, and on the field data.tokens.norm of configs
  for feature files.
  """
  workdir = folder / name.replace(' ', '_')
  shutil.rmtree(workdir, ignore_errors=True)  # or it would go on in there
  config = HERE.parent / 'experiments' / 'configs' / f'{dataset.ours[name]}.py'
  command = [sys.executable, '-m', 'experiments.train', f'--config={config}']
  command += [f'--config.data.dir={_DATA.value}', f'--workdir={workdir}']
  if dataset.data is None:
    norm = 'none' if problem.endswith('raw') else 'l2'
    command.append(f'--config.data.tokens.norm={norm}')
  else:
    command.append(f'--config.data.labels={dataset.data.labels}')
  peak = peak_of(command)
  model = workdir / 'model'
  seconds = json.loads((model / 'train.json').read_text())['seconds']
  timed = [sys.executable, __file__, f'--timed={workdir}', *sys.argv[1:]]
  done = subprocess.run(
    timed, stdout=subprocess.PIPE, text=True, check=True, env=environment()
  )
  found = evaluate_split(workdir, dataset.split).predictions
  files = [path for path in model.rglob('*') if path.is_file()]
  row = Row(
    name,
    dataset.ours[name],
    metrics=metrics_of(found),
    train=seconds,
    ms=float(done.stdout.split()[-1]),
    model=sum(path.stat().st_size for path in files),
    peak=peak,
  )
  return [row]


def milliseconds(workdir: str) -> float:
  """Of a document, by a run of ours; features are there already."""
  predictor, dataset = load(workdir), DATASETS[_DATASET.value]
  config = predictor.config
  corpus = load_corpus(
    config.data, config.seed, predictor.space, [dataset.split]
  )
  split = corpus.split(dataset.split)
  batches = list(predictor.batches(split))

  def predict() -> None:
    jax.block_until_ready([predictor.topk(batch, TIMED) for batch in batches])

  predict()  # compiles, for every width that batches have
  start = time.perf_counter()
  predict()
  return 1000 * (time.perf_counter() - start) / len(split)


def peak_of(command: list[str]) -> int:
  """Runs a command; bytes that it and its processes held at most together."""
  process = subprocess.Popen(
    command, cwd=HERE.parent, env=environment(), start_new_session=True
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


def line(row: Row) -> str:
  """The row as text."""
  metrics = ''.join(
    f'{"-":>10}' if value is None else f'{100 * value:10.2f}'
    for value in row.metrics.values()
  )
  before = '' if row.before is None else f'{row.before / 2**30:7.2f}'
  return (
    f'{f"{row.name}, {row.way}":36}{metrics}{row.train:10.2f}{row.ms:9.3f}'
    f'{row.model / 1e6:8.1f}{row.peak / 2**30:7.2f}{before}'
  )


def verdicts(row: Row, found: list[Row], bounded: bool) -> int:
  """Prints what a row of ours takes of its peer; how many bounds it misses."""
  name, way, bounds = BOUNDS.get(row.name, ('', '', ()))
  peers = [r for r in found if r.name == name and r.way.startswith(way)]
  missed = 0
  for other in peers[:1]:
    for field, bound in zip(BOUNDED, bounds):
      ratio = getattr(row, field) / getattr(other, field)
      verdict = 'ok' if ratio <= bound else 'MISSED'
      missed += bounded and ratio > bound
      print(
        f'{row.name} / {name}, {other.way}: {field} {ratio:.2f}'
        + (f' (bound {bound}: {verdict})' if bounded else '')
      )
  return missed


if __name__ == '__main__':
  app.run(main)
