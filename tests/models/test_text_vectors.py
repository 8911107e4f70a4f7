"""A frozen encoder that computes vectors of texts: its file and its folder."""

import json

import numpy as np
import pytest

from tests.fixtures.encoders import SIZES, write_encoder
from xjax.core.errors import ConfigError, DataError
from xjax.data.tokens_config import TextVectorsConfig
from xjax.models.text_vectors import TextVectors, check_folder, dense_rows

TEXTS = ['pa te ko', '', 'Directive 2003/87/EC of the lube', 'te ' * 40]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp('encoder') / 'model'
  write_encoder(path, pooler=True)
  return str(path)


@pytest.fixture(scope='module')
def fitted(folder):
  return TextVectors.fit([], TextVectorsConfig(folder, max_tokens=16))


@pytest.fixture(scope='module')
def saved(fitted, tmp_path_factory):
  path = tmp_path_factory.mktemp('saved') / 'text_vectors.npz'
  fitted.save(path)
  return path


def test_vectors_are_rows_in_which_no_entry_is_left_out(fitted):
  rows = fitted(TEXTS)
  dim = SIZES['hidden_size']
  assert rows.shape == (4, dim) and fitted.n_features == dim
  assert rows.dtype == np.float32 and rows.nnz == 4 * dim
  assert rows.indices.dtype == rows.indptr.dtype == np.int32
  assert rows.has_sorted_indices
  np.testing.assert_allclose(rows.multiply(rows).sum(axis=1), 1, atol=1e-6)
  with_zero = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
  np.testing.assert_array_equal(dense_rows(with_zero).toarray(), with_zero)
  assert dense_rows(with_zero).nnz == 6 and fitted([]).shape == (0, dim)


def test_a_loaded_encoder_computes_the_same_bits_without_the_folder(
  fitted, saved, tmp_path, monkeypatch
):
  monkeypatch.setattr('xjax.networks.pretrained.model_folder.find_model', None)
  again = TextVectors.load(saved)
  expected, rows = fitted(TEXTS), again(TEXTS)
  np.testing.assert_array_equal(rows.toarray(), expected.toarray())
  again.save(tmp_path / 'again.npz')
  assert (tmp_path / 'again.npz').read_bytes() == saved.read_bytes()


def test_without_a_folder_a_small_encoder_is_made():
  config = TextVectorsConfig(max_tokens=16)
  vectors = TextVectors.fit(TEXTS, config)
  rows = vectors(TEXTS).toarray()
  again = TextVectors.fit(TEXTS, config)(TEXTS).toarray()
  np.testing.assert_array_equal(rows, again)
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
  assert not np.allclose(rows[0], rows[2])


def as_bytes(value):
  return np.frombuffer(json.dumps(value).encode(), np.uint8)


def sizes_with(arrays, **sizes):
  before = json.loads(arrays['sizes'].tobytes())
  return arrays | {'sizes': as_bytes(before | sizes)}


WORD = 'encoder/embeddings/word'
# A part of the error message -> a function that damages the saved arrays.
DAMAGE = {
  f'{WORD}: missing': lambda x: {name: x[name] for name in x if name != WORD},
  f'{WORD}: is float32 ': lambda x: x | {WORD: x[WORD][:, 1:]},
  'sizes: .*: not JSON': lambda x: x | {'sizes': x['sizes'][1:]},
  'sizes: "hidden_size" is -8': lambda x: sizes_with(x, hidden_size=-8),
  'tokenizer: .* cannot be used': lambda x: x | {'tokenizer': as_bytes({})},
  'tokenizer: .* has 9 rows': lambda x: sizes_with(x, vocab_size=9),
  'max_tokens: .* at most 20': lambda x: x | {'max_tokens': np.int64(21)},
}


@pytest.mark.parametrize('message', DAMAGE)
def test_damage_is_one_error_with_the_file_and_the_array(
  saved, tmp_path, message
):
  with np.load(saved, allow_pickle=False) as file:
    arrays = dict(file)
  path = tmp_path / 'text_vectors.npz'
  np.savez(path, **DAMAGE[message](arrays))
  with pytest.raises(DataError, match=f'text_vectors.npz: {message}') as raised:
    TextVectors.load(path)
  assert '\n' not in str(raised.value)


def test_an_encoder_reads_so_many_tokens_at_most(folder):
  says = f'.max_tokens=21: {folder}: the encoder reads at most 20 tokens'
  with pytest.raises(ConfigError, match=says):
    check_folder(TextVectorsConfig(folder, 21))
