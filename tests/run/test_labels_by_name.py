"""Labels added when predicting: their scores, places, and documents."""

import dataclasses
import json

import numpy as np
import pytest

from tests.fixtures.kinds import KINDS
from tests.run import tagging
from xjax.core.errors import DataError
from xjax.data.load import load_corpus
from xjax.judge.files.judge_files import JudgeFiles
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.networks.heads.descriptor_heads import ZeroShotConfig
from xjax.report.page.explanation_page import explanation_page
from xjax.run.evaluate_split import evaluate_files
from xjax.run.fit import fit
from xjax.run.open_run import open_run


@pytest.fixture(scope='module')
def workdir(config, tmp_path_factory):
  """A run whose labels are known by descriptors, two of them held out."""
  model = dataclasses.replace(config.model, head=ZeroShotConfig(chunk=8))
  train = dataclasses.replace(config.train, steps=2, judge_every=2)
  config = dataclasses.replace(config, model=model, train=train)
  return fit(config, tmp_path_factory.mktemp('described') / 'run').workdir


@pytest.fixture(scope='module')
def predictor(workdir):
  return open_run(workdir)


@pytest.fixture(scope='module')
def documents(config):
  split = load_corpus(config.data, config.seed).split('dev')
  return [split.documents[row] for row in range(8)]


@pytest.fixture
def tag(workdir, tmp_path):
  def run(rows, labels, **more):
    file = tmp_path / 'new.txt'
    file.write_text(labels)
    return tagging.tag(workdir, tmp_path, rows, 4, labels=str(file), **more)

  return run


@pytest.mark.thorough
def test_the_artefact_has_them(tag, workdir, predictor, documents):
  space = predictor.space
  own = space.n_trained + space.n_held_out
  name = space.labels[space.held_out[0]].name
  zones = dict(documents[0].zones)
  gold = [space.ids[0], name, 'unheard-of']
  rows = [{'zones': zones, 'labels': gold}, {'text': 'x', 'labels': []}]
  before = tagging.contents(workdir)
  path = tag(rows, f'{name}\n{space.labels[1].name}\n', explain=1)
  assert tagging.contents(workdir) == before
  predictions = Predictions.load(path.with_suffix('.npz'))
  names = name, space.labels[1].name
  assert predictions.labels == (*space.ids[:own], *names, 'unheard-of')
  assert predictions.n_scored == own + 2
  assert predictions.train_counts[own:].tolist() == [0, 0, 0]
  assert predictions.gold[0].tolist() == [0, own, own + 2]
  np.testing.assert_array_equal(predictions.held_out, space.held_out)
  assert predictions.masks['zero'][own:].all()
  zero = predictions.lists['zero'].ids
  assert {own, own + 1} <= set(zero[0].tolist())
  metrics = json.loads(path.with_suffix('.metrics.json').read_text())
  assert metrics['xjax']['zero']['R@10'] == pytest.approx(1 / 2)
  # The prior beside them knows nothing of labels without training documents.
  files = JudgeFiles(path.with_suffix('.npz'))
  prior = evaluate_files(files, JudgeRequest(ks=(1,))).prior['xjax']
  assert prior['zero']['R@1'] is None and prior['all']['R@1'] is not None
  lines = tagging.read_rows(path)
  assert [len(row['labels']) for row in lines] == [4, 4]
  assert all(len(x['why']) == 1 for x in lines[0]['labels'])


def test_a_page_tells_labels_of_one_name_apart(tmp_path):
  result = fit(KINDS['exact_match'](()), tmp_path / 'run')
  label = result.corpus.label_space.labels[0]
  (tmp_path / 'new.jsonl').write_text(
    json.dumps({'id': 'new', 'name': f' {label.name} '})
  )
  rows, options = [{'text': f'x {label.name} y'}], {'explain': 2}
  options |= {'labels': str(tmp_path / 'new.jsonl'), 'page': explanation_page}
  path = tagging.tag(result.workdir, tmp_path, rows, **options)
  page = path.with_suffix('.html').read_text()
  for id_ in (label.id, 'new'):
    assert f'>{label.name} ({id_}) ' in page
  # Programs have the id and the name.
  (row,) = tagging.read_rows(path)
  found = {(x['id'], x['name'].strip()) for x in row['labels']}
  assert found == {(label.id, label.name), ('new', label.name)}


def test_faults_leave_nothing(tag, tmp_path):
  says = r"new.txt: .* names with letters: '\?\?'"
  with pytest.raises(DataError, match=says):
    tag([{'text': 'x'}], 'mani\n??\n')
  with pytest.raises(DataError, match="no vector for any word.*'qqqq'"):
    tag([{'text': 'x'}], 'qqqq\n')
  assert not list(tmp_path.glob('out*'))
