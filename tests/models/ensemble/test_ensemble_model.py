"""Runs that average the lists of finished runs of several kinds."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from tests.fixtures.sparse_runs import N_DEV, N_LABELS, RUNS, config_of
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.config import GivenFeaturesConfig, Norm
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.judge.predictions import Predictions
from xjax.models.ensemble.average import Averaging
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.run_record import RunRecord
from xjax.train.train_config import NoTrain
from xjax.train.workdir import Workdir

NAMES = 'plt', 'svm', 'neural'
TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


@pytest.fixture(scope='module')
def workdirs(joined, tmp_path_factory):
  """Workdirs of runs that read TF-IDF features, or words in buckets."""
  folder = tmp_path_factory.mktemp('runs')
  trees = [fit(config_of(*RUNS[x]), folder / x).workdir for x in NAMES[:2]]
  return [*trees, joined.workdir / 'stages' / 'encoder']


def ensemble_of(*workdirs, averaging=Averaging.RANK, **options):
  """The config of an ensemble on the corpus of the runs."""
  config = config_of(*RUNS['plt'])
  model = EnsembleModel(
    tuple(map(str, workdirs)), averaging, depth=20, **options
  )
  return dataclasses.replace(config, model=model, train=NoTrain())


@pytest.fixture(scope='module')
def averaged(workdirs, tmp_path_factory):
  folder = tmp_path_factory.mktemp('averaged') / 'run'
  return fit(ensemble_of(*workdirs), folder)


def dev_of(result):
  return Predictions.load(result.paths['dev'] / 'predictions.npz')


def lists_of(workdir, corpus):
  """Returns the first 20 labels of each document of dev, int32 [N, 20]."""
  documents = list(corpus.split('dev').documents)
  return open_run(workdir).lists(documents, 20).ids


def test_the_lists_of_the_runs_are_averaged(workdirs, averaged):
  means_NL = np.zeros((N_DEV, N_LABELS))
  for workdir in workdirs:
    ids_NK = lists_of(workdir, averaged.corpus)
    rows, places = np.nonzero(ids_NK != PAD)
    means_NL[rows, ids_NK[rows, places]] += 1 / (places + 1) / len(workdirs)
  means_NL = means_NL.astype(np.float32)
  ids = np.argsort(-means_NL, axis=1, kind='stable')[:, :20]
  dev = dev_of(averaged)
  np.testing.assert_array_equal(dev.lists['all'].ids, ids)
  scores = np.take_along_axis(means_NL, ids, axis=1)
  np.testing.assert_allclose(dev.lists['all'].scores, scores, rtol=1e-6)
  assert dev.selected_by == 'runs=3'
  assert 0 < dev.recalls['all'][f'union recall@{3 * 20}'] <= 1


def test_an_ensemble_needs_no_other_folder(workdirs, averaged, tmp_path):
  copies = [tmp_path / name for name in NAMES]
  for workdir, target in zip(workdirs, copies):
    shutil.copytree(workdir, target)
  result = fit(ensemble_of(*copies), tmp_path / 'run')
  assert result.metrics == averaged.metrics
  for target in copies:
    shutil.rmtree(target)
  expected = open_run(averaged.workdir).predict(TEXTS, k=3)
  assert open_run(tmp_path / 'run').predict(TEXTS, k=3) == expected
  again = fit(ensemble_of(*copies), tmp_path / 'run')
  assert again.metrics == averaged.metrics


def test_calibrated_probabilities_are_averaged(workdirs, tmp_path):
  config = ensemble_of(workdirs[1], averaging=Averaging.SIGMOID)
  result = fit(config, tmp_path / 'run')
  own = dataclasses.replace(open_run(result.workdir), calibration=None)
  theirs = open_run(workdirs[1]).predict(TEXTS, k=20)
  for labels, others in zip(own.predict(TEXTS, k=20), theirs):
    wanted = {label.id: label.score for label in others}
    assert {x.id for x in labels} == wanted.keys()
    scores = [label.score for label in labels]
    np.testing.assert_allclose(
      scores, [wanted[label.id] for label in labels], rtol=1e-5
    )
    assert (np.diff(scores) <= 0).all()


def test_an_ensemble_can_be_a_run_of_another(workdirs, averaged, tmp_path):
  both = averaged.workdir, workdirs[0]
  fit(ensemble_of(*both, weights=(2.0, 1.0)), tmp_path / 'run')
  assert len(open_run(tmp_path / 'run').predict(TEXTS, k=3)) == len(TEXTS)


def test_runs_on_files_of_features_are_averaged(tmp_path):
  for split, n in (('train', 20), ('dev', 8)):
    rows = (f'{i % 3} {i % 3}:1.0 {3 + i % 4}:0.5' for i in range(n))
    text = '\n'.join([f'{n} 7 3', *rows]) + '\n'
    (tmp_path / f'{split}.txt').write_text(text)
  config = config_of(*RUNS['svm'])
  tokens = GivenFeaturesConfig(Norm.L2)
  config.data = XcFeaturesData(dir=str(tmp_path), tokens=tokens)
  fit(config, tmp_path / 'source')
  both = dataclasses.replace(ensemble_of(tmp_path / 'source'), data=config.data)
  result = fit(both, tmp_path / 'run')
  assert result.metrics['dev']['xjax']['all']['P@1'] == 1
  model = open_run(tmp_path / 'run')
  model.warmup()
  documents = result.corpus.split('dev').documents
  assert [x[0].id for x in model.predict(documents, 1)][:4] == list('0120')
  both.data.tokens.norm = Norm.NONE
  assert 'must read the same features' in fault_of(both, tmp_path)


def fault_of(config, tmp_path):
  """Returns the error of a run that cannot start; it must leave no files."""
  folder = tmp_path / 'new'
  with pytest.raises(ConfigError) as error:
    fit(config, folder)
  assert not (folder / 'config.json').exists()
  assert not (folder / 'stages').exists()
  return str(error.value)


def stop(run):
  record = RunRecord.read(Workdir.at(run))
  stopped = dataclasses.asdict(dataclasses.replace(record, finished=''))
  (run / 'run.json').write_text(json.dumps(stopped))


def exchange_labels(run):
  labels = run / 'labels.jsonl'
  lines = labels.read_text().splitlines(keepends=True)
  lines[3], lines[4] = lines[4], lines[3]
  labels.write_text(''.join(lines))
  (run / 'digests.json').unlink()


def lose_calibration(run):
  (run / 'calibration.json').unlink()


MARGINS = 'margins without a calibration.*combine=RANK.*--split=dev'


@pytest.mark.parametrize(
  ('damage', 'averaging', 'says'),
  [
    (shutil.rmtree, Averaging.RANK, '^config.model.workdirs={run}: there is'),
    (
      lambda run: shutil.rmtree(run / 'model'),
      Averaging.RANK,
      '{run} is not finished',
    ),
    (stop, Averaging.RANK, '{run} is not finished'),
    (lose_calibration, Averaging.SIGMOID, MARGINS),
    (exchange_labels, Averaging.RANK, 'label 3 is .*{run}'),
  ],
)
def test_a_run_that_cannot_be_averaged_is_an_error(
  workdirs, tmp_path, damage, averaging, says
):
  run = shutil.copytree(workdirs[1], tmp_path / 'run')
  damage(run)
  message = fault_of(ensemble_of(run, averaging=averaging), tmp_path)
  assert re.search(says.format(run=run), message)


@pytest.mark.parametrize(
  ('field', 'value', 'says'),
  [
    ('n_labels', 90, '{run}.*label'),
    ('zones', ('title',), r'^config\.data\.zones=.*all zones'),
  ],
)
def test_runs_must_have_the_labels_and_zones_of_the_corpus(
  workdirs, tmp_path, field, value, says
):
  config = ensemble_of(workdirs[0])
  setattr(config.data, field, value)
  assert re.search(says.format(run=workdirs[0]), fault_of(config, tmp_path))
