"""Tests fit from a config to judged predictions, and again in its workdir."""

import copy
import json
import logging
import re
import shutil

import numpy as np
import pytest

from tests.fixtures.kills import kill
from xjax.core.errors import ConfigError, DataError, UserError
from xjax.data.load import load_corpus
from xjax.data.schema import LabelSpace
from xjax.models.contract import load_config
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.loop import Loop
from xjax.train.neural_train import Schedule
from xjax.train.preemption import Preempted
from xjax.train.run_record import RunRecord
from xjax.train.saved_steps import intact_steps, read_meta
from xjax.train.workdir import Workdir


def changed(config, **fields):
  config = copy.deepcopy(config)
  for path, value in fields.items():
    holder, *names = config, *path.split('__')
    for name in names[:-1]:
      holder = getattr(holder, name)
    setattr(holder, names[-1], value)
  return config


def test_workdir_is_as_described(config, finished):
  folder = finished.workdir
  assert load_config(folder / 'config.json') == config
  assert config.train.steps == 6  # it is not changed
  corpus = load_corpus(config.data, config.seed)
  described = json.loads((folder / 'corpus.json').read_text())
  assert described == {
    'n_train': 40,
    'splits': {'train': 40, 'dev': 16, 'test': 16},
    'digests': {name: s.digest for name, s in corpus.splits.items()},
    'fingerprint': corpus.fingerprint,
    'taxonomy': corpus.label_space.taxonomy_digest,
  }
  space = LabelSpace.load(folder / 'labels.jsonl', 40)
  assert space.ids == corpus.label_space.ids
  assert space.n_held_out == 2
  assert {path.name for path in folder.iterdir()} == {
    *('config.json', 'corpus.json', 'digests.json', 'labels.jsonl'),
    *('features', 'checkpoints', 'calibration.json', 'metrics.jsonl'),
    *('run.json', 'tb', 'eval'),
  }
  assert intact_steps(folder / 'checkpoints')[-1] == 6
  record = RunRecord.read(Workdir.at(folder))
  assert record.steps == 6 and record.finished
  assert record.seconds > 0 and record.model_bytes > 10_000
  for name in ('dev', 'test'):
    assert finished.paths[name] == folder / 'eval' / name
    assert {path.name for path in finished.paths[name].iterdir()} == {
      *('judged.json', 'metrics.csv', 'metrics.json', 'predictions.npz')
    }


def test_result_is_what_was_written(finished):
  assert finished.steps == 6
  assert finished.best_step in (3, 6)
  for name, metrics in finished.metrics.items():
    path = finished.paths[name] / 'metrics.json'
    assert json.loads(path.read_text()) == metrics
    slices = {'all', 'frequent', 'few', 'zero', 'held_out'}
    assert set(metrics['xjax']) == slices
    assert set(finished.prior[name]['xjax']) == set(metrics['xjax'])
  dev, test = (finished.metrics[n]['xjax']['all'] for n in ('dev', 'test'))
  assert dev['threshold-tuned'] == test['threshold-tuned']
  assert dev['micro-F1-tuned'] >= dev['micro-F1']


def test_more_steps_continue(config, workdir, caplog):
  caplog.set_level(logging.INFO)
  more = changed(config, train__steps=8, train__log_every=2)
  result = fit(more, workdir, profile=(7, 8))
  assert result.steps == 8
  assert list((workdir / 'profile').rglob('*.xplane.pb'))
  assert 'config changed: train.steps: 6 -> 8' in caplog.text
  assert 'resuming at step 6 of 8' in caplog.text
  assert load_config(workdir / 'config.json') == more
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  steps = [json.loads(line)['step'] for line in lines]
  assert steps == sorted(steps) and steps[-1] == 8


def refused(config, workdir):
  """The message of a config that a workdir refuses and does not save."""
  before = (workdir / 'config.json').read_bytes()
  with pytest.raises(ConfigError) as error:
    fit(config, workdir)
  assert (workdir / 'config.json').read_bytes() == before
  return str(error.value)


def test_fewer_steps_than_were_taken_are_refused(config, workdir):
  assert refused(changed(config, train__steps=4), workdir).startswith(
    f'config.train.steps=4: the run in {workdir} has already taken 6 steps'
  )


@pytest.mark.thorough
def test_a_schedule_that_ends_keeps_its_steps(config, tmp_path):
  workdir = tmp_path / 'run'
  cosine = changed(config, train__schedule=Schedule.COSINE)
  fit(cosine, workdir)
  for n in (4, 12):
    message = refused(changed(cosine, train__steps=n), workdir)
    assert message.startswith(f'config.train.steps={n}: the cosine schedule')
    assert 'ends at step 6' in message
    assert f'config.train.init_from={workdir}' in message
  assert fit(cosine, workdir).steps == 6


def test_a_damaged_best_checkpoint_is_not_used(config, workdir, caplog):
  best = fit(config, workdir).best_step
  assert best != 6
  shutil.rmtree(workdir / 'eval')
  (workdir / 'checkpoints' / str(best) / 'checkpoint.json').write_text('{')
  assert fit(config, workdir).best_step == 6
  assert f'checkpoints/{best} is damaged' in caplog.text
  assert (workdir / 'checkpoints' / 'damaged' / str(best)).is_dir()
  assert open_run(workdir).step == 6


def test_another_corpus_is_refused(config, workdir):
  path = workdir / 'corpus.json'
  described = json.loads(path.read_text())
  path.write_text(json.dumps({**described, 'fingerprint': 'other'}))
  with pytest.raises(DataError, match='was started on another corpus'):
    fit(config, workdir)


def test_another_vocabulary_is_refused(config, workdir):
  path = workdir / 'features' / 'vocab.txt'
  first, second, *rest = path.read_text().splitlines(True)
  path.write_text(''.join([second, first, *rest]))
  with pytest.raises(DataError, match='vocab.txt: is not the file that this'):
    fit(config, workdir)


def test_a_warm_start_is_not_looked_up_again(
  config, workdir, tmp_path, monkeypatch
):
  warm = changed(config, train__init_from=str(workdir), train__steps=1)
  best = read_meta(workdir / 'checkpoints', 6)['best_step']
  expected = read_params(workdir / 'checkpoints', best)
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, Loop, 'run')
    fit(warm, tmp_path / 'warm')
  folder = tmp_path / 'warm' / 'checkpoints'
  assert intact_steps(folder) == [0]
  np.testing.assert_array_equal(
    read_params(folder, 0)['embedding/table'], expected['embedding/table']
  )
  shutil.rmtree(workdir)
  assert fit(warm, tmp_path / 'warm').steps == 1


@pytest.mark.parametrize(
  'fields, says',
  [
    ({'mesh__data': 3}, 'mesh.data=3'),
    ({'train__batch_size': 12}, 'train.batch_size=12 must be a multiple of 8'),
    ({'train__freeze': ('*/*',)}, 'freeze=.* nothing would be left to train'),
    ({'train__best_metric': 'frequent/P@1'}, 'frequent/P@1 has no value'),
    (
      {'train__init_from': '/nowhere'},
      'init_from=/nowhere: .* has no checkpoint',
    ),
  ],
)
def test_impossible_configs(all_devices, config, tmp_path, fields, says):
  with pytest.raises(ConfigError, match=says):
    fit(changed(config, **fields), tmp_path / 'run')


def test_workdir_in_the_way(config, tmp_path):
  file = tmp_path / 'file'
  file.write_text('')
  with pytest.raises(ConfigError, match='must be a folder, not a file'):
    fit(config, file)
  (tmp_path / 'run' / 'checkpoints').mkdir(parents=True)
  with pytest.raises(DataError, match='no config.json'):
    fit(config, tmp_path / 'run')


def test_no_dev_split(config, tmp_path, caplog):
  caplog.set_level(logging.INFO)
  alone = changed(config, data__n_dev=0, train__steps=2, train__patience=1)
  result = fit(alone, tmp_path / 'run')
  assert caplog.text.count('no dev split') == 1
  assert 'no split dev, so scores are not calibrated' in caplog.text
  assert (result.best_step, set(result.metrics)) == (2, {'test'})
  assert 'micro-F1-tuned' not in result.metrics['test']['xjax']['all']


def test_a_loss_that_is_not_finite_names_the_documents(config, tmp_path):
  wild = changed(config, train__learning_rate=1e38, train__judge_every=16)
  with pytest.raises(UserError) as error:
    fit(wild, tmp_path / 'run')
  message = str(error.value)
  assert 'training stopped at step 2: loss' in message
  assert 'epoch 0, batch 1, documents' in message
  train = load_corpus(config.data, config.seed).split('train')
  named = re.search('documents (.*?)[.] The', message)[1].split(', ')
  assert len(named) > 4 and set(named) <= set(train.ids)
  assert intact_steps(tmp_path / 'run' / 'checkpoints') == [1]
