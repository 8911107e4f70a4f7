r"""Label trees and one-vs-all beside PECOS, napkinXC, omikuji, LibMultiLabel.

  python benchmarks/linear.py --dataset=bibtex --data=DIR      (some minutes)
  python benchmarks/linear.py --dataset=eurlex57k --data=DIR --folder=DIR
    (an hour, alone, 12 GiB)

The peers' Python is that of tests/parity/peers.sh, or --peer_python. All sides
are trained on the same rows, each in a process of its own, one after the other,
on two cores, and judged by our evaluator: eurlex57k and tib_sid_en (their dev)
on TF-IDF of words and pairs of words, bibtex (its test) on its rows at length 1
and again as they are. Peers are as linear_systems.py says; --only names some of
them, or of ours.

Prints a line for every system and way of predicting: metrics; seconds of
training alone; milliseconds of a document, for its best 5 and best 100 labels,
of about 2,000 (ours batch by batch); MB of the model on disk; GiB held at most
until a model is trained on rows, and before. Lists are the best 500 labels;
where a search ends with fewer, they are all that it reaches. Then ours beside
the peers that they are to equal: metrics, and the share of the first peer's
time and bytes that ours take; exits 1 where a bound is missed.

--folder keeps what all did; what peers did there is not done again.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl import app, flags
from linear_datasets import DATASETS, Dataset, Duel
from linear_ours import trained
from linear_rows import RAW, Rows, problems
import numpy as np
from scipy import sparse

from xjax.core.types import ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.files.judged import JudgeFiles, read_judged
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.predictions import Predictions

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / 'tests' / 'parity' / 'peers.sh'
THREADS = 2
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
BOUNDED = ('train', 'ms@5', 'ms@100', 'model', 'peak')

_DATASET = flags.DEFINE_enum('dataset', 'bibtex', list(DATASETS), 'Which.')
_DATA = flags.DEFINE_string('data', None, 'Its folder.', required=True)
_PEER = flags.DEFINE_string('peer_python', None, 'Has the peers.')
_ONLY = flags.DEFINE_list('only', [], 'Some systems; none named: all.')
_FOLDER = flags.DEFINE_string('folder', None, 'For what all did.')


@dataclasses.dataclass(frozen=True)
class Row:
  """A line of the table.

  Attributes:
    name: of the system.
    way: how it predicts.
    metrics: column -> value.
    train: seconds.
    ms: of a document, for its best 5 and its best 100 labels.
    model: bytes on disk.
    peak: bytes held at most until it is trained.
    before: bytes held before training.
  """

  name: str
  way: str
  metrics: dict[str, float | None]
  train: float
  ms: list[float]
  model: int
  peak: int
  before: int

  def figures(self) -> tuple[float, ...]:
    """Those of BOUNDED."""
    return self.train, *self.ms, self.model, self.peak


def main(argv: list[str]) -> None:
  """Runs all systems and compares."""
  del argv
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
  dataset = DATASETS[_DATASET.value]
  known = {*dataset.peers, *dataset.ours}
  if unknown := set(_ONLY.value) - known:
    sys.exit(f'--only: no {sorted(unknown)} among {sorted(known)}')
  with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(_FOLDER.value or made).absolute()
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
    f'\n{name}\n{"":36}{head}{"train s":>10}{"ms@5":>9}{"ms@100":>9}{"MB":>8}'
    f'{"GiB":>7}{"before":>7}'
  )
  found = []
  for each in _ONLY.value or [*dataset.peers, *dataset.ours]:
    run = peer if each in dataset.peers else ours
    for row in run(each, dataset, name, folder):
      print(line(row), flush=True)
      found.append(row)
  if name.endswith(RAW):
    return 0  # napkinXC and omikuji make rows of length 1 by themselves
  kept = [ok for duel in dataset.duels for ok in verdicts(duel, found)]
  return kept.count(False)


def peer(
  name: str, dataset: Dataset, problem: str, folder: pathlib.Path
) -> list[Row]:
  """Runs a peer, unless that is done; a row for every way of predicting."""
  del problem
  out = folder / name
  if not (out / 'figures.json').exists():
    out.mkdir()  # what is half done is for the user to look at
    script = HERE / 'linear_peer.py'
    command = [peer_python(), script, name, folder / 'rows', out, dataset.beam]
    with (out / 'log.txt').open('w') as log:
      done = subprocess.run(
        map(str, command), stdout=log, stderr=log, env=environment()
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


def peer_python() -> str:
  """The Python that has the peers."""
  if _PEER.value:
    return _PEER.value
  made = subprocess.run([PEERS], check=True, stdout=subprocess.PIPE, text=True)
  return made.stdout.strip()


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
  """Trains a model of ours by its config."""
  file, _, system = dataset.ours[name].partition(':')
  config = f'experiments/configs/{file}.py' + (system and f':{system}')
  fields = {'data.dir': pathlib.Path(_DATA.value).absolute()}
  fields |= dataset.fields.get(name, {})
  if dataset.data is None:
    fields['data.tokens.norm'] = 'none' if problem.endswith(RAW) else 'l2'
  else:
    fields['data.labels'] = dataset.data.labels
  run = trained(
    config,
    fields,
    folder / 'rows',
    folder / name,
    dataset.split,
    environment(),
  )
  row = Row(
    name,
    dataset.ours[name],
    metrics=metrics_of(run.predictions),
    train=run.seconds,
    ms=run.ms,
    model=run.model,
    peak=run.peak,
    before=run.before,
  )
  return [row]


def line(row: Row) -> str:
  """The row as text."""
  metrics = ''.join(
    f'{"-":>10}' if value is None else f'{100 * value:10.2f}'
    for value in row.metrics.values()
  )
  return (
    f'{f"{row.name}, {row.way}":36}{metrics}{row.train:10.2f}'
    f'{row.ms[0]:9.3f}{row.ms[1]:9.3f}'
    f'{row.model / 1e6:8.1f}{row.peak / 2**30:7.2f}{row.before / 2**30:7.2f}'
  )


def verdicts(duel: Duel, found: Sequence[Row]) -> Iterator[bool]:
  """Prints ours beside its peers; yields whether each bound is kept."""
  mine = [row for row in found if row.name == duel.ours]
  ways = [[row for row in found if row.name == peer][:1] for peer in duel.peers]
  peers = [row for rows in ways for row in rows]
  if not mine or not peers:  # --only
    return
  for column in duel.columns:
    have, best = (
      value_of(mine[0], column),
      max(value_of(p, column) for p in peers),
    )
    yield said(
      duel, f'{column} {have:.4f}, {best:.4f}', have >= best - duel.slack
    )
  for column, least in duel.least.items():
    have = value_of(mine[0], column)
    yield said(duel, f'{column} {have:.4f}, least {least}', have >= least)
  pairs = zip(mine[0].figures(), peers[0].figures())
  for field, bound, (own, other) in zip(BOUNDED, duel.shares, pairs):
    text = f'{field} {own / other:.2f} of it, at most {bound}'
    yield said(duel, text, own / other <= bound)


def value_of(row: Row, column: str) -> float:
  """A metric; -inf where lists are too short to tell."""
  value = row.metrics[column]
  return -np.inf if value is None else value


def said(duel: Duel, text: str, kept: bool) -> bool:
  """Prints whether a bound is kept."""
  verdict = 'ok' if kept else 'MISSED'
  print(f'{duel.ours} beside {" ".join(duel.peers)}: {text}: {verdict}')
  return kept


if __name__ == '__main__':
  app.run(main)
