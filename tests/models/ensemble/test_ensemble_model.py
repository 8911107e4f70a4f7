"""Runs that average the lists of finished runs."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from tests.fixtures.kinds import KINDS, MEMBERS
from tests.fixtures.sparse_runs import RUNS, config_of
from xjax.core.errors import ConfigError
from xjax.core.processes.lock import locked
from xjax.core.types import PAD
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import GivenFeaturesConfig, Norm
from xjax.judge.predictions import Predictions
from xjax.models.ensemble.ensemble_model import Averaging
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.run_record import RunRecord
from xjax.train.workdir import Workdir

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


@pytest.fixture(scope='module')
def averaged(fitted):
  return fitted('ensemble')


def ensemble_of(*workdirs, averaging=Averaging.RANK):
  """The config of an ensemble on the corpus of the runs."""
  config = KINDS['ensemble'](list(map(str, workdirs)))
  config.model.combine = averaging
  return config


def test_the_lists_of_the_runs_are_averaged(fitted, averaged):
  dev = Predictions.load(averaged.paths['dev'] / 'predictions.npz')
  means_NL = np.zeros((len(dev.gold), len(dev.labels)))
  for name in MEMBERS:
    documents = list(averaged.corpus.split('dev').documents)
    ids_NK = open_run(fitted(name).workdir).lists(documents, 50).ids
    rows, places = np.nonzero(ids_NK != PAD)
    means_NL[rows, ids_NK[rows, places]] += 1 / (places + 1) / len(MEMBERS)
  means_NL = means_NL.astype(np.float32)
  lists = dev.lists['all']
  ids = np.argsort(-means_NL, axis=1, kind='stable')[:, : lists.ids.shape[1]]
  np.testing.assert_array_equal(lists.ids, ids)
  scores = np.take_along_axis(means_NL, ids, axis=1)
  np.testing.assert_allclose(lists.scores, scores, rtol=1e-6)
  assert dev.selected_by == 'runs=2'
  (recall,) = dev.recalls['all'].values()
  assert 0 < recall <= 1


def test_calibrated_probabilities_are_averaged(fitted, tmp_path):
  source = fitted('linear').workdir
  config = ensemble_of(source, averaging=Averaging.SIGMOID)
  result = fit(config, tmp_path / 'run')
  own = dataclasses.replace(open_run(result.workdir), calibration=None)
  theirs = open_run(source).predict(TEXTS, k=20)
  for labels, others in zip(own.predict(TEXTS, k=20), theirs):
    wanted = {label.id: label.score for label in others}
    assert {x.id for x in labels} == wanted.keys()
    scores = [label.score for label in labels]
    np.testing.assert_allclose(
      scores, [wanted[label.id] for label in labels], rtol=1e-5
    )
    assert (np.diff(scores) <= 0).all()


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


FAULTS = [
  (shutil.rmtree, {}, '^config.model.workdirs={run}: there is'),
  (lambda run: shutil.rmtree(run / 'model'), {}, '{run} is not finished'),
  (stop, {}, '{run} is not finished'),
  (exchange_labels, {}, 'label 3 is .*{run}'),
  (lambda run: None, {'n_labels': 30}, '{run}.*label'),
  (lambda run: None, {'zones': ('title',)}, r'^config\.data\.zones=.*all zon'),
]


@pytest.mark.parametrize(('damage', 'data', 'says'), FAULTS)
def test_a_run_that_cannot_be_averaged_is_an_error(
  fitted, tmp_path, damage, data, says
):
  run = shutil.copytree(fitted('linear').workdir, tmp_path / 'run')
  damage(run)
  config = ensemble_of(run)
  config.data = dataclasses.replace(config.data, **data)
  message = fault_of(config, tmp_path)
  assert re.search(says.format(run=run), message)


def test_a_run_that_another_process_uses_is_waited_for(fitted, tmp_path):
  run = shutil.copytree(fitted('linear').workdir, tmp_path / 'run')
  with locked(run):
    message = fault_of(ensemble_of(run), tmp_path)
  assert 'wait until it ends' in message


def test_margins_without_a_calibration_have_no_probabilities(fitted, tmp_path):
  run = shutil.copytree(fitted('linear').workdir, tmp_path / 'run')
  (run / 'calibration.json').unlink()
  config = ensemble_of(run, averaging=Averaging.SIGMOID)
  assert 'margins without a calibration' in fault_of(config, tmp_path)
