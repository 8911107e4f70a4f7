"""Files of vectors, by an encoder or a run: contents, resuming, refusals."""

import dataclasses
import logging

import numpy as np
import pytest

from tests.fixtures.kills import kill
from tests.fixtures.shrink import shrink
from tests.fixtures.sparse_runs import RUNS, config_of
from tests.fixtures.vector_files import (
  DIM,
  LABELS,
  SPLITS,
  texts_of,
  vectors_in,
)
from xjax.core.atomic import WriteError, write_json
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.config import (
  FeatureFilesConfig,
  GivenFeaturesConfig,
  SubwordsConfig,
)
from xjax.data.documents import Documents
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.models.config_json import to_json
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.text_vectors import TextVectors
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, NoEncoder
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import MeanConfig
from xjax.run import vector_files
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.vector_files import embed_corpus, embed_run


@pytest.fixture(scope='module')
def embedded(encoder, data_dir, tmp_path_factory):
  """A folder of vectors; tests must copy it before they change it."""
  folder = tmp_path_factory.mktemp('embedded') / 'vectors'
  embed_corpus(Config(data=JsonlData(dir=str(data_dir))), encoder, folder)
  return folder


def files_in(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_has_vectors_of_all_splits_and_of_labels(embedded, encoder):
  stems = (*SPLITS, 'labels')
  names = {f'{x}.{end}' for x in stems for end in ('npy', 'ids.txt')}
  assert set(files_in(embedded)) == names
  expected = TextVectors.fit([], encoder)
  for name in SPLITS:
    vectors = vectors_in(embedded, name)
    assert vectors.shape == (SPLITS[name], DIM)
    np.testing.assert_allclose(
      vectors, expected.vectors(texts_of(name)), atol=1e-6
    )
  vectors, names = vectors_in(embedded, 'labels'), [*LABELS.values()]
  named = expected.vectors(names)[[0, 2]]
  np.testing.assert_allclose(vectors[[0, 2]], named, atol=1e-6)
  assert not vectors[1].any()  # a name without a letter


def test_only_labels_of_the_label_space_have_vectors(
  settings, encoder, tmp_path
):
  (tmp_path / 'list.txt').write_text('c\na\n')
  settings.data.labels = str(tmp_path / 'list.txt')
  embed_corpus(settings, encoder, tmp_path / 'vectors', ('dev',))
  ids = (tmp_path / 'vectors' / 'labels.ids.txt').read_text()
  assert ids == 'c\na\n'


def test_a_killed_command_leaves_no_folder_and_files_of_others_stay(
  settings, encoder, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, TextVectors, 'vectors')
    embed_corpus(settings, encoder, tmp_path / 'vectors')
  assert [*tmp_path.iterdir()] == []
  (tmp_path / 'vectors').mkdir()
  (tmp_path / 'vectors' / 'mine').touch()
  with pytest.raises(WriteError, match='vectors: exists already'):
    embed_corpus(settings, encoder, tmp_path / 'vectors')
  assert {*files_in(tmp_path / 'vectors')} == {'mine'}


def test_mistakes_leave_nothing(settings, encoder, tmp_path, monkeypatch):
  folder = tmp_path / 'vectors'
  longer = dataclasses.replace(encoder, max_tokens=99)
  absent = dataclasses.replace(encoder, folder=str(tmp_path / 'absent'))
  data = XcFeaturesData(dir=str(tmp_path), tokens=GivenFeaturesConfig())
  sparse = dataclasses.replace(settings, data=data)
  unread = 'config.data=XcFeaturesData.*features'
  for error, says, arguments in (
    (ConfigError, 'reads at most 20 tokens', (settings, longer, folder)),
    (DataError, 'neither a folder nor the name', (settings, absent, folder)),
    (DataError, 'nope', (settings, encoder, folder, ('nope',))),
    (ConfigError, unread, (sparse, encoder, folder)),
  ):
    with pytest.raises(error, match=says):
      embed_corpus(*arguments)
  with pytest.raises(DataError, match='this folder has no run'):
    embed_run(str(tmp_path), folder)
  monkeypatch.setattr(vector_files, 'process_count', lambda: 2)
  for embed in (embed_corpus, embed_run):
    with pytest.raises(ConfigError, match='can only be used by one process'):
      embed(settings, encoder, folder)
  assert not folder.exists()


def encoded(run, texts):
  """Returns the vectors that the encoder of a run computes for texts."""
  return run.scorer.vectors(Documents(texts))


def neural(config, **parts):
  """The config of two steps of training with a pretrained encoder."""
  model = NeuralModel(
    NoEmbedding(), BertConfig(), MeanConfig(), OneVsAllConfig(chunk=8)
  )
  tokens = SubwordsConfig(max_tokens=16, buckets=(8, 16))
  when = {'steps': 2, 'checkpoint_every': 1, 'judge_every': 2}
  return dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, tokens=tokens),
    model=dataclasses.replace(model, **parts),
    train=dataclasses.replace(config.train, **when),
  )


@pytest.fixture(scope='module')
def tuned(encoder, data_dir, tmp_path_factory):
  """The workdir of a run that has trained a pretrained encoder."""
  data = JsonlData(dir=str(data_dir), labels='all', workers=1)
  small = dataclasses.replace(shrink(Config()), data=data)
  config = neural(small, encoder=BertConfig(folder=encoder.folder))
  return fit(config, tmp_path_factory.mktemp('tuned') / 'run').workdir


def test_vectors_of_a_run_are_those_of_its_encoder(
  tuned, encoder, tmp_path, monkeypatch
):
  monkeypatch.setattr(vector_files, '_CHUNK', 2)
  lines = embed_run(str(tuned), tmp_path / 'vectors')
  assert [line.rsplit('/')[-1] for line in lines] == [
    *(f'{x}.npy: {n} vectors of size {DIM}' for x, n in SPLITS.items()),
    f'labels.npy: 3 vectors of size {DIM}',
  ]
  predictor = open_run(tuned)
  for name in SPLITS:
    vectors = vectors_in(tmp_path / 'vectors', name)
    np.testing.assert_allclose(
      vectors, encoded(predictor, texts_of(name)), atol=1e-5
    )
  labels = vectors_in(tmp_path / 'vectors', 'labels')
  names = encoded(predictor, [*LABELS.values()])[[0, 2]]
  names /= np.linalg.norm(names, axis=1, keepdims=True)
  np.testing.assert_allclose(labels[[0, 2]], names, atol=1e-5)
  assert not labels[1].any()
  untrained = TextVectors.fit([], encoder).vectors(['ko'])[0]
  assert not np.allclose(labels[2], untrained, atol=1e-3)


def test_each_checkpoint_has_vectors_of_its_own(tuned, tmp_path):
  best = open_run(tuned).step
  embed_run(f'{tuned}@1', tmp_path / 'first', splits=('dev',))
  embed_run(f'{tuned}@2', tmp_path / 'second', splits=('dev',))
  first, second = (
    vectors_in(tmp_path / name, 'dev') for name in ('first', 'second')
  )
  assert not np.allclose(first, second, atol=1e-4)
  embed_run(str(tuned), tmp_path / 'best', splits=('dev',))
  expected = first if best == 1 else second
  np.testing.assert_array_equal(vectors_in(tmp_path / 'best', 'dev'), expected)


def test_labels_are_left_out_if_the_encoder_is_not_pretrained(
  finished, tmp_path, caplog
):
  with caplog.at_level(logging.INFO):
    lines = embed_run(str(finished.workdir), tmp_path / 'vectors')
  said = [x.message for x in caplog.records if 'labels.npy' in x.message]
  assert len(said) == 1 and 'not pretrained' in said[0]
  names = {path.name for path in (tmp_path / 'vectors').iterdir()}
  assert 'labels.npy' not in names and 'train.npy' in names
  split = finished.corpus.split('dev')
  vectors = np.load(tmp_path / 'vectors' / 'dev.npy')
  texts = [split.documents[row].text() for row in range(len(split))]
  expected = encoded(open_run(finished.workdir), texts)
  np.testing.assert_allclose(vectors, expected, atol=1e-6)
  assert len(lines) == len(finished.corpus.splits)


def test_runs_without_an_encoder_of_texts_are_refused(settings, tmp_path):
  frozen = neural(settings, encoder=NoEncoder())
  frozen.data.tokens = FeatureFilesConfig()
  for config, says in (
    (config_of(*RUNS['xr']), 'is a TreeModel, which has no encoder'),
    (frozen, 'this run reads vectors, not text'),
  ):
    write_json(tmp_path / 'config.json', to_json(config))
    with pytest.raises(ConfigError, match=says):
      embed_run(str(tmp_path), tmp_path / 'vectors')
  assert not (tmp_path / 'vectors').exists()
