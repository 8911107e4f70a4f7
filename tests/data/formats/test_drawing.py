"""Drawn splits: by share, without copies across splits, never empty."""

from array import array

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.drawing import draw_missing, draw_splits
from xjax.data.formats.own import text_key
from xjax.data.schema import Document

SHARES = {'dev': 0.2, 'test': 0.1}


def test_shares_are_exact_and_every_document_is_in_one_split():
  rng = np.random.default_rng(0)
  keys = array('Q', rng.integers(2**63, size=100).tolist())
  rows = draw_splits(keys, SHARES, 'x')
  assert [len(rows[name]) for name in ('train', 'dev', 'test')] == [70, 20, 10]
  assert sorted(np.concatenate([*rows.values()])) == list(range(100))


def test_a_text_with_many_copies_stays_in_train():
  keys = array('Q', [0] * 50 + [*range(1, 11)])
  rows = draw_splits(keys, SHARES, 'x')
  assert set(range(50)) <= set(rows['train'])
  assert len(rows['dev']) and len(rows['test'])


def test_a_further_document_changes_little():
  rng = np.random.default_rng(0)
  keys = rng.integers(2**63, size=101).tolist()
  before = draw_splits(array('Q', keys[:100]), SHARES, 'x')
  after = draw_splits(array('Q', keys), SHARES, 'x')
  for name in ('dev', 'test'):
    assert len(set(before[name]) ^ set(after[name])) <= 3


def test_one_text_alone_cannot_be_divided():
  with pytest.raises(DataError, match='x: too few different texts'):
    draw_splits(array('Q', [5] * 20), SHARES, 'x')


def test_a_key_depends_on_text_and_seed_alone():
  one, two = Document('a', {'t': 'x'}, ('q',)), Document('b', {'s': 'x'}, ())
  assert text_key(one, 0) == text_key(two, 0) != text_key(one, 1)


def test_only_texts_with_twins_are_drawn_by_another_key():
  texts = [f'text {i}' for i in range(40)]
  plain = [Document(str(i), {'t': t}) for i, t in enumerate(texts)]
  twins = [Document(f'twin {i}', {'t': f'TEXT {i}'}) for i in range(5)]
  keys = [text_key(document, 0) for document in (*plain, *twins)]
  drawn = {}

  def keys_of(documents):
    return (text_key(document, 0) for document in documents)

  for name, documents in (('plain', plain), ('both', plain + twins)):
    raw = SourceCorpus.of('x', (), {'train': documents})
    raw = draw_missing(raw, {'dev': 0.2}, keys_of)
    drawn[name] = [set(raw.splits[x].ids) for x in ('train', 'dev')]
  expected = draw_splits(np.array(keys[:40], np.uint64), {'dev': 0.2}, 'x')
  assert drawn['plain'][1] == {str(row) for row in expected['dev']}
  for part in drawn['both']:
    assert all((f'twin {i}' in part) == (str(i) in part) for i in range(5))
