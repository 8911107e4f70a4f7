"""Features from files: found by id, read by batch, and what can be wrong."""

import pathlib

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.tokens_config import FeatureFilesConfig
from xjax.data.vectors.feature_files import (
  add_features,
  read_features,
  word_features,
)
from xjax.data.vectors.feature_rows import FeatureRows

IDS = ['a', 'b', 'c', 'd']


def save(stem, vectors, ids=IDS, lengths=None) -> pathlib.Path:
  np.save(f'{stem}.npy', vectors)
  pathlib.Path(f'{stem}.ids.txt').write_text(''.join(f'{i}\n' for i in ids))
  if lengths is not None:
    np.save(f'{stem}.lengths.npy', np.array(lengths))
  return stem


def numbers(n: int, dtype: type = np.float32) -> np.ndarray:
  return np.arange(3 * n, dtype=dtype).reshape(n, 3)


@pytest.fixture
def stem(tmp_path) -> pathlib.Path:
  return tmp_path / 'train'


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('order', ['C', 'F'])
def test_one_vector_per_document(stem, dtype, order):
  vectors = numbers(4, dtype)
  save(stem, np.asarray(vectors, order=order), ['a', '', *'bcd'])
  found = read_features(stem, ['d', 'a'])
  assert (len(found), found.dim) == (2, 3)
  assert found.lengths.tolist() == [1, 1]
  got = found.padded(np.array([1, PAD, 0]), 2)
  assert got.dtype == np.float32
  want = np.zeros((3, 2, 3))
  want[0, 0], want[2, 0] = vectors[0], vectors[3]
  np.testing.assert_array_equal(got, want)


def test_states_of_tokens(stem):
  vectors = numbers(6)
  save(stem, vectors, lengths=[2, 0, 3, 1])
  found = read_features(f'{stem}.npy', ['c', 'b', 'a'])
  assert found.lengths.tolist() == [3, 0, 2]
  got = found.padded(np.array([0, 1, 2]), 3)
  np.testing.assert_array_equal(got[0], vectors[2:5])
  assert not got[1].any()
  np.testing.assert_array_equal(got[2, :2], vectors[:2])
  assert not got[2, 2].any()
  first = found.first(2)
  assert first.lengths.tolist() == [2, 0, 2]
  np.testing.assert_array_equal(first.padded(np.array([0]), 2)[0], vectors[2:4])


def test_the_digest_is_of_documents_whatever_their_order(stem, tmp_path):
  vectors = numbers(4)
  save(stem, vectors)
  other = save(tmp_path / 'other', vectors[::-1], IDS[::-1])
  ids = ['b', 'c']
  digest = read_features(stem, ids).digest()
  assert read_features(other, ids).digest() == digest
  assert read_features(stem, ids[::-1]).digest() != digest
  vectors[1, 0] += 1
  save(stem, vectors)
  assert read_features(stem, ids).digest() != digest
  save(stem, vectors.astype(np.float16))
  assert read_features(stem, ids).digest() != digest


def cut(size: int):
  return lambda path: path.write_bytes(path.read_bytes()[:size])


LENGTHS = r'train\.lengths\.npy'
INCOMPLETE = r'train\.npy: not a complete \.npy file'
# Name -> (arrays to save, or file -> damage; the message).
FAULTS = {
  'float64': ({'vectors': numbers(4, np.float64)}, 'is float64'),
  'three axes': (
    {'vectors': np.ones((4, 2, 3), np.float32)},
    r'\(4, 2, 3\), but must be',
  ),
  'no columns': ({'vectors': np.ones((4, 0), np.float32)}, r'\(4, 0\)'),
  'objects': ({'vectors': np.array([[{}]] * 4)}, INCOMPLETE),
  'cut short': ({'npy': cut(150)}, INCOMPLETE),
  'no array': ({'npy': pathlib.Path.unlink}, r'train\.npy: no such file'),
  'no ids': ({'ids.txt': pathlib.Path.unlink}, r'ids\.txt: cannot be read'),
  'duplicate': ({'ids': [*'abad']}, r"ids\.txt:3: duplicate document 'a'"),
  'fewer ids': (
    {'ids': IDS[:3]},
    r'ids\.txt: 3 ids, but .*train\.npy has 4 rows',
  ),
  'fewer lengths': ({'lengths': [1, 3]}, rf'4 ids, but .*{LENGTHS} has 2 rows'),
  'lengths of fewer tokens': (
    {'lengths': [1, 1, 0, 1]},
    rf'{LENGTHS}: must have .*train\.npy, 4',
  ),
  'negative length': (
    {'lengths': [1, -1, 3, 1]},
    rf'{LENGTHS}: must have one integer',
  ),
  'float lengths': (
    {'lengths': [1.0] * 4},
    rf'{LENGTHS}: must have one integer',
  ),
  'missing documents': (
    {'vectors': numbers(3), 'ids': ['a', 'x', 'c']},
    r"ids\.txt: 2 of 4 documents are missing, such as 'b'",
  ),
}


@pytest.mark.parametrize('name', FAULTS)
def test_faults(name, stem):
  given, says = FAULTS[name]
  damage = {file: given[file] for file in given if file in ('npy', 'ids.txt')}
  saved = {key: given[key] for key in given if key not in damage}
  save(stem, **{'vectors': numbers(4), **saved})
  for file, change in damage.items():
    change(pathlib.Path(f'{stem}.{file}'))
  with pytest.raises(DataError, match=says) as raised:
    read_features(stem, IDS)
  assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
  'value',
  [np.nan, 3e38],  # whose squares overflow
)
def test_values_that_no_model_can_use(stem, value):
  vectors = numbers(5)
  vectors[3, 1] = value
  save(stem, vectors, lengths=[1, 1, 2, 1])
  found = read_features(stem, ['d', 'c', 'a'])
  found.padded(np.array([0, PAD, 2]), 1)
  message = (
    r"\.npy: document 'c' has values that are NaN, infinite or too large"
  )
  with pytest.raises(DataError, match=message):
    found.padded(np.array([0, 1]), 2)
  found.first(1).padded(np.array([0, 1]), 1)  # beyond what is read


def test_documents_in_memory():
  arrays = [[1.0, 2.0], np.ones((3, 2)), np.ones((0, 2))]
  found = FeatureRows.from_arrays('x', IDS[:3], arrays, 2)
  assert found.lengths.tolist() == [1, 3, 0]
  np.testing.assert_array_equal(found.padded(np.array([0]), 1), [[[1.0, 2.0]]])
  assert len(FeatureRows.from_arrays('x', [], [], 2)) == 0
  for wrong in (1.0, [1.0], np.ones((1, 1, 2))):
    said = error_text(FeatureRows.from_arrays, 'x', ['a'], [wrong], 2)
    assert "x: the array of document 'a' has the shape" in said


def jsonl(folder: pathlib.Path, **tokens) -> JsonlData:
  for name, ids in (('train', IDS), ('dev', ['e'])):
    rows = (f'{{"id": "{i}", "text": "x", "labels": ["l"]}}\n' for i in ids)
    (folder / f'{name}.jsonl').write_text(''.join(rows))
  return JsonlData(dir=str(folder), tokens=FeatureFilesConfig(**tokens))


def test_a_corpus_has_the_features_of_its_folder(tmp_path, stem):
  data = jsonl(tmp_path)
  with pytest.raises(DataError, match=r'train\.npy: no such file'):
    load_corpus(data, 0)
  save(stem, numbers(4))
  save(tmp_path / 'dev', numbers(1), ['e'])
  corpus = load_corpus(data, 0)
  got = corpus.splits['train'].features.padded(np.arange(4), 1)
  np.testing.assert_array_equal(got[:, 0], numbers(4))
  # Other features are another corpus.
  save(tmp_path / 'dev', numbers(1) + 1, ['e'])
  changed = load_corpus(data, 0)
  assert changed.fingerprint != corpus.fingerprint
  digests = [c.splits['train'].digest for c in (corpus, changed)]
  assert digests[0] == digests[1]
  assert changed.splits['dev'].digest != corpus.splits['dev'].digest


def test_features_may_lie_elsewhere(tmp_path, caplog):
  (tmp_path / 'there').mkdir()
  data = jsonl(tmp_path, dir=str(tmp_path / 'there'), max_tokens=2)
  save(tmp_path / 'there/train', numbers(8), lengths=[5, 1, 2, 0])
  save(tmp_path / 'there/dev', numbers(1), ['e'])
  corpus = load_corpus(data, 0, splits=('train',))
  assert corpus.splits['train'].features.lengths.tolist() == [2, 1, 2, 0]
  (told,) = [x for x in caplog.messages if 'max_tokens' in x]
  assert told.startswith('train: 1 of 4 documents have more vectors than')


def test_no_folder_at_all():
  tokens = FeatureFilesConfig()
  made = SyntheticData(n_train=2, n_dev=0, n_test=0, n_labels=4, tokens=tokens)
  corpus = load_corpus(made, 0)
  assert corpus.splits['train'].features is None
  with pytest.raises(ConfigError, match=r'data\.tokens\.dir is not set'):
    add_features(corpus, Eurlex57kData(tokens=tokens))


def test_features_made_of_words():
  texts = ['Ports and fish', 'fish', '', 'and PORTS fish']
  states = word_features(IDS, texts, 5, 2)
  assert states.lengths.tolist() == [2, 1, 0, 2]
  got = states.padded(np.arange(4), 2)
  np.testing.assert_array_equal(got[0], got[3, ::-1])
  whole = word_features(IDS, texts, 5, 1)
  assert whole.lengths.tolist() == [1, 1, 0, 1]
  vectors = whole.padded(np.arange(4), 1)[:, 0]
  np.testing.assert_array_equal(vectors[1], got[1, 0])
  np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-6)
  want = (got[0].sum(axis=0) + vectors[1]) / 3**0.5
  np.testing.assert_allclose(vectors[0], want, atol=1e-6)
  words = ' '.join('w' * (i + 1) for i in range(99))
  many = word_features(['a'], [words], 400, 1)
  assert abs(many.vectors.std() - 1) < 0.2
