"""Columns and files name splits; zeros and ones need names of labels."""

import json

import pyarrow as pa
from pyarrow import parquet
import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import make_rows, write_csv
from xjax.data.formats.own import OwnData
from xjax.data.load import read_input
from xjax.data.tokens_config import OnError

ROWS = make_rows(40, 6)
SPLITS = ['train', 'dev', 'test']


def read(path, **fields):
  return OwnData(dir=str(path), **fields).read()


def sizes(raw):
  return {name: len(split) for name, split in raw.splits.items()}


def test_a_column_names_the_splits(news, logged):
  names = ['train', 'Validation', 'test', 'train']
  rows = [{**row, 'split': names[i % 4]} for i, row in enumerate(ROWS)]
  raw = read(news(rows))
  assert [len(raw.splits[name].ids) for name in SPLITS] == [20, 10, 10]
  assert raw.drawn == () and 'the column split names splits' in logged.text


def test_a_split_without_documents_is_not_there(news):
  """Neither train, if every row is of test, nor a dev with only faulty rows."""
  path = news([{**row, 'split': 'test'} for row in ROWS])
  raw = OwnData(dir=str(path)).read(('test',), usual=False)
  assert sizes(raw) == {'test': 40}
  rows = [
    {'text': f'text {i}', 'tag': 'a', 'split': 'train'} for i in range(40)
  ]
  path = news([*rows, {'text': '', 'tag': 'a', 'split': 'dev'}])
  raw = read(path, on_error=OnError.SKIP)
  assert [len(raw.splits[name]) for name in SPLITS] == [32, 4, 4]


def with_splits(names, column='split', n=40):
  return [
    {'text': f'text {i}', 'labels': 'ab'[i % 2], column: names[i % len(names)]}
    for i in range(n)
  ]


@pytest.mark.parametrize(
  ('column', 'names'),
  [
    ('split', ['train', 'Development', 'TESTING', 'trn']),
    ('Set', ['Training Set', 'dev_set', 'TST', 'train']),
    ('partition', ['TRAIN', 'evaluation', ' test ', 'training data']),
    ('phase', ['train1', 'dev1', 'Test Set 1', 'train2']),
    ('Data Split', ['tr', 'va', 'te', 'tr']),
    ('subset', ['trn', 'val_2020', 'hold-out', '\xa0TRAIN\xad']),
  ],
)
def test_usual_names_of_splits_are_read(news, column, names):
  raw = read(news(with_splits(names, column)))
  assert sizes(raw) == {'train': 20, 'dev': 10, 'test': 10}


@pytest.mark.parametrize(
  ('names', 'wrong'),
  [
    (['train', 'train', 'test', 'unlabeled'], "'unlabeled'"),
    (['train', 'valid', 'TEST', 'eval'], "'eval'"),  # two kinds of dev?
    (['train', 'Dev', 'test', ''], "''"),
    (['train', 'test', 'test', '2'], "'2'"),
    (['train', 'train', 'train', 'test.csv'], "'test.csv'"),
  ],
)
def test_an_unknown_split_is_one_error_with_the_ways_out(news, names, wrong):
  path = news(with_splits(names))
  first, last = error_text(read, path, folder=path.parent).splitlines()
  assert first.startswith(f'news.csv:5: the column split has {wrong}, but this')
  assert '--config.data.split=none (the first of 10 such faults)' in first
  assert last.startswith('10 faults in all') and 'on_error=skip' in last
  assert read(path, split='none').drawn == tuple(SPLITS)
  assert sum(sizes(read(path, on_error=OnError.SKIP)).values()) == 30


@pytest.mark.parametrize(
  ('column', 'names'),
  [
    ('set', ['data/train', 'data/test']),
    ('phase', ['train.csv', 'test.csv']),
    ('split', ['entraînement', 'épreuve']),
    ('Split', ['T', 'V', '']),
  ],
)
def test_no_name_of_a_split_is_understood(news, column, names):
  message = error_text(read, news(with_splits(names, column)))
  assert f'the column {column} has {names[0]!a}, but this is no' in message
  assert f'has {names[-1]!a}' in message


@pytest.mark.parametrize('form', ['jsonl', 'parquet'])
def test_all_rows_of_every_form_tell_the_splits(tmp_path, form):
  """An unknown value after the first 1,000 rows counts too."""
  rows = with_splits(['7'], n=1001) + with_splits(['train', 'test', None], n=60)
  path = tmp_path / f'news.{form}'
  if form == 'parquet':
    parquet.write_table(pa.Table.from_pylist(rows), path)
  else:
    rows = [{**row, 'labels': [row['labels']]} for row in rows]
    path.write_text('\n'.join(map(json.dumps, rows)))
  message = error_text(read, path)
  assert "has '7'" in message and '(the first of 1001 such' in message
  assert "has ''" in message and '(the first of 20 such' in message


@pytest.mark.parametrize(
  ('flags', 'expected'),
  [
    ({'is_train': '1101'}, (30, 0, 10)),
    ({'Is Test': ['FALSE', 'true', 'False', 'False']}, (30, 0, 10)),
    ({'isValid': ['0.0', '0.0', '1.0', '0.0']}, (30, 10, 0)),
    ({'is_train': '1001', 'is_test': '0100'}, (20, 10, 10)),
    ({'is_val': '0010', 'is_test': '0100'}, (20, 10, 10)),
    ({'is_holdout': '0100', 'eval_flag': '0010'}, (20, 10, 10)),
    ({'in_train': ['yes', 'yes', 'no', 'yes']}, (30, 0, 10)),
    ({'is_test': '1000', 'is_dev': '0100', 'is_train': '0011'}, (20, 10, 10)),
  ],
)
def test_columns_of_zeros_and_ones_name_splits(news, flags, expected):
  rows = with_splits([''])
  for i, row in enumerate(rows):
    row |= {name: values[i % 4] for name, values in flags.items()}
  found = sizes(read(news(rows), dev_share=0, test_share=0))
  assert tuple(found.get(name, 0) for name in SPLITS) == expected


def test_columns_of_zeros_and_ones_may_be_faulty(news, tmp_path):
  path = news(with_splits(['ja', 'no'], 'is_train'))
  assert "the column is_train has 'ja', but this is no name" in error_text(
    read, path
  )
  rows = [{**row, 'is_test': '1'} for row in with_splits('1', 'is_train')]
  message = error_text(read, news(rows))
  assert "is_train and is_test has 'train and test', but this" in message
  path.unlink()
  for name in SPLITS:  # zeros need not be of test
    write_csv(
      tmp_path / f'{name}.csv', with_splits('01'[name == 'train'], 'is_train')
    )
  assert sizes(read(tmp_path)) == dict.fromkeys(SPLITS, 40)
  write_csv(tmp_path / 'train.csv', with_splits('10', 'is_train'))
  message = error_text(read, tmp_path, folder=tmp_path)
  assert message.startswith("train.csv:3: the column is_train has 'test', but")


def test_columns_that_are_not_read_are_named(news, logged):
  rows = with_splits(['Training', 'PublicTest'], 'usage')
  read(news(rows))
  assert 'column usage is not read, but seems to name splits' in logged.text
  logged.clear()
  read(news([{**row, 'mode': 'bus', 'set': 'train'} for row in rows]))
  assert 'usage' in logged.text and 'mode' not in logged.text
  logged.clear()
  rows = with_splits('1000', 'Test')
  read(news(rows))
  assert '--config.data.split=Test reads it' in logged.text
  assert sizes(read(news(rows), split='Test'))['test'] == 10
  for row, split in zip(rows, ['train', 'test'] * 20):
    row |= {'split': split, 'set': split}
  assert len(read(news(rows)).splits['test']) == 20
  assert 'the column set is ignored' in logged.text


@pytest.mark.parametrize(
  'values',
  [
    '12345',
    ['red', 'blue'],
    ['2024-01', ''],
    ['tr', 'en', 'te'],  # languages
    ['development', 'testing', 'production'],
  ],
)
def test_a_column_of_other_values_names_no_splits(news, logged, values):
  path = news(with_splits(values, 'set'))
  assert read(path).drawn == tuple(SPLITS)
  assert 'the column set is ignored: it has no name of a split' in logged.text
  assert repr(values[1]) in logged.text
  assert repr(values[-1]) in error_text(read, path, split='set')


def test_a_column_of_splits_can_be_named(news):
  path = news(with_splits(['train', 'test'], 'usage'))
  assert read(path).drawn == tuple(SPLITS)
  assert read(path, split='usage').drawn == ('train', 'dev')
  assert "no column 'use' (data.split)" in error_text(read, path, split='use')


def test_a_column_of_splits_must_agree_with_the_files(tmp_path):
  rows = with_splits(['train', 'test'])
  write_csv(tmp_path / 'Train.csv', rows)
  assert len(read(tmp_path).splits['test']) == 20  # one file is any file
  write_csv(tmp_path / 'TEST_set.csv', rows[1::2])
  message = error_text(read, tmp_path, folder=tmp_path)
  assert "Train.csv:3: the column split has 'test', but this is the" in message
  raw = read(tmp_path, split='none')
  assert len(raw.splits['test']) == 20 and raw.drawn == ('train', 'dev')
  (tmp_path / 'Train.csv').unlink()
  write_csv(tmp_path / 'train.csv', rows[::2])
  write_csv(tmp_path / 'test_easy.csv', rows[1::2])  # a split of its own
  data = OwnData(dir=str(tmp_path))
  assert len(data.read(['test_easy']).splits['test_easy']) == 20


@pytest.mark.parametrize('form', ['csv', 'numpy', 'parquet', 'jsonl', 'zones'])
def test_lists_of_zeros_and_ones_need_names(tmp_path, form):
  hot = [[int(i % 3 == 0), 1, 0, i % 2] for i in range(40)]
  rows = [{'text': f'text {i}', 'labels': x} for i, x in enumerate(hot)]
  if form == 'parquet':
    rows = [{**row, 'labels': [x == 1 for x in row['labels']]} for row in rows]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / 'news.parquet')
  elif form in ('jsonl', 'zones'):
    if form == 'zones':
      rows = [{'zones': {'a': x['text']}, 'labels': x['labels']} for x in rows]
    (tmp_path / 'train.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  else:
    for row in rows if form == 'numpy' else ():
      row['labels'] = str(row['labels']).replace(',', '.')
    write_csv(tmp_path / 'news.csv', rows)
  message = error_text(read, tmp_path)
  assert 'labels has lists of zeros and ones' in message
  assert 'labels.jsonl' in message
  names = ''.join(json.dumps({'id': name}) + '\n' for name in 'zyxw')
  (tmp_path / 'labels.jsonl').write_text(names)
  train = read(tmp_path, dev_share=0, test_share=0).splits['train']
  assert [train.documents[i].labels for i in range(4)] == [
    *(('z', 'y'), ('y', 'w'), ('y',), ('z', 'y', 'w'))
  ]
  # Labels of new documents are unknown, since their places are.
  data = OwnData(dir=str(tmp_path)).with_guesses()
  (path,) = tmp_path.glob('[nt]*')
  assert {document.labels for document in read_input(data, str(path))} == {None}
  (tmp_path / 'labels.jsonl').write_text(names[:-12])
  assert '4 zeros and ones, but there are 3 labels' in error_text(
    read, tmp_path
  )
