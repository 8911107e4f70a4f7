"""The cache of token ids: contents, keys, damage, company."""

from concurrent import futures
import dataclasses
import pathlib

import numpy as np
import pytest

from xjax.core.errors import UserError
from xjax.core.types import Ragged
from xjax.data.schema import Document, Split
from xjax.data.text.subwords import Subwords
from xjax.data.text.token_cache import encode, tokenise
from xjax.data.text.words import Vocabulary

VOCAB = Vocabulary(('a', 'b', 'c'))
SUBWORDS = Subwords.fit(['a b c b'])  # ##c is in no word of them
ROWS = [[2, 3, 4], [1], [], [4, 4]]


def split(
  texts=('a b|c', 'other|', '|', '|c c'), name='train', digest='f'
) -> Split:
  documents = [
    Document(str(i), dict(zip(('title', 'body'), text.split('|'), strict=True)))
    for i, text in enumerate(texts)
  ]
  ids = [d.id for d in documents]
  return Split(name, ids, Ragged.of(ROWS), documents, digest)


def tokens(folder, **changes) -> Ragged:
  usual = {'split': split(), 'vocab': VOCAB, 'max_tokens': 9}
  return tokenise(**{**usual, 'cache_dir': folder, **changes})


def rows(ragged: Ragged) -> list[list[int]]:
  return [ragged[i].tolist() for i in range(len(ragged))]


def files(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(p for p in folder.rglob('*') if p.is_file())


class Unread:
  """Documents that must not be read."""

  def __len__(self):
    return len(ROWS)

  def __getitem__(self, row):
    raise AssertionError('a document was read')


def unread(whole: Split) -> Split:
  return dataclasses.replace(whole, documents=Unread())


def test_tokens_are_made_once(tmp_path):
  assert rows(tokens(tmp_path)) == ROWS
  again = tokens(tmp_path, split=unread(split()))
  assert rows(again) == ROWS
  assert isinstance(again.values, np.memmap)
  assert again.values.dtype == np.int32 and again.indptr.dtype == np.int64
  assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
  'changes',
  [
    {'split': split(['b|', 'b|', 'b|', 'b|'], digest='g')},
    {'vocab': Vocabulary(('b', 'a', 'c'))},
    {'vocab': SUBWORDS},
    {'max_tokens': 1},
    {'by_zone': True},
  ],
)
def test_whatever_decides_the_ids_is_in_the_key(tmp_path, changes):
  tokens(tmp_path)
  fresh = rows(tokens(tmp_path / 'fresh', **changes))
  assert rows(tokens(tmp_path, **changes)) == fresh
  assert len(files(tmp_path / 'tokens')) == 2


def test_documents_without_words_are_told_once(tmp_path, caplog):
  tokens(tmp_path, split=split(['a|', 'b|c']))
  assert 'no words' not in caplog.text
  for _ in range(2):
    tokens(tmp_path, split=split(['a|', '|-', '.|'], digest='g'))
  told = 'train: 2 of 3 documents have no words in the zones that are read'
  assert caplog.text.count(told) == 1
  tokens(tmp_path, split=split(['a|', '|', '|'], name='dev'), vocab=SUBWORDS)
  assert 'dev: 2 of 3 documents have no words' in caplog.text


def test_a_file_of_another_size_is_made_again(tmp_path, caplog):
  tokens(tmp_path)
  (path,) = files(tmp_path)
  whole = path.read_bytes()
  cut = [whole[:at] for at in range(0, len(whole), 3)]
  for content in (*cut, whole + b'\0' * 4, whole * 2, whole[:-4] + b'\xff' * 4):
    path.write_bytes(content)
    caplog.clear()
    assert rows(tokens(tmp_path)) == ROWS
    assert f'{path} is damaged' in caplog.text
    assert path.read_bytes() == whole


def test_a_failed_build_leaves_nothing(tmp_path):
  with pytest.raises(AssertionError):
    tokens(tmp_path, split=unread(split()))
  assert files(tmp_path) == []


def test_builders_at_once(tmp_path):
  with futures.ThreadPoolExecutor(8) as pool:
    results = list(pool.map(lambda _: rows(tokens(tmp_path)), range(32)))
  assert results == [ROWS] * 32
  assert len(files(tmp_path)) == 1


def test_a_cache_that_cannot_be_written(tmp_path):
  (tmp_path / 'tokens').write_text('in the way')
  with pytest.raises(UserError, match='set data.cache_dir'):
    tokens(tmp_path)


def test_encode_agrees_with_the_cache(tmp_path):
  documents = split().documents
  assert rows(encode(documents, VOCAB, 9)) == ROWS
  for settings in ({'max_tokens': 1}, {'max_tokens': 9, 'by_zone': True}):
    cached = tokens(tmp_path, **settings)
    assert rows(encode(documents, VOCAB, **settings)) == rows(cached)


def test_zones_are_told_apart(tmp_path):
  texts = ('a b|c', 'other|', '|', '|c c', 'a b c|c b a')
  apart = [[2, 3, 0, 4], [1], [], [4, 4], [2, 3, 4, 0, 4, 3, 2]]
  whole = split(texts)
  assert rows(tokens(tmp_path, split=whole, by_zone=True)) == apart
  # Each zone's first tokens.
  first = tokens(tmp_path, split=whole, by_zone=True, max_tokens=1)
  assert rows(first) == [[2, 0, 4], [1], [], [4], [2, 0, 4]]
