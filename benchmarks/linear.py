r"""Compares our linear models with PECOS, napkinXC, omikuji, LibMultiLabel.

  python benchmarks/linear.py --dataset=bibtex --data=DIR      (some minutes)
  python benchmarks/linear.py --dataset=eurlex57k --data=DIR --folder=DIR
    (an hour, alone, 12 GiB)

The peers run in the Python of tests/parity/peers.sh, or --peer_python. All
systems are trained on the same rows, one after the other, each in its own
process, on two cores, and are judged by our evaluator. eurlex57k and tib_sid_en
(split dev) have TF-IDF of words and pairs of words; bibtex (split test) has its
own features, once normalised to unit length and once unchanged. The settings of
the peers are in linear_systems.py; --only selects some systems.

Prints a line for every system and way of predicting: metrics; seconds of
training; milliseconds per document for the best 5 and the best 100 labels, over
about 2,000 documents (ours batch by batch); MB of the model on disk; the peak
memory in GiB until a model is trained on rows, and the memory before training.
Lists are the best 500 labels, or all labels that a search reaches if there are
fewer. Then it compares our systems with the peers that they should equal:
metrics, and our time and bytes as a share of the first peer's. It exits with 1
if a bound is missed.

--folder keeps the results of all systems; peers with results are not run again.
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
from linear_ours import train_and_time
from linear_rows import RAW, Rows, problems
from measurement import HERE, peer_python, use_cores
import numpy as np
from scipy import sparse

from xjax.core.types import ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.files.judge_files import JudgeFiles, read_judged
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.predictions import Predictions

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

_DATASET = flags.DEFINE_enum(
  'dataset', 'bibtex', list(DATASETS), 'Dataset to run on.'
)
_DATA = flags.DEFINE_string(
  'data', None, 'Folder of the dataset.', required=True
)
_PEER = flags.DEFINE_string('peer_python', None, 'Python that has the peers.')
_ONLY = flags.DEFINE_list('only', [], 'Systems to run; default: all.')
_FOLDER = flags.DEFINE_string(
  'folder', None, 'Folder that keeps results; default: a temporary folder.'
)


@dataclasses.dataclass(frozen=True)
class Row:
  """Holds a line of the table.

  Attributes:
    name: name of the system.
    way: name of its way of predicting.
    metrics: column -> value.
    train: seconds of training.
    ms: milliseconds per document, for the best 5 and the best 100 labels.
    model: bytes of the model on disk.
    peak: peak memory in bytes until the model is trained.
    before: memory in bytes before training.
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
    """Returns the figures named in BOUNDED."""
    return self.train, *self.ms, self.model, self.peak


def main(argv: list[str]) -> None:
  """Runs all systems and compares."""
  del argv
  use_cores(THREADS)
  dataset = DATASETS[_DATASET.value]
  systems = {*dataset.peers, *dataset.ours}
  if unknown := set(_ONLY.value) - systems:
    sys.exit(
      f'--only: {sorted(unknown)} unknown; choose from {sorted(systems)}'
    )
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(_FOLDER.value or temporary).absolute()
    missed = 0
    for name, rows in problems(
      _DATASET.value, dataset.data, _DATA.value, dataset.split
    ):
      missed += compare(dataset, name, rows, folder / name)
  sys.exit(int(missed > 0))


def compare(
  dataset: Dataset, name: str, rows: Callable[[], Rows], folder: pathlib.Path
) -> int:
  """Runs all systems on a problem; returns the number of missed bounds."""
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
  table = []
  for system in _ONLY.value or [*dataset.peers, *dataset.ours]:
    run = peer if system in dataset.peers else ours
    for row in run(system, dataset, name, folder):
      print(line(row), flush=True)
      table.append(row)
  if name.endswith(RAW):
    return 0  # napkinXC and omikuji normalise rows themselves
  kept = [ok for duel in dataset.duels for ok in verdicts(duel, table)]
  return kept.count(False)


def peer(
  name: str, dataset: Dataset, problem: str, folder: pathlib.Path
) -> list[Row]:
  """Runs a peer without results; returns a row per way of predicting."""
  del problem
  out = folder / name
  if not (out / 'figures.json').exists():
    out.mkdir()  # fails on unfinished results, for the user to look at
    script = HERE / 'linear_peer.py'
    python = _PEER.value or peer_python()
    command = [python, script, name, folder / 'rows', out, dataset.beam]
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
      metrics=metrics_of_file(out / f'{way}.npz', folder / 'rows'),
      train=figures['seconds'],
      ms=ms,
      model=figures['model'],
      peak=figures['peak'],
      before=figures['before'],
    )
    for way, ms in figures['ways'].items()
  ]


def environment() -> dict[str, str]:
  """Returns the environment of both sides, with THREADS threads."""
  names = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
  return os.environ | dict.fromkeys(names, str(THREADS))


def metrics_of_file(
  lists: pathlib.Path, rows: pathlib.Path
) -> dict[str, float | None]:
  """Returns the metrics of a file of scores, by our evaluator."""
  depth = int(np.diff(sparse.load_npz(lists).indptr).max())
  files = JudgeFiles(
    lists,
    gold=rows / 'Y_dev.npz',
    train_labels=rows / 'Y_train.npz',
    # Deeper than all lists, so that the reader knows that no list was cut.
    depth=depth + 1,
    score_kind=ScoreKind.MARGIN,
  )
  return metrics_of(read_judged(files)[0])


def metrics_of(predictions: Predictions) -> dict[str, float | None]:
  """Returns column -> value; None if lists are too short for the metric."""
  slices = judge(predictions, Criteria((1, 3, 5), KINDS))[PROTOCOL]
  return {
    column: slices.get(name, {}).get(metric)
    for column, (name, metric) in COLUMNS.items()
  }


def ours(
  name: str, dataset: Dataset, problem: str, folder: pathlib.Path
) -> list[Row]:
  """Trains one of our models by its config and returns its row."""
  file, _, system = dataset.ours[name].partition(':')
  config = file + (system and f':{system}')
  fields = {'data.dir': pathlib.Path(_DATA.value).absolute()}
  fields |= dataset.fields.get(name, {})
  if dataset.data is None:
    fields['data.tokens.norm'] = 'none' if problem.endswith(RAW) else 'l2'
  else:
    fields['data.labels'] = dataset.data.labels
  run = train_and_time(
    config, fields, folder / 'rows', folder / name, dataset.split, environment()
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
  """Returns the row as text."""
  metrics = ''.join(
    f'{"-":>10}' if value is None else f'{100 * value:10.2f}'
    for value in row.metrics.values()
  )
  return (
    f'{f"{row.name}, {row.way}":36}{metrics}{row.train:10.2f}'
    f'{row.ms[0]:9.3f}{row.ms[1]:9.3f}'
    f'{row.model / 1e6:8.1f}{row.peak / 2**30:7.2f}{row.before / 2**30:7.2f}'
  )


def verdicts(duel: Duel, table: Sequence[Row]) -> Iterator[bool]:
  """Compares our system with its peers; yields whether each bound is kept."""
  mine = [row for row in table if row.name == duel.ours]
  ways = [[row for row in table if row.name == peer][:1] for peer in duel.peers]
  peers = [row for rows in ways for row in rows]
  if not mine or not peers:  # left out by --only
    return
  for column in duel.columns:
    value, best = (
      value_of(mine[0], column),
      max(value_of(p, column) for p in peers),
    )
    yield print_verdict(
      duel, f'{column} {value:.4f}, {best:.4f}', value >= best - duel.slack
    )
  for column, least in duel.least.items():
    value = value_of(mine[0], column)
    yield print_verdict(
      duel, f'{column} {value:.4f}, least {least}', value >= least
    )
  pairs = zip(mine[0].figures(), peers[0].figures())
  for field, bound, (our_figure, their_figure) in zip(
    BOUNDED, duel.shares, pairs
  ):
    text = f'{field} {our_figure / their_figure:.2f} of theirs, most {bound}'
    yield print_verdict(duel, text, our_figure / their_figure <= bound)


def value_of(row: Row, column: str) -> float:
  """Returns a metric; -inf if lists are too short for it."""
  value = row.metrics[column]
  return -np.inf if value is None else value


def print_verdict(duel: Duel, text: str, is_kept: bool) -> bool:
  """Prints and returns whether a bound is kept."""
  verdict = 'ok' if is_kept else 'MISSED'
  print(f'{duel.ours} against {" ".join(duel.peers)}: {text}: {verdict}')
  return is_kept


if __name__ == '__main__':
  app.run(main)
