"""Files of vectors by an encoder: contents, killed commands, refusals."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.kills import kill
from tests.fixtures.shrink import shrink
from tests.fixtures.vector_files import (
  DIM,
  LABELS,
  SPLITS,
  texts_of,
  vectors_in,
  write_corpus,
)
from xjax.core.atomic import WriteError
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  GivenFeaturesConfig,
  TextVectorsConfig,
)
from xjax.models.contract import Config
from xjax.models.text_vectors import TextVectors
from xjax.run import vector_files
from xjax.run.vector_files import embed_corpus


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('encoder') / 'model'
  write_encoder(folder, pooler=True)
  return TextVectorsConfig(str(folder), max_tokens=16)


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return write_corpus(tmp_path_factory.mktemp('data'))


@pytest.fixture
def settings(data_dir):
  """A config that reads vectors, which do not exist yet."""
  tokens = FeatureFilesConfig()
  data = JsonlData(dir=str(data_dir), tokens=tokens, labels='all', workers=1)
  return dataclasses.replace(shrink(Config()), data=data)


@pytest.fixture(scope='module')
def embedded(encoder, data_dir, tmp_path_factory):
  """A folder of vectors, which were computed in small chunks."""
  folder = tmp_path_factory.mktemp('embedded') / 'vectors'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(vector_files, '_CHUNK', 2)
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
  monkeypatch.setattr(vector_files, 'process_count', lambda: 2)
  with pytest.raises(ConfigError, match='can only be used by one process'):
    embed_corpus(settings, encoder, folder)
  assert not folder.exists()
