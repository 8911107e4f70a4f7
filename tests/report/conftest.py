"""Runs made by hand: folders as training leaves them, without training."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import html.parser
import json
import pathlib

import numpy as np
import pytest

from tests.fixtures.vector_files import json_lines
from xjax.core.atomic import write_json
from xjax.core.types import Ragged, ScoreKind
from xjax.data.schema import Label, LabelSpace
from xjax.judge.calibration import Method, calibrate
from xjax.judge.criteria import Criteria
from xjax.judge.files.evaluation import save_evaluation
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.report.run_comparison import judge_runs
from xjax.report.runs import SystemRuns
from xjax.report.sources import read_runs
from xjax.report.table import Table
from xjax.train.workdir import Workdir

N_DOCS, N_LABELS, DEPTH = 12, 8, 8
COUNTS = np.array([60, 55, 30, 12, 9, 3, 1, 0], np.int32)
Maker = Callable[..., pathlib.Path]
COLOUR = {'one': 'red'}
DEV = 'eval/dev/metrics.json'


def texts(table: Table) -> list[list[str]]:
  return [[cell.text for cell in row] for row in table.rows]


def changed(group: SystemRuns, **fields) -> SystemRuns:
  """Returns the group of its first run alone, with other fields."""
  return SystemRuns(group.name, (dataclasses.replace(group.first, **fields),))


def by_propensity(path: pathlib.Path, *propensity: float) -> pathlib.Path:
  with edited(path / 'config.json') as config:
    config['eval']['propensity'] = propensity
  return path


@contextlib.contextmanager
def edited(path: pathlib.Path) -> Iterator[dict]:
  """Gives the content of a JSON file, and writes what becomes of it."""
  content = json.loads(path.read_text())
  yield content
  write_json(path, content)


class Reader(html.parser.HTMLParser):
  """Reads a page, and fails where tags do not match.

  Attributes:
    found: every element: its attributes, and its tag and all text in it.
  """

  def __init__(self, page: str) -> None:
    super().__init__()
    self.found, self._open = [], []
    self.feed(page)
    assert not self._open

  def handle_starttag(self, tag, attrs):
    self.found.append({'tag': tag, 'text': '', **dict(attrs)})
    if tag not in ('meta', 'link', 'img', 'br', 'input'):
      self._open.append(self.found[-1])

  def handle_endtag(self, tag):
    assert self._open.pop()['tag'] == tag

  def handle_data(self, data):
    for element in self._open:
      element['text'] += data

  def of(self, tag: str, class_: str = '') -> list[dict[str, str | None]]:
    """Returns the elements with a tag, and with a class if one is given."""
    found = [x for x in self.found if x['tag'] == tag]
    return [x for x in found if class_ in ['', *x.get('class', '').split()]]

  def needs_nothing_else(self) -> bool:
    names = 'src', 'href'
    links = [x[name] for x in self.found for name in names if name in x]
    return all(link.startswith(('data:', '#')) for link in links)


def predictions(
  seed: int = 0, kind: ScoreKind = ScoreKind.LOGIT, n_train: int = 100
) -> Predictions:
  """Lists of all labels, somewhat right; every seed has the same gold."""
  gold = np.random.default_rng(7)
  rows = [
    np.sort(gold.choice(N_LABELS, gold.integers(1, 4), replace=False)).tolist()
    for _ in range(N_DOCS)
  ]
  scores = np.random.default_rng(seed).normal(size=(N_DOCS, N_LABELS))
  for row, golden in enumerate(rows):
    scores[row, golden] += 1.5
  if kind is ScoreKind.PROBABILITY:
    scores = 1 / (1 + np.exp(-scores))
  ids = np.argsort(-scores, axis=-1, kind='stable')
  return Predictions(
    score_kind=kind,
    n_scored=N_LABELS,
    n_train=n_train,
    doc_ids=tuple(f'd{i}' for i in range(N_DOCS)),
    labels=tuple(f'l{i}' for i in range(N_LABELS)),
    train_counts=COUNTS if n_train else np.zeros(N_LABELS, np.int32),
    lists={
      'all': LabelLists(
        ids.astype(np.int32),
        np.take_along_axis(scores, ids, -1).astype(np.float32),
      )
    },
    gold=Ragged.of(rows),
  )


def make_workdir(
  folder: pathlib.Path, seed: int, units: int = 16, split: str = 'dev'
) -> pathlib.Path:
  home = Workdir.at(folder)
  config = Config(seed=seed)
  config.model.encoder.units = units
  write_json(home.config, to_json(config))
  labels = tuple(
    Label(f'l{i}', f'label <{i}>' if i else 'l0') for i in range(N_LABELS)
  )
  LabelSpace(labels, COUNTS, 100, N_LABELS).save(home.labels)
  write_json(home.corpus, {'n_train': 100})
  found = predictions(seed)
  metrics = judge(found, Criteria(ks=(1, 5)))
  save_evaluation(home.evaluation(split), found, metrics)
  write_json(home.judged(split), {'step': 20, 'files': {}})
  calibrate(found, Method.PLATT, 20, '').save(home.calibration)
  judged = {'all': {'RP@5': 0.5 + seed / 9}}
  records = [
    {'kind': 'train', 'step': 10, 'loss': 1 / 10},
    {'kind': 'train', 'step': 20, 'loss': 1 / 20},
    {'kind': 'judge', 'step': 20, 'metrics': judged},
  ]
  json_lines(home.path / 'metrics.jsonl', records)
  return home.path


@pytest.fixture
def workdir(tmp_path) -> Maker:
  """Makes the folder of a run: workdir(name, seed, units=..., split=...)."""
  return lambda name, *args, **kwargs: make_workdir(
    tmp_path / name, *args, **kwargs
  )


@pytest.fixture(scope='module')
def undrawn() -> Iterator[None]:
  """Leaves the pictures of a page blank, which saves most of its time."""
  with pytest.MonkeyPatch.context() as patch:
    name = 'xjax.report.figures.plots._svg_text'
    patch.setattr(name, lambda axes: '<svg/>')
    yield


@pytest.fixture
def predictions_of() -> Callable[..., Predictions]:
  """predictions_of(seed, kind=..., n_train=...), all of the same documents."""
  return predictions


@pytest.fixture
def group(workdir):
  runs = judge_runs(read_runs([workdir('s0', 0)]), JudgeRequest())
  return SystemRuns('one', tuple(runs))
