"""Labels added when predicting: their scores, places, and documents."""

import dataclasses
import json

import numpy as np
import pytest

from tests.run import tagging
from xjax.core.errors import DataError
from xjax.data.config import WordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.schema import Label
from xjax.judge.files.judged import JudgeFiles
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.run.evaluate import evaluate_files
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.neural_train import NeuralTrain


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


def test_scored_as_a_held_out_label_of_that_name(predictor, documents):
  space = predictor.space
  held, n_scored = space.held_out, space.n_trained + space.n_held_out
  new = [Label(f'new-{i}', space.labels[i].name) for i in reversed(held)]
  more = predictor.with_labels(new)
  assert more.space.ids[:n_scored] == space.ids[:n_scored]
  assert more.space.ids[n_scored : n_scored + 2] == ('new-15', 'new-14')
  before = predictor.predict(documents, 99)
  after = more.predict(documents, 99)
  for old, now in zip(before, after, strict=True):
    scores = {x.id: x.score for x in now}
    assert len(scores) == len(old) + 2 == n_scored + 2
    for label in old:
      assert scores[label.id] == pytest.approx(label.score, abs=1e-5)
    for i, added in zip(reversed(held), new, strict=True):
      known = scores[space.ids[i]]
      assert scores[added.id] == pytest.approx(known, abs=1e-6)
  names = {x.id: x.name for x in after[0]}
  assert names['new-15'] == space.labels[15].name
  # The first one is as it was.
  assert len(predictor.predict(documents[:1], 99)[0]) == n_scored


@pytest.fixture
def tag(workdir, tmp_path):
  def run(rows, labels, **more):
    file = tmp_path / 'new.txt'
    file.write_text(labels)
    return tagging.tag(workdir, tmp_path, rows, 4, labels=str(file), **more)

  return run


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
  # The prior beside them ranks the run's own zero-shot labels, then the new.
  n = int(predictions.masks['zero'][:own].sum())
  files = JudgeFiles(path.with_suffix('.npz'))
  asked = JudgeRequest(ks=(n, n + 1))
  prior = evaluate_files(files, asked).prior['xjax']['zero']
  assert prior[f'R@{n}'] == 0
  assert prior[f'R@{n + 1}'] == pytest.approx(1 / 2)
  lines = tagging.read_rows(path)
  assert [len(row['labels']) for row in lines] == [4, 4]
  assert all(len(x['why']) == 1 for x in lines[0]['labels'])


def test_faults_leave_nothing(tag, tmp_path):
  with pytest.raises(DataError, match=r"new.txt:2: the name '\?\?' has no let"):
    tag([{'text': 'x'}], 'mani\n??\n')
  with pytest.raises(DataError, match="no vector for any word.*'qqqq'"):
    tag([{'text': 'x'}], 'qqqq\n')
  assert not list(tmp_path.glob('out*'))


def config_of(labels):
  tokens = WordsConfig(max_tokens=64, buckets=(64,), min_count=1)
  words = EmbeddingConfig(32, 0.1, 0.0, init_scale=1.0, frozen=True)
  encoder = CNNConfig(filters=64, dropout=0.1)
  sizes = {'n_train': 800, 'n_dev': 200, 'n_test': 0}
  when = dict.fromkeys(('steps', 'checkpoint_every', 'judge_every'), 250)
  return Config(
    data=SyntheticData(**sizes, labels=labels, workers=1, tokens=tokens),
    model=NeuralModel(words, encoder, head=UnifiedConfig(hidden_labels=8)),
    train=NeuralTrain(batch_size=32, learning_rate=5e-3, **when),
  )


@pytest.mark.thorough
def test_their_documents_rank_them_high(tmp_path):
  corpus = load_corpus(config_of('corpus').data, 0)
  space, dev = corpus.label_space, corpus.split('dev')
  new = {int(i) for i in np.argsort(-space.train_counts)[3:90:6]}
  known = [id_ for i, id_ in enumerate(space.ids) if i not in new]
  (tmp_path / 'known.txt').write_text('\n'.join(known))
  config = config_of(str(tmp_path / 'known.txt'))
  workdir = fit(config, tmp_path / 'run').workdir
  names = {space.labels[i].name: space.ids[i] for i in new}
  file = tmp_path / 'new.txt'
  file.write_text('\n'.join(names))
  documents = [dev.documents[row] for row in range(len(dev))]
  rows = [{'zones': dict(d.zones)} for d in documents]
  out = tagging.tag(workdir, tmp_path, rows, 5, labels=str(file))
  about, others = [], []
  for document, row in zip(documents, tagging.read_rows(out), strict=True):
    top = {label['id'] for label in row['labels']}
    for label, id_ in names.items():
      (about if id_ in document.labels else others).append(label in top)
  assert len(about) > 100
  # In the top 5 of 200: a fifth, as against one document in seventy.
  assert np.mean(about) > 0.1 > 4 * np.mean(others)
