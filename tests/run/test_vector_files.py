"""Files of vectors: what is in them, what resumes, what is refused."""

import copy
import dataclasses
import re
import shutil

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
)
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.core.processes.lock import locked
from xjax.data.config import GivenFeaturesConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.load import load_corpus
from xjax.models.contract import Config
from xjax.models.text_vectors import TextVectors
from xjax.run import vector_files
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
  assert set(files_in(embedded)) == names | {'embed.json'}
  expected = TextVectors.fit(encoder, [])
  for name in SPLITS:
    vectors = vectors_in(embedded, name)
    assert vectors.shape == (SPLITS[name], DIM)
    np.testing.assert_allclose(
      vectors, expected.vectors(texts_of(name)), atol=1e-6
    )


def test_names_without_a_letter_have_the_vector_0(embedded, encoder):
  vectors = vectors_in(embedded, 'labels')
  expected = TextVectors.fit(encoder, []).vectors([*LABELS.values()])
  np.testing.assert_allclose(vectors[[0, 2]], expected[[0, 2]], atol=1e-6)
  assert not vectors[1].any()


def test_only_labels_of_the_label_space_have_vectors(
  settings, encoder, tmp_path
):
  (tmp_path / 'list.txt').write_text('c\na\n')
  settings.data.labels = str(tmp_path / 'list.txt')
  for splits in (('dev',), ('test',)):
    embed_corpus(settings, encoder, tmp_path / 'vectors', splits)
  ids = (tmp_path / 'vectors' / 'labels.ids.txt').read_text()
  assert ids == 'c\na\n'


def test_small_chunks_give_the_same_vectors(
  settings, encoder, embedded, tmp_path, monkeypatch
):
  monkeypatch.setattr(vector_files, '_CHUNK', 2)
  embed_corpus(settings, encoder, tmp_path / 'vectors')
  for name in (*SPLITS, 'labels'):
    vectors = vectors_in(tmp_path / 'vectors', name)
    np.testing.assert_allclose(vectors, vectors_in(embedded, name), atol=1e-6)


def test_lines_say_what_is_in_the_files(settings, encoder, embedded, tmp_path):
  folder = tmp_path / 'new' / 'vectors'
  lines = embed_corpus(settings, encoder, folder, ('dev',))
  assert lines == [
    f'{folder}/dev.npy: 5 vectors of size {DIM}',
    f'{folder}/labels.npy: 3 vectors of size {DIM}',
  ]
  for name in ('dev.npy', 'dev.ids.txt', 'labels.npy', 'labels.ids.txt'):
    assert (folder / name).read_bytes() == (embedded / name).read_bytes()
  assert not (folder / 'train.npy').exists()


def test_what_is_complete_is_not_computed_again(
  settings, encoder, embedded, tmp_path, monkeypatch
):
  folder = shutil.copytree(embedded, tmp_path / 'vectors')
  (folder / 'dev.npy').unlink()
  encoded_texts, vectors = [], TextVectors.vectors

  def counting(self, texts):
    encoded_texts.extend(texts)
    return vectors(self, texts)

  monkeypatch.setattr(TextVectors, 'vectors', counting)
  embed_corpus(settings, encoder, folder)
  assert encoded_texts == texts_of('dev')
  assert files_in(folder) == files_in(embedded)


def test_a_start_after_a_kill_makes_the_same_files(
  settings, encoder, embedded, tmp_path, monkeypatch
):
  for which in range(4):
    folder = tmp_path / str(which)
    with monkeypatch.context() as patch, pytest.raises(Preempted):
      kill(patch, vector_files, 'write_json', which)
      embed_corpus(settings, encoder, folder, ('dev',))
    folder.mkdir(exist_ok=True)
    (folder / f'.dev.npy.xjax-{2**22 + 1}-x.tmp').touch()
    embed_corpus(settings, encoder, folder, ('dev',))
    files = files_in(folder)
    assert len(files) == 5 and files.pop('embed.json')
    assert files.items() <= files_in(embedded).items()


def test_a_folder_has_vectors_of_one_encoder_and_one_corpus(
  settings, encoder, embedded, data_dir, tmp_path
):
  before = files_in(embedded)
  longer = dataclasses.replace(encoder, max_tokens=17)
  write_encoder(tmp_path / 'other', False, 'other words')
  other = dataclasses.replace(encoder, folder=str(tmp_path / 'other'))
  for changed, says in (
    (longer, f'before: {encoder.folder}, max_tokens=16; now: '),
    (other, 'has vectors of another encoder'),
  ):
    with pytest.raises(ConfigError, match=re.escape(says)):
      embed_corpus(settings, changed, embedded)
  settings.data.dir = str(shutil.copytree(data_dir, tmp_path / 'data'))
  with open(tmp_path / 'data' / 'dev.jsonl', 'a') as file:
    file.write('{"id": "more", "text": "pa", "labels": ["a"]}\n')
  with pytest.raises(ConfigError, match=r'dev\.npy: has vectors of other docu'):
    embed_corpus(settings, encoder, embedded)
  assert files_in(embedded) == before


@pytest.mark.parametrize('name', ['dev.npy', 'dev.ids.txt', 'dev.lengths.npy'])
def test_files_of_others_are_never_replaced(settings, encoder, tmp_path, name):
  (tmp_path / 'vectors').mkdir()
  (tmp_path / 'vectors' / name).write_text('mine')
  with pytest.raises(ConfigError, match=f'{name}: exists, but xjax embed has'):
    embed_corpus(settings, encoder, tmp_path / 'vectors', ('dev',))
  assert set(files_in(tmp_path / 'vectors')) == {name}
  embed_corpus(settings, encoder, tmp_path / 'vectors', ('test',))
  assert (tmp_path / 'vectors' / name).read_text() == 'mine'


@pytest.mark.parametrize('content', ['{', '[]', '{"done": 3}', '\x00'])
def test_a_damaged_record_is_an_error(
  settings, encoder, embedded, tmp_path, content
):
  folder = shutil.copytree(embedded, tmp_path / 'vectors')
  (folder / 'embed.json').write_text(content)
  with pytest.raises(DataError, match='embed.json: '):
    embed_corpus(settings, encoder, folder)


def test_values_that_are_not_finite_are_an_error(
  settings, encoder, tmp_path, monkeypatch
):
  def broken(self, texts):
    vectors = np.zeros((len(texts), DIM), np.float32)
    vectors[2, 1] = np.nan
    return vectors

  monkeypatch.setattr(TextVectors, 'vectors', broken)
  with pytest.raises(DataError, match=r"npy: the vector of '.*-2' has values"):
    embed_corpus(settings, encoder, tmp_path / 'vectors', ('dev',))
  assert not (tmp_path / 'vectors' / 'dev.npy').exists()


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


def test_one_command_at_a_time_writes_to_a_folder(
  settings, encoder, tmp_path, monkeypatch
):
  monkeypatch.setattr(
    vector_files, 'locked', lambda folder: locked(folder, wait=0)
  )
  says = 'another process is running here'
  with locked(tmp_path / 'vectors'), pytest.raises(ConfigError, match=says):
    embed_corpus(settings, encoder, tmp_path / 'vectors')


def test_the_synthetic_corpus_has_vectors(encoder, tmp_path):
  config = copy.deepcopy(shrink(Config()))
  embed_corpus(config, encoder, tmp_path / 'vectors', ('train',))
  corpus = load_corpus(config.data, config.seed)
  vectors = np.load(tmp_path / 'vectors' / 'train.npy')
  assert vectors.shape == (len(corpus.split('train')), DIM)
