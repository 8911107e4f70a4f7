"""Runs of linear models and label trees: fit, stop, go on, load, predict."""

import copy
import json
import os
import shutil
import signal

import pytest

from tests.fixtures.sparse_runs import RUNS, config_of, contents
from xjax.core.errors import DataError, Interrupted, Preempted
from xjax.core.types import ScoreKind
from xjax.models.features import Featuriser
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.dual import Loss
from xjax.report.terminal.run_summary import run_summary
from xjax.run.fit import fit
from xjax.run.open_run import open_run


@pytest.fixture
def finished(fit_once):
  """Name -> what fit returned; each run is made once."""
  return lambda name: fit_once(f'sparse {name}', config_of(*RUNS[name]))


@pytest.mark.parametrize(
  'name', ['xr', 'names', 'trees', 'taxonomy', 'svm', 'lr']
)
def test_it_learns(finished, name):
  result = finished(name)
  have, prior = (
    x['dev']['xjax']['all'] for x in (result.metrics, result.prior)
  )
  assert have['RP@5'] > prior['RP@5'] + 0.3
  assert have['micro-F1'] > 0.7
  logistic = RUNS[name][1].loss is Loss.LOGISTIC
  wanted = ScoreKind.LOGIT if logistic else ScoreKind.MARGIN
  assert open_run(result.workdir).score_kind is wanted


def test_the_workdir_has_what_the_model_is_and_nothing_else(finished):
  found = finished('trees')
  assert {path.name for path in found.workdir.iterdir()} == {
    *('config.json', 'corpus.json', 'digests.json', 'labels.jsonl'),
    *('concepts.jsonl', 'calibration.json', 'eval', 'features', 'model'),
    'run.json',
  }
  names = {path.name for path in (found.workdir / 'model').iterdir()}
  trees = {f'tree_{number}.npz' for number in range(3)}
  assert names == {*trees, 'search.json'}
  one, two, _ = (found.workdir / 'model' / name for name in sorted(trees))
  assert one.read_bytes() != two.read_bytes()
  assert found.steps == 0 and 'checkpoint' not in run_summary(found)


class Terminated:
  """Saves parts as usual, and has SIGTERM come with some of them."""

  def __init__(self, monkeypatch, every):
    self.saved, self._every = 0, every
    self._save = PartFiles.save
    monkeypatch.setattr(PartFiles, 'save', lambda *args: self.save(*args))

  def save(self, parts, name, arrays):
    self._save(parts, name, arrays)
    self.saved += 1
    if self.saved % self._every == 0:
      is_odd = self.saved // self._every % 2
      os.kill(os.getpid(), signal.SIGTERM if is_odd else signal.SIGINT)


@pytest.mark.parametrize(
  'name', ['trees', pytest.param('lr', marks=pytest.mark.thorough)]
)
def test_a_run_that_is_asked_to_stop_goes_on(
  finished, name, tmp_path, monkeypatch
):
  """In the end all is the same, byte for byte."""
  config, whole = (config_of(*RUNS[name]), contents(finished(name).workdir))
  monkeypatch.setattr('xjax.models.trees.training._PART', 16)
  every = 4 if name == 'trees' else 2
  terminated = Terminated(monkeypatch, every)
  stops = 0
  while True:
    try:
      fit(config, tmp_path / 'run')
      break
    except Preempted:
      stops += 1
  assert stops >= 2 and terminated.saved >= 2 * stops
  assert contents(tmp_path / 'run') == whole


def test_a_signal_while_features_are_computed_stops_at_once(
  tmp_path, monkeypatch
):
  def stopped(featuriser, documents, title):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):  # Python handles the signal here
      pass
    raise AssertionError('the features are computed to the end')

  monkeypatch.setattr(Featuriser, 'in_chunks', stopped)
  with pytest.raises(Interrupted):
    fit(config_of(*RUNS['xr']), tmp_path / 'run')


def test_workers_change_nothing(finished, tmp_path):
  config = config_of(*RUNS['xr'])
  config.train.workers, config.data.workers = 3, 0
  fit(config, tmp_path / 'run')
  found, whole = contents(tmp_path / 'run'), contents(finished('xr').workdir)
  del found['config.json'], whole['config.json']
  digests = [json.loads(files.pop('digests.json')) for files in (found, whole)]
  assert digests[0].pop('config.json') != digests[1].pop('config.json')
  assert digests[0] == digests[1]
  assert found == whole


def test_another_search_is_judged_anew(tmp_path):
  """And nothing is trained anew."""
  config = config_of(*RUNS['complete'])
  config.model.beam = 1
  one = fit(config, tmp_path / 'run')
  path = tmp_path / 'run' / 'model' / 'tree_0.npz'
  before = path.stat().st_mtime_ns
  (left := path.with_suffix('.parts')).mkdir()  # of a run killed at its end
  config.model.beam = 40
  many = fit(copy.deepcopy(config), tmp_path / 'run')
  config.model.exact, config.model.beam = True, 1
  exact = fit(config, tmp_path / 'run')
  assert path.stat().st_mtime_ns == before and not left.exists()
  values = [x.metrics['dev']['xjax']['all']['RP@5'] for x in (one, many, exact)]
  assert values[0] < values[1] == values[2]
  assert fit(config, tmp_path / 'run').metrics == exact.metrics


@pytest.fixture
def copied(finished, tmp_path):
  return shutil.copytree(finished('xr').workdir, tmp_path / 'run')


@pytest.mark.parametrize('name', ['labels.jsonl', 'model/tree_0.npz'])
def test_a_file_of_another_run_is_noticed(copied, finished, name):
  content = (finished('plt').workdir / name).read_bytes()
  if name == 'labels.jsonl':
    content = content.replace(b'"train_count": ', b'"train_count": 1', 1)
  assert content != (copied / name).read_bytes()
  (copied / name).write_bytes(content)
  with pytest.raises(DataError, match=f'{name}: is not the file that this run'):
    open_run(copied)
