"""Runs whose documents come as vectors of an outside encoder."""

import copy
import pathlib
import shutil

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from tests.run.tagging import read_rows, tag, write_rows
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.schema import Label
from xjax.data.tokens_config import FeatureFilesConfig
from xjax.judge.predictions import Predictions
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.encoder import NoEncoder
from xjax.networks.encoders.feature_vectors import FeaturesConfig
from xjax.networks.heads.descriptor_heads import ZeroShotConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers
from xjax.networks.pooling import MeanConfig, NoPooling
from xjax.run.evaluate_split import evaluate_split
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.neural_train import NeuralTrain
from xjax.train.parameters import CONCEPTS, DESCRIPTORS

L, SIZES = 12, {'train': 40, 'dev': 10, 'test': 9}
STEPS = 60


def gold(name: str) -> list[list[int]]:
  rng = np.random.default_rng(SIZES[name])
  return [
    sorted(rng.permutation(L)[: rng.integers(1, 5)]) for _ in range(SIZES[name])
  ]


def ids(name: str) -> list[str]:
  return [f'{name}-{row}' for row in range(SIZES[name])]


def save_features(
  folder: pathlib.Path, name: str, vectors: np.ndarray, of: list[str]
) -> None:
  np.save(folder / f'{name}.npy', vectors)
  (folder / f'{name}.ids.txt').write_text('\n'.join(of) + '\n')


def vectors_of(name: str) -> np.ndarray:
  """A 1 for each gold label, and a little of everything."""
  vectors = np.zeros((SIZES[name], L), np.float32)
  for row, labels in enumerate(gold(name)):
    vectors[row, labels] = 1
  return vectors


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('features')
  for name in SIZES:
    rows = (
      {'id': id_, 'text': '-', 'labels': [f'l{i:02d}' for i in labels]}
      for id_, labels in zip(ids(name), gold(name), strict=True)
    )
    write_rows(folder / f'{name}.jsonl', rows)
    save_features(folder, name, vectors_of(name), ids(name))
  return folder


@pytest.fixture(scope='module')
def settings(folder) -> Config:
  return Config(
    data=JsonlData(dir=str(folder), tokens=FeatureFilesConfig(), workers=1),
    model=NeuralModel(
      *(FeaturesConfig(dim=L, dropout=0.1), NoEncoder()),
      *(MeanConfig(), OneVsAllConfig()),
    ),
    train=NeuralTrain(
      batch_size=8,
      steps=STEPS,
      learning_rate=0.3,
      checkpoint_every=20,
      judge_every=STEPS,
    ),
    eval=shrink(Config()).eval,
  )


@pytest.fixture(scope='module')
def frozen(settings, tmp_path_factory):
  return fit(settings, tmp_path_factory.mktemp('frozen') / 'run')


def scores_of(result) -> np.ndarray:
  return Predictions.load(result.paths['dev'] / 'predictions.npz').lists['all']


def moved(config: Config, folder: pathlib.Path) -> Config:
  config = copy.deepcopy(config)
  config.data.tokens.dir = str(folder)
  return config


def copied(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
  shutil.copytree(folder, to)
  for path in to.glob('*.jsonl'):
    path.unlink()
  return to


def test_features_that_tell_the_labels_are_learnt(frozen):
  for name in ('dev', 'test'):
    metrics = frozen.metrics[name]['xjax']['all']
    assert metrics['R-Precision'] == 1.0
    assert frozen.prior[name]['xjax']['all']['R-Precision'] < 0.8


def test_other_features_are_another_corpus(settings, folder, frozen, tmp_path):
  there = copied(folder, tmp_path / 'there')
  workdir = shutil.copytree(frozen.workdir, tmp_path / 'run')
  longer = moved(settings, there)
  longer.train.steps += 1
  assert fit(longer, workdir).steps == STEPS + 1
  save_features(there, 'dev', vectors_of('dev') + 1, ids('dev'))
  with pytest.raises(DataError, match='was started on another corpus'):
    fit(longer, workdir)


def test_states_of_tokens(settings, folder, tmp_path):
  there = copied(folder, tmp_path / 'there')
  for name in SIZES:
    states = [np.eye(L, dtype=np.float16)[labels] for labels in gold(name)]
    save_features(there, name, np.concatenate(states), ids(name))
    np.save(there / f'{name}.lengths.npy', [len(s) for s in states])
  config = moved(settings, there)
  config.data.tokens.max_tokens, config.data.tokens.buckets = 4, (2, 4)
  config.model.pooling = NoPooling()
  config.model.head = LabelAttentionConfig()
  result = fit(config, tmp_path / 'run')
  assert result.metrics['dev']['xjax']['all']['R-Precision'] > 0.9


def test_another_size_is_refused(settings, tmp_path):
  config = copy.deepcopy(settings)
  config.model.embedding.dim = 5
  with pytest.raises(ConfigError) as raised:
    fit(config, tmp_path / 'run')
  message = str(raised.value)
  assert 'model.embedding.dim=5' in message
  assert f'train.npy has vectors of size {L}' in message
  assert not (tmp_path / 'run').exists()


def test_documents_are_judged_and_predicted_alike(frozen):
  evaluate_split(frozen.workdir, 'test')
  saved = Predictions.load(frozen.paths['test'] / 'predictions.npz')
  predictor = open_run(frozen.workdir)
  found = predictor.predict(ids('test'), 3, features=list(vectors_of('test')))
  for row, labels in enumerate(found):
    at = saved.lists['all'].ids[row, :3]
    assert [label.id for label in labels] == [saved.labels[i] for i in at]
  states = [vector[None] for vector in vectors_of('test')]
  assert predictor.predict(ids('test'), 3, features=states) == found
  assert predictor.predict([], 3, features=[]) == []


def test_features_for_prediction_are_asked_for_and_checked(frozen):
  predictor = open_run(frozen.workdir)
  with pytest.raises(ConfigError, match='--features=STEM'):
    predictor.predict(['a'])
  says = r'features: 1 array\(s\) for 2 documents'
  with pytest.raises(DataError, match=says):
    predictor.predict(['a', 'b'], features=[np.zeros(L)])
  with pytest.raises(DataError, match=r'documents\[1\].* shape \(5,\)'):
    predictor.predict(['a', 'b'], features=[np.zeros(L), np.zeros(5)])


def test_a_file_is_tagged_with_its_features(frozen, folder, tmp_path):
  rows, stem = read_rows(folder / 'test.jsonl')[::-1], str(folder / 'test')
  found = read_rows(tag(frozen.workdir, tmp_path, rows, 2, features=stem))
  assert [row['id'] for row in found] == ids('test')[::-1]
  for row, labels in zip(found, gold('test')[::-1], strict=True):
    wanted = {f'l{i:02d}' for i in labels}
    best = {label['id'] for label in row['labels']}
    assert len(best & wanted) == min(2, len(wanted))
  with pytest.raises(ConfigError, match='--features=STEM'):
    tag(frozen.workdir, tmp_path, rows, 2)
  with pytest.raises(DataError, match='9 of 9 documents are missing'):
    tag(frozen.workdir, tmp_path, rows, 2, features=str(folder / 'dev'))


def test_labels_with_vectors_are_scored_unseen(settings, folder, tmp_path):
  there = copied(folder, tmp_path / 'there')
  config = moved(settings, there)
  config.data.hold_out_labels = 2
  config.model.pooling, config.model.head = NoPooling(), ZeroShotConfig()
  labels = [f'l{i:02d}' for i in range(L)]
  with pytest.raises(DataError, match=r'labels\.npy: no such file'):
    fit(config, tmp_path / 'run')
  vectors = np.eye(L, dtype=np.float32)
  save_features(there, 'labels', vectors[1:], labels[1:])
  with pytest.raises(DataError, match="1 of 12 .* missing, such as 'l00'"):
    fit(config, tmp_path / 'run')
  save_features(there, 'labels', vectors[:, :7], labels)
  with pytest.raises(ConfigError, match=r'dim=12: .*labels\.npy .* size 7'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
  save_features(there, 'labels', vectors[::-1], labels[::-1])
  result = fit(config, tmp_path / 'run')
  saved = Predictions.load(result.paths['dev'] / 'predictions.npz')
  ranked = saved.lists['held_out'].ids[:, :2]
  assert (np.sort(ranked, axis=1) == saved.held_out).all()
  predictor = open_run(result.workdir)
  assert len(predictor.predict(['a'], L, [np.ones(L)])[0]) == L
  with pytest.raises(ConfigError, match='cannot be scored by name'):
    predictor.with_labels([Label('new', 'new label')])


def test_concepts_that_a_graph_reads_have_vectors(settings, folder, tmp_path):
  corpus = shutil.copytree(folder, tmp_path / 'corpus')
  labels = [f'l{i:02d}' for i in range(L)]
  rows = [{'id': label, 'parents': ['top']} for label in labels]
  write_rows(corpus / 'labels.jsonl', [*rows, {'id': 'top'}])
  config = moved(settings, corpus)
  config.data.dir = str(corpus)
  config.train.steps = config.train.judge_every = 2
  config.model.pooling = NoPooling()
  config.model.head = ZeroShotConfig(graph=GraphLayers(4))
  vectors = np.eye(L, dtype=np.float32)
  save_features(corpus, 'labels', vectors, labels)
  says = "1 of 13 labels and concepts are missing, such as 'top'"
  with pytest.raises(DataError, match=says):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
  top = vectors.mean(axis=0, keepdims=True)
  every = np.concatenate([top, vectors])
  save_features(corpus, 'labels', every, ['top', *labels])
  result = fit(config, tmp_path / 'run')
  params = read_params(result.workdir / 'checkpoints', result.steps)
  np.testing.assert_array_equal(params[DESCRIPTORS][:L], vectors)
  np.testing.assert_array_equal(params[CONCEPTS], top)


def test_words_are_not_features(finished, tmp_path):
  predictor = open_run(finished.workdir)
  with pytest.raises(ConfigError, match='reads the words'):
    predictor.predict(['a'], features=[np.zeros(8)])
  with pytest.raises(ConfigError, match='reads the words'):
    tag(finished.workdir, tmp_path, [{'text': 'a'}], features='x')
