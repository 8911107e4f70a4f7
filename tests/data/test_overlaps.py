"""Documents that are in two splits, or twice in one split."""

import dataclasses
import json
import logging

import numpy as np
import pytest

from xjax.data.formats.corpus_builder import SourceCorpus, text_digest
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import build_corpus, load_corpus
from xjax.data.quality import find_overlaps, find_repeats
from xjax.data.schema import Document
from xjax.data.tokens_config import OnError


def corpus_of(**splits):
  """Makes a corpus of pairs (id, text), by split."""
  documents = {
    name: [Document(id_, {'text': text}, ('a',)) for id_, text in rows]
    for name, rows in splits.items()
  }
  return build_corpus(SourceCorpus.of('it', (), documents), JsonlData(), 0)


def test_texts_that_differ_only_in_form_have_one_digest():
  assert text_digest(['a  b\n']) == text_digest(['a', '\tb']) != 0
  assert text_digest(['a b']) == text_digest(['A\xa0B']) != text_digest(['a c'])
  assert text_digest(['Caf\xe9']) == text_digest(['cafe\u0301'])
  assert text_digest(['', ' \n']) == 0
  # Prepared data keep digests, so a digest must never change.
  assert text_digest(['ab']) == 0x8810DE87F1B5520E


def test_the_same_text_in_two_splits_is_counted():
  corpus = corpus_of(
    train=[('t1', 'one two'), ('t2', 'three'), ('t3', 'one two'), ('t4', ' ')],
    dev=[('d1', 'one\ntwo'), ('d2', 'four'), ('d3', 'one  two'), ('d4', '')],
    test=[('e1', 'four'), ('e2', 'five')],
  )
  dev, test = find_overlaps(corpus)
  assert (dev.split, dev.other, dev.documents) == ('dev', 'train', 4)
  assert (dev.same_text, dev.same_id) == (2, 0)
  assert dev.text_examples == (('d1', 't1'), ('d3', 't1'))
  assert (test.split, test.other, test.same_text) == ('test', 'dev', 1)
  assert dev.warnings() == [
    'dev and train share documents: 2 of 4 documents of dev have the same text '
    "as a document of train, such as 'd1' and 't1', 'd3' and 't1'. So metrics "
    'on dev are too high. Remove these documents from one of the splits'
  ]


def test_the_same_id_with_another_text_is_told_apart():
  corpus = corpus_of(
    train=[('x', 'one'), ('y', 'two'), ('z', 'three')],
    test=[('y', 'two'), ('x', 'changed'), ('w', 'new')],
  )
  (overlap,) = find_overlaps(corpus)
  assert (overlap.same_text, overlap.same_id) == (1, 1)
  assert overlap.id_examples == ('x',)
  text, id_ = overlap.warnings()
  assert '1 of 3 documents of test has the same text' in text
  assert '1 of 3 documents of test has the id of a document of train' in id_


@pytest.mark.parametrize('form', ['{}', 'line-{}'])
def test_row_numbers_are_not_taken_for_shared_ids(form):
  train = [(form.format(i), f'train {i}') for i in range(30)]
  dev = [(form.format(i + 1), f'dev {i}') for i in range(9)]
  assert not find_overlaps(corpus_of(train=train, dev=dev))


@pytest.mark.parametrize('form', ['{}', '{:03}', '{}.0'])
@pytest.mark.parametrize('first', [0, 1])
def test_rows_of_a_file_that_is_divided_are_numbered_too(form, first):
  train = [(form.format(i + first), f'train {i}') for i in range(40)]
  test = [(form.format(i + first), f'test {i}') for i in range(40)]
  splits = {'train': train[:36], 'dev': train[36:], 'test': test}
  corpus = corpus_of(**splits)
  corpus = dataclasses.replace(corpus, drawn=('train', 'dev'))
  assert not find_overlaps(corpus)
  splits['dev'] = [('9000', 'dev'), *splits['dev']]
  corpus = dataclasses.replace(corpus_of(**splits), drawn=('train', 'dev'))
  assert [(x.split, x.other) for x in find_overlaps(corpus)] == [
    ('test', 'train'),
    ('test', 'dev'),
  ]


@pytest.mark.parametrize('form', ['line-{}', 'sport/{}.txt', '法律/0_{}'])
def test_numbers_of_lines_and_files_are_no_ids_of_the_user(form):
  """Even if they are large, as those of rows with line breaks are."""
  train = [(form.format(1 + 9 * i), f'train {i}') for i in range(30)]
  test = [(form.format(1 + 9 * i), f'test {i}') for i in range(9)]
  corpus = corpus_of(train=[*train, ('x', 'one')], test=[*test, ('x', 'two')])
  (overlap,) = find_overlaps(corpus)
  assert overlap.id_examples == ('x',)


def test_large_numbers_are_ids_not_rows():
  train = [(str(9000 + i), f'train {i}') for i in range(30)]
  dev = [(str(9000 + i), f'dev {i}') for i in range(9)]
  (overlap,) = find_overlaps(corpus_of(train=train, dev=dev))
  assert overlap.same_id == 9 and len(overlap.id_examples) == 3


def test_repeated_texts_of_a_split():
  rows = [('a', 'x'), ('b', ''), ('c', 'y'), ('d', ' x'), ('e', ''), ('f', 'x')]
  split = corpus_of(train=rows).split('train')
  assert find_repeats(split) == (2, (('d', 'a'), ('f', 'a')), 0)


@pytest.fixture
def warned(caplog):
  caplog.set_level(logging.WARNING, logger='absl')
  return caplog


def write(folder, name, *documents):
  rows = [json.dumps({'labels': ['a']} | d) + '\n' for d in documents]
  (folder / f'{name}.jsonl').write_text(''.join(rows))


def test_a_run_warns_of_a_leak_with_counts(tmp_path, warned):
  write(tmp_path, 'train', {'id': 't', 'text': 'a b'}, {'id': 'u', 'text': 'c'})
  write(tmp_path, 'dev', {'id': 'v', 'zones': {'title': 'a', 'body': 'b'}})
  load_corpus(JsonlData(dir=str(tmp_path)), 0)
  (record,) = warned.records
  assert record.levelname == 'WARNING'
  assert '1 of 1 document of dev has the same text' in record.getMessage()
  warned.clear()
  load_corpus(SyntheticData(n_train=60, n_dev=20, n_labels=20), 0)
  assert not warned.records


def test_a_run_warns_of_twin_labels_and_counts_what_is_left_out(
  tmp_path, warned
):
  write(
    *(tmp_path, 'train'),
    {'id': 't', 'text': 'a', 'labels': ['Tax', 'law']},
    {'id': 'u', 'text': 'b', 'labels': ['tax']},
    {'id': 'v', 'labels': ['tax']},
  )
  data = JsonlData(dir=str(tmp_path), on_error=OnError.SKIP)
  corpus = load_corpus(data, 0)
  left_out, twins = warned.messages
  assert left_out.startswith('left out 1 record, with 1 fault:\n')
  assert corpus.left_out == 'left out 1 record, with 1 fault'
  assert twins == (
    '1 group of labels differs only in case or white space, or not at all, '
    "such as 'Tax' and 'tax': xjax data check lists them"
  )
  warned.clear()
  load_corpus(data, 0, corpus.label_space)  # of a model, as in evaluate
  assert len(warned.messages) == 1


def test_a_text_is_kept_as_eight_bytes():
  corpus = load_corpus(SyntheticData(n_train=60, n_dev=20, n_labels=20), 0)
  digests = corpus.split('train').text_digests
  assert digests.dtype == np.uint64 and len(np.unique(digests)) == 60
