"""Corpora of one's own: any usual form is read, and splits are drawn."""

import bz2
import gzip
import json
import lzma
import os
import pathlib
import sys

import pyarrow as pa
from pyarrow import parquet
import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import make_rows, write_csv
from xjax.core.errors import ConfigError, DataError, UserError
from xjax.data.formats.own import OwnData
from xjax.data.load import load_corpus, read_input
from xjax.data.schema import Document
from xjax.data.tokens_config import OnError

ROWS = make_rows(40, 6)
SPLITS = ['train', 'dev', 'test']


def read(path, **fields):
  return OwnData(dir=str(path), **fields).read()


def documents_of(path, **fields) -> dict[str, tuple]:
  """Text and labels of all documents of a corpus, by id."""
  return {
    document.id: (document.text(), document.labels)
    for split in read(path, **fields).splits.values()
    for document in split.documents
  }


WHOLE = {'dev_share': 0.0, 'test_share': 0.0}


def expected(rows=ROWS):
  names = 'title', 'summary', 'body'
  texts = ('\n'.join(row[name] for name in names) for row in rows)
  return sorted(zip(texts, (tuple(row['tags'].split(';')) for row in rows)))


@pytest.mark.parametrize(
  ('delimiter', 'encoding'),
  [(',', 'latin-1'), (';', 'utf-8'), ('\t', 'utf-8-sig'), ('|', 'utf-16')],
)
def test_a_table_is_told_by_its_contents(tmp_path, delimiter, encoding):
  path = tmp_path / 'news.table'
  write_csv(path, ROWS, delimiter, encoding)
  assert sorted(documents_of(path).values()) == expected()


@pytest.mark.parametrize(
  ('ending', 'pack'),
  [('gz', gzip.compress), ('bz2', bz2.compress), ('xz', lzma.compress)],
)
def test_a_table_may_be_compressed(tmp_path, news, ending, pack):
  data = pack(news(ROWS).read_bytes())
  path = tmp_path / f'packed/train.csv.{ending}'
  path.parent.mkdir()
  path.write_bytes(data)
  for source in path, path.parent:
    assert sorted(documents_of(source).values()) == expected()


def test_a_folder_with_a_file_of_fasttext_per_split(tmp_path):
  lines = [f'__label__a_{i % 3} __label__ü x, {i}\n' for i in range(9)]
  for name in 'train', 'dev', 'test':
    (tmp_path / f'{name}.txt').write_text(''.join(lines))
  data = OwnData(dir=str(tmp_path)).with_guesses()
  documents = data.read().splits['train'].documents
  assert documents[8] == Document('line-9', {'text': 'x, 8'}, ('a_2', 'ü'))
  for text in '__label__b y\nz\n', 'z\n__label__b y\n', 'z\n\n[y], y':
    (tmp_path / 'new').write_text(text)
    found = read_input(data, str(tmp_path / 'new'))
    assert {d.labels for d in found if 'y' in d.text()} <= {('b',), None}
    assert [d.labels for d in found if 'z' in d.text()] == [None]
  for text in 'y', 'x, y', 'a "b" c\ta', '日本|語':
    (tmp_path / 'new').write_text(f'{text}\nz\n')
    found = read_input(data, str(tmp_path / 'new'))
    assert [(d.text(), d.labels) for d in found] == [(text, None), ('z', None)]
  (tmp_path / 'new').write_text('{"text": "z"}\n')
  assert read_input(data, str(tmp_path / 'new'))[0].text() == 'z'


@pytest.mark.parametrize('labels', ['a;b', 'b;c;a', '', None, 'a'])
def test_labels_of_json_lines_may_be_a_text(tmp_path, labels):
  path = tmp_path / 'x.jsonl'
  texts = ['a;b', 'b;c', 'a;c', 'c', 'a;b;c', labels]
  rows = [{'text': f'{i}', 'labels': x} for i, x in enumerate(texts)]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  found = documents_of(path, **WHOLE)['line-6'][1]
  assert found == tuple(filter(None, (labels or '').split(';')))


def test_a_document_without_an_id_has_its_line(news):
  # Each body has a line break, so a row takes two lines.
  ids = {f'line-{2 + 2 * i}' for i in range(len(ROWS))}
  assert set(documents_of(news(ROWS))) == ids


@pytest.mark.parametrize('lists', [True, False])
def test_a_parquet_file(tmp_path, lists):
  table = {key: [row[key] for row in ROWS] for key in ROWS[0]}
  if lists:
    table['tags'] = [tags.split(';') for tags in table['tags']]
  parquet.write_table(pa.table(table), tmp_path / 'news')
  documents = documents_of(tmp_path / 'news')
  assert sorted(documents.values()) == expected()
  assert 'line-1' in documents


def test_parquet_without_pyarrow_is_one_error(tmp_path, monkeypatch):
  parquet.write_table(pa.table({'text': ['x']}), tmp_path / 'news.parquet')
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(UserError, match=r"news.parquet: .*'xjax\[parquet\]'$"):
    documents_of(tmp_path / 'news.parquet')


def test_json_lines_with_other_fields(tmp_path):
  path = tmp_path / 'news.jsonl'
  rows = [{**row, 'tags': row['tags'].split(';')} for row in ROWS]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  assert sorted(documents_of(path).values()) == expected()
  renamed = documents_of(path, text=('body', 'title'), labels='tags')
  assert renamed['line-1'][0] == f'{ROWS[0]["body"]}\n{ROWS[0]["title"]}'


def test_json_lines_in_the_usual_form(tmp_path):
  rows = [
    {'id': f'd{i}', 'zones': {'t': f'text {i}'}, 'labels': ['a']}
    for i in range(20)
  ]
  for name in ('train', 'dev'):
    (tmp_path / f'{name}.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  (tmp_path / 'labels.jsonl').write_text('{"id": "b"}\n{"id": "a"}\n')
  data = OwnData(dir=str(tmp_path))
  assert data.with_guesses() == data
  raw = data.read()
  # There is a dev split, so no test split is drawn.
  assert list(raw.splits) == ['train', 'dev'] and raw.drawn == ()
  assert raw.splits['train'].ids == tuple(f'd{i}' for i in range(20))
  corpus = load_corpus(data, 0)
  assert corpus.label_space.ids == ('b', 'a')


def write_texts(folder: pathlib.Path, n: int = 12):
  for i in range(n):
    path = folder / ('sport', 'law')[i % 2] / f'{i}.txt'
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = ('utf-8', 'latin-1', 'utf-16')[i % 3]
    path.write_text(f'text {i} ü', encoding)


def test_a_folder_per_label(tmp_path):
  write_texts(tmp_path)
  (tmp_path / 'sport' / 'notes.pdf').write_bytes(b'\0')
  (tmp_path / 'law' / '.hidden').write_bytes(b'\0')
  documents = documents_of(tmp_path)
  assert len(documents) == 12
  assert documents['sport/0.txt'] == ('text 0 ü', ('sport',))
  assert documents['law/1.txt'] == ('text 1 ü', ('law',))


def test_a_text_file_that_cannot_be_read_is_an_error(tmp_path):
  write_texts(tmp_path)
  (tmp_path / 'law' / 'a.txt').symlink_to('nowhere')
  with pytest.raises(DataError, match='law/a.txt: cannot be read: No such'):
    documents_of(tmp_path)


def test_a_folder_per_split_and_label(tmp_path):
  write_texts(tmp_path / 'news-train')
  write_texts(tmp_path / 'news-test', 4)
  raw = read(tmp_path)
  ids = 'law/1.txt', 'law/3.txt', 'sport/0.txt', 'sport/2.txt'
  assert raw.splits['test'].ids == ids
  # A dev split is drawn from train, since there is none.
  assert raw.drawn == ('train', 'dev') and len(raw.splits['dev'].ids) == 1
  assert len(raw.splits['train'].ids) == 11


def test_splits_do_not_depend_on_the_order_of_the_file(news):
  rows = [{**row, 'id': f'n{i}'} for i, row in enumerate(ROWS)]
  first = read(news(rows))
  assert list(first.splits) == SPLITS and first.drawn == tuple(SPLITS)
  sizes = [len(split.ids) for split in first.splits.values()]
  assert sizes == [32, 4, 4]
  path = news(rows[::-1])
  again = read(path)
  for name in SPLITS:
    assert set(again.splits[name].ids) == set(first.splits[name].ids)
  other = read(path, split_seed=1)
  assert set(other.splits['dev'].ids) != set(first.splits['dev'].ids)


def test_one_split_is_the_same_as_in_the_whole_corpus(news):
  data = OwnData(dir=str(news(ROWS)))
  corpus = load_corpus(data, 0)
  space = corpus.label_space
  for name in SPLITS:
    alone = load_corpus(data, 0, space, [name])
    assert list(alone.splits) == [name]
    assert alone.split(name).digest == corpus.split(name).digest
    assert alone.label_space.labels == space.labels


def test_documents_of_the_same_text_stay_together(news):
  rows = [{'text': f'text {i % 15}', 'label': 'a'} for i in range(60)]
  texts = [
    {document.text() for document in split.documents}
    for split in read(news(rows)).splits.values()
  ]
  assert sum(map(len, texts)) == 15


def test_too_few_documents_are_one_error(news):
  path = news(ROWS[:9])
  with pytest.raises(DataError, match='news.csv: 9 documents are too few'):
    documents_of(path)
  assert len(documents_of(path, **WHOLE)) == 9


@pytest.mark.parametrize(
  ('row', 'says'),
  [
    ('', 'dev.csv: no document in it'),
    (',,,a\n', 'dev.csv:2: the document has'),
  ],
)
def test_a_file_without_documents_may_be_skipped(tmp_path, logged, row, says):
  write_csv(tmp_path / 'train.csv', ROWS)
  header = ','.join(ROWS[0])
  (tmp_path / 'dev.csv').write_text(f'{header}\n{row}')
  message = error_text(read, tmp_path)
  assert says in message and 'on_error=skip' in message
  raw = read(tmp_path, on_error=OnError.SKIP)
  assert list(raw.splits) == ['train'] and len(raw.splits['train']) == 40
  assert raw.left_out == 'left out 1 record, with 1 fault'
  assert says in logged.text
  (tmp_path / 'train.csv').write_text(f'{header}\n')
  assert 'train.csv: no document in it' in error_text(
    read, tmp_path, on_error=OnError.SKIP
  )


def test_a_folder_with_a_table_per_split(tmp_path):
  write_csv(tmp_path / 'train.csv', ROWS[:20])
  write_csv(tmp_path / 'valid.tsv', ROWS[20:25], '\t')
  write_csv(tmp_path / 'test.csv', ROWS[25:], ';')
  raw = read(tmp_path)
  assert [len(raw.splits[name].ids) for name in SPLITS] == [20, 5, 15]


def test_guesses_are_logged_and_settled(news, logged):
  data = OwnData(dir=str(news(ROWS))).with_guesses()
  assert '--config.data.text=title,summary,body' in logged.text
  assert (data.labels, data.label_separator) == ('tags', ';')
  assert data.with_guesses() == data


def test_a_pipe_is_no_corpus(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  data = OwnData(dir=str(tmp_path / 'pipe'))
  with pytest.raises(DataError, match='pipe: is a pipe or a device'):
    data.with_guesses()


@pytest.mark.parametrize('name', ['labels', 'tags'])
def test_integers_are_ids_in_every_form(tmp_path, name):
  rows = [{'id': 3 * i, 'text': f't {i}', name: [i % 3, '7']} for i in range(9)]
  path = tmp_path / 'news.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  assert documents_of(path, **WHOLE)['3'] == ('t 1', ('1', '7'))
  path.write_text(''.join(json.dumps(r | {name: 7}) + '\n' for r in rows))
  if name == 'tags':
    assert documents_of(path, **WHOLE)['3'] == ('t 1', ('7',))


def test_integers_that_parquet_has_as_decimals(tmp_path):
  """pandas writes them so if a cell is missing; 2.5 is no label."""
  for number in 3.0, 2.5:
    table = pa.table({'text': ['a', 'b'], 'label': [number, None]})
    parquet.write_table(table, tmp_path / 'news')
    if number == 3:
      labels = [x[1] for x in documents_of(tmp_path / 'news', **WHOLE).values()]
      assert labels == [('3',), ()]
  with pytest.raises(DataError, match='news:1: label is a decimal number, not'):
    documents_of(tmp_path / 'news')


def test_faults_name_the_line_not_the_row(tmp_path):
  path = tmp_path / 'news.csv'
  path.write_text('text,labels\n"two\nlines",a\ntoo,many,cells\n\nfew\n  ,a\n')
  lines = error_text(documents_of, path, folder=tmp_path).splitlines()
  assert lines[:3] == [
    'news.csv:4: 3 cells, but 2 columns',
    'news.csv:6: 1 cells, but 2 columns',
    'news.csv:7: the document has no text',
  ]


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    (b'text,labels\n"open,a\nx,b\n', ':2: .* quote that is never closed'),
    (b'text,labels\nx,\0a\n', ':2: a NUL byte: the file is not text'),
    (b'text,labels\n' + 'ä,ö\n'.encode() * 9 + b'\xff,a\n', ':11: a by'),
    (b'A long day in court,law\nx,b\ny,c\n', 'cannot tell which columns hold'),
    (b'1,law\n2,b\n', ":1: the first row must be the header.* is '1'"),
    (b'text,text\n2,b\n', ":1: the first row must .*'text' occurs twice"),
    (b'story,mood\nx,b\n', 'the columns are: story, mood. .*data.text=COLUMN'),
    (b'text,tags,topics\nx,b,c\n', 'which columns hold the labels;'),
    (b'', 'no document in it'),
    (b'PK\x03\x04\0\0', 'a spreadsheet such as .xlsx; save the table as CSV'),
  ],
)
def test_what_is_no_table_is_one_error(tmp_path, text, says):
  path = tmp_path / 'news.csv'
  path.write_bytes(text)
  with pytest.raises(DataError, match=says) as caught:
    documents_of(path)
  assert str(path) in str(caught.value)


def test_a_column_that_does_not_exist_is_one_error(news):
  says = "there is no column 'topic' .data.labels."
  with pytest.raises(DataError, match=says):
    documents_of(news(ROWS), labels='topic')


def test_a_folder_without_documents_is_one_error(tmp_path):
  assert 'no documents in it; expected' in error_text(read, tmp_path)
  assert 'no such file or folder' in error_text(read, tmp_path / 'none.csv')
  with pytest.raises(ConfigError, match='data.dir=FILE_OR_FOLDER'):
    OwnData().read()
