"""Files of a folder: names of splits in any case, and what is not read."""

import gzip
import json

import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import write_csv
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData


def write(path, n=10):
  """Writes documents in the form that the name of a file says."""
  path.parent.mkdir(parents=True, exist_ok=True)
  rows = [
    {'text': f'{path.suffix} {i}', 'labels': 'ab'[i % 2]} for i in range(n)
  ]
  name = path.name.lower()
  if 'jsonl' in name:
    rows = [{'id': str(i), **x, 'labels': ['a']} for i, x in enumerate(rows)]
    path.write_text('\n'.join(map(json.dumps, rows)))
  else:
    write_csv(path, rows, delimiter='\t' if 't' in path.suffix.lower() else ',')
  if name.endswith(('.gz', '.gzip')):
    path.write_bytes(gzip.compress(path.read_bytes()))


def sizes(folder):
  raw = OwnData(dir=str(folder), dev_share=0, test_share=0).read()
  return {name: len(split) for name, split in raw.splits.items()}


@pytest.fixture
def folder(tmp_path, caplog):
  caplog.set_level('INFO', logger='absl')
  write(tmp_path / 'train.csv', 40)
  return tmp_path


@pytest.mark.parametrize(
  'name',
  'TEST.CSV holdout.csv Hold-Out.tsv test.txt test.tab TEST.CSV.GZ test1.csv '
  'Testing_Set.jsonl test.parquet.gzip heldout.JSONL.gzip'.split()
  + ['test (1).csv', 'TEST\u200b.csv'],
)
def test_a_file_of_test_may_have_another_name(folder, caplog, name):
  write(folder / name)
  assert sizes(folder) == {'train': 40, 'test': 10}
  assert 'not read' not in caplog.text


def test_unsure_names_count_if_there_is_no_better_one(folder, caplog):
  for name in ('eval.csv', 'holdout.csv'):
    write(folder / name)
  assert sizes(folder) == {'train': 40, 'dev': 10, 'test': 10}
  assert 'not read' not in caplog.text
  for name in ('test.csv', 'dev1.csv', 'dev2.csv'):
    write(folder / name, 5)
  assert sizes(folder) == {'train': 40, 'test': 5}
  assert 'not read: dev1.csv, dev2.csv, eval.csv, holdout.csv' in caplog.text


def test_names_of_several_words(tmp_path):
  for name in ('wos_train.csv', 'wos_eval.csv', 'wos_test1.csv'):
    write(tmp_path / name)
  assert sizes(tmp_path) == {'train': 10, 'dev': 10, 'test': 10}


@pytest.mark.parametrize(
  ('name', 'level'),
  [
    ('notes.csv', 'INFO'),
    ('тест.csv', 'INFO'),  # no word that is known
    ('te.csv', 'INFO'),  # Telugu?
    ('classes.txt', 'INFO'),
    ('eurovoc.rdf', 'INFO'),
    ('labels_en.csv', 'INFO'),
    ('train.xlsx', 'WARNING'),
    ('public_test.csv', 'WARNING'),
    ('test', 'WARNING'),
    ('test.csv.bak', 'WARNING'),
    ('Test/law/1.txt', 'WARNING'),
  ],
)
def test_data_that_are_not_read_are_named(folder, caplog, name, level):
  write(folder / name)
  assert sizes(folder) == {'train': 40}
  told = [x for x in caplog.records if 'not read: ' in x.getMessage()]
  assert [
    (x.levelname, name.split('/')[0] in x.getMessage()) for x in told
  ] == [(level, True)]


def test_files_that_are_no_documents_are_not_named(folder, caplog):
  for name in ('README.md', '.test.csv', 'test.npy', 'test.ids.txt', 'a.npy'):
    write(folder / name)
  assert sizes(folder) == {'train': 40}
  assert 'not read' not in caplog.text


@pytest.mark.parametrize(
  'name',
  'test.csv.zst TEST.XLSX holdout.zip dev.pkl evaluation.feather '
  'labels.csv.zst Labels.xlsx'.split(),
)
@pytest.mark.parametrize('form', [OwnData, JsonlData])
def test_a_split_in_a_form_that_is_not_read(tmp_path, name, form):
  write(tmp_path / 'train.jsonl', 40)
  (tmp_path / name).write_bytes(b'\x28\xb5\x2f\xfd....')
  message = error_text(form(dir=str(tmp_path)).read, folder=tmp_path)
  assert message.startswith(f'{name}: is ') and 'save it as CSV' in message
  for other in ('test.jsonl', 'dev.jsonl', 'labels.jsonl'):  # which are read
    write(tmp_path / other)
  (tmp_path / 'labels.jsonl').write_text('{"id": "a"}\n{"id": "b"}\n')
  form(dir=str(tmp_path)).read()


def test_lines_of_json_have_such_names_too(tmp_path, caplog):
  caplog.set_level('INFO', logger='absl')
  for name in ('train.jsonl', 'VALID.JSONL', 'more_test.jsonl', 'notes.csv'):
    rows = [{'id': str(i), 'text': name, 'labels': []} for i in range(5)]
    (tmp_path / name).write_text('\n'.join(map(json.dumps, rows)))
  raw = JsonlData(dir=str(tmp_path)).read()
  assert [*raw.splits] == ['train', 'dev']
  (record,) = caplog.records
  assert 'not read: more_test.jsonl, notes.csv. A f' in record.getMessage()
  assert record.levelname == 'WARNING'


def test_files_beside_a_file_are_named(folder, caplog):
  for name in ('Test.tsv', 'notes.csv'):
    write(folder / name)
  assert sizes(folder / 'train.csv') == {'train': 40}
  assert 'train.csv: not read: Test.tsv. A folder has' in caplog.text


def test_folders_that_are_no_splits_are_no_labels_either(tmp_path, caplog):
  """As in the reviews of IMDB: train/pos, test/pos and unsup."""
  caplog.set_level('INFO', logger='absl')
  for split in ('train', 'HoldOut'):
    for label in ('pos', 'neg'):
      for i in range(12):
        path = tmp_path / split / label / f'{i}.txt'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{split} {label} {i}')
  (tmp_path / 'unsup').mkdir()
  (tmp_path / 'unsup' / '1.txt').write_text('what?')
  assert sizes(tmp_path) == {'train': 24, 'test': 24}
  assert 'not read: unsup. A folder' in caplog.text
