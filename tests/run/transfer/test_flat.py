"""Tests the transfer of hierarchical corpora to flat form, and back."""

import json

import pytest

from tests.run.transfer.conftest import (
  CLOSED,
  HTC,
  LEAVES,
  TAXONOMY,
  contents,
  gold_of,
  without_parents,
  write_corpus,
)
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.htc import HtcData


def test_all_labels_stay_and_forget_their_parents(source, moved):
  splits, labels = contents(source)
  flat, lines = moved(source, 'flat', 'flat')
  new_splits, new_labels = contents(flat)
  assert new_splits == splits
  assert new_labels == without_parents(labels)
  assert lines == [f'{flat}: 9 documents, 7 labels']


def test_and_back_the_corpus_is_as_before(source, moved):
  flat, _ = moved(source, 'flat', 'flat')
  back, _ = moved(flat, 'original', 'back')
  assert contents(back) == contents(source)
  assert contents(back)[1]['reefs'].parents == ('coast', 'sea')
  with pytest.raises(ConfigError, match='it is an original already'):
    moved(back, 'original', 'again')
  for name in ('train.jsonl', 'dev.jsonl', 'test.jsonl', 'labels.jsonl'):
    ours = map(json.loads, (back / name).read_text().splitlines())
    theirs = map(json.loads, (source / name).read_text().splitlines())
    assert list(ours) == list(theirs)


def test_leaves_alone_may_stay(source, moved):
  flat, lines = moved(source, 'flat', 'leaves', kept=LEAVES)
  splits, labels = contents(flat)
  assert labels.keys() == {'reefs', 'unused', 'alone'}
  few = [('reefs',), (), ('alone', 'reefs'), (), (), ('reefs',)]
  assert gold_of(splits) == few
  assert [len(x) for x in splits.values()] == [6, 2, 1]  # all documents stay
  assert 'documents that have no label any more' in lines[1]
  assert lines[1].endswith(': 3')
  assert lines[2] == 'labels removed from documents: 6'

  # Lost labels cannot come back.
  with pytest.raises(ConfigError, match='have lost labels that are no leaves'):
    moved(flat, 'original', 'back')


def test_ancestors_may_be_added(source, moved):
  flat, lines = moved(source, 'flat', 'closed', kept=CLOSED)
  splits, labels = contents(flat)
  assert not any(label.parents for label in labels.values())
  assert set(gold_of(splits)[0]) == {'reefs', 'coast', 'sea', 'land'}
  assert gold_of(splits)[0][:2] == ('reefs', 'coast')
  assert gold_of(splits)[1] == ('fields', 'land')
  assert lines[1].startswith('labels added to documents: ')
  with pytest.raises(ConfigError, match='have got ancestors'):
    moved(flat, 'original', 'back')


def test_a_taxonomy_goes_both_ways(tmp_path, moved):
  htc = tmp_path / 'htc'
  htc.mkdir()
  (htc / 'x_train.json').write_text(
    '{"token": "reefs at sea", "label": ["reefs"]}\n'
    '{"token": "a field", "label": ["fields", "alone"], "id": "7"}\n'
  )
  (htc / 'taxonomy.txt').write_text(
    'Root\tsea\tland\talone\nsea\tcoast\treefs\nland\tcoast\tfields\n'
    'coast\treefs\n'
  )
  before = contents(htc, HtcData)
  assert set(gold_of(before[0])[0]) == {'reefs', 'sea', 'land', 'coast'}
  flat, _ = moved(htc, 'flat', 'flat', kind=HtcData)
  splits, labels = contents(flat)
  assert gold_of(splits) == gold_of(before[0])
  assert not any(label.parents for label in labels.values())
  back, _ = moved(flat, 'original', 'back', form=HTC)
  assert contents(back, HtcData) == before
  assert (back / 'taxonomy.txt').read_text().startswith('Root\tsea\tland')


def test_a_message_names_joined_zones_which_cannot_come_back(source, moved):
  flat, lines = moved(source, 'flat', 'flat', form=HTC)
  assert 'the zones of documents (title, body) are joined' in lines
  splits, labels = contents(flat, HtcData)
  assert splits['test'][0][1]['text'].splitlines()[1].startswith('body reefs')
  assert labels.keys() == {label.id for label in TAXONOMY}
  with pytest.raises(ConfigError, match='the zones of documents were joined'):
    moved(flat, 'original', 'back', kind=HtcData)


def test_the_word_root_is_taken(tmp_path, moved):
  rows = {'train': [('Root',), ('a',)]}
  folder = write_corpus(tmp_path / 'source', rows, zones=('text',))
  with pytest.raises(ConfigError, match="'Root' is the top of every taxonomy"):
    moved(folder, 'flat', 'flat', form=HTC)


def test_only_a_transferred_corpus_has_an_original(source, moved):
  with pytest.raises(DataError, match='no transfer has made this corpus'):
    moved(source, 'original', 'back')
