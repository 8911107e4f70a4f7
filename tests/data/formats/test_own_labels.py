"""Corpora of one's own with a file of labels: a table, SKOS or JSON lines."""

import gzip

import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import write_csv
from xjax.core.errors import ConfigError
from xjax.data.files.csv_table import Quoting
from xjax.data.formats.own import OwnData
from xjax.data.load import load_corpus


def read(path, **fields):
  return OwnData(dir=str(path), **fields).read()


@pytest.fixture
def logged(caplog):
  caplog.set_level('INFO', logger='absl')
  return caplog


NAMES = {'q': 'Quartz', 'z': 'Zinc', 'r': 'Rutile'}
TABLE = 'id,name\n' + ''.join(f'{id_},{NAMES[id_]}\n' for id_ in NAMES)
SKOS = '@prefix : <http://www.w3.org/2004/02/skos/core#> .\n' + ''.join(
  f'<http://x.org/{id_}> a :Concept ; :prefLabel "{name}"@en .\n'
  for id_, name in NAMES.items()
)
IRIS = tuple(f'http://x.org/{id_}' for id_ in 'qrz')


def write_labelled(folder, labels):
  """Writes 30 rows, which have the labels in turn."""
  rows = [
    {'text': f'text {i}', 'label': labels[i % len(labels)]} for i in range(30)
  ]
  write_csv(folder / 'train.csv', rows)


@pytest.mark.parametrize(
  ('text', 'encoding', 'quoting'),
  [
    ('Řř Ďď', 'cp1250', 'auto'),
    ('Été à Évreux', 'mac-roman', 'csv'),
    ('"5', '', 'none'),
  ],
)
def test_the_form_of_tables_is_that_of_labels_too(
  tmp_path, text, encoding, quoting
):
  write_labelled(tmp_path, 'q')
  table = f'id,name\nq,{text}\n'.encode(encoding or 'utf-8')
  (tmp_path / 'labels.csv').write_bytes(table)
  found = read(tmp_path, encoding=encoding, quoting=Quoting(quoting))
  assert [label.name for label in found.labels] == [text]


@pytest.mark.parametrize(
  ('file', 'text', 'labels', 'ids', 'said'),
  [
    ('labels.csv', TABLE, 'qz', tuple(NAMES), ''),
    ('labels.csv', TABLE, 'zqxu', (*NAMES, 'u', 'x'), 'has 2 of the 4 labels'),
    ('labels.csv', 'id,name\nz,Zinc\n', 'qz', ('z', 'q'), 'has 1 of the 2'),
    (
      'labels.tsv',
      TABLE.replace(',', '\t'),
      [*NAMES.values()],
      tuple(NAMES),
      "3 labels of documents by name: 'Quartz' is 'q'",
    ),
    ('labels.csv', TABLE, ['quartz', 'ZINC'], tuple(NAMES), 'by name'),
    ('labels.csv', 'id,name\ns,Straße\n', ['STRASSE'], ('s',), 'by name'),
    ('labels.ttl', SKOS, [f'<{iri}>' for iri in IRIS], IRIS, ''),
    ('labels.ttl', SKOS, IRIS, IRIS, ''),
    ('labels.ttl', SKOS, 'qz', IRIS, "'q' is 'http://x.org/q'"),
    (
      'labels.jsonl',
      '{"id": "e", "name": "e\u0301te\u0301 "}',
      ['\xe9t\xe9'],
      ('e',),
      'by name',
    ),
  ],
)
def test_documents_and_a_file_of_labels(
  tmp_path, logged, file, text, labels, ids, said
):
  write_labelled(tmp_path, labels)
  (tmp_path / file).write_text(text)
  space = load_corpus(OwnData(dir=str(tmp_path)), 0).label_space
  assert space.ids == ids and space.train_counts.sum() == 24
  assert said in logged.text and ('of documents' in logged.text) == bool(said)


@pytest.mark.parametrize(
  ('text', 'label', 'message'),
  [
    (
      TABLE,
      'http://x.org/1',
      'labels.csv: has 0 of the 1 label of documents, which have '
      "'http://x.org/1'; the file has 'q', 'z', 'r'. Give the file",
    ),
    (TABLE, 'quarz', 'labels.csv: has 0 of the 1 label of documents'),
    (
      'id,name\nx,Polish\ny,polish\n',
      'POLISH',
      "train.csv:2: 'POLISH' is the name of several labels ('x', 'y'): give",
    ),
    (
      TABLE + 'y,Zinc\n',
      'Zinc',
      "train.csv:2: 'Zinc' is the name of several labels ('z', 'y'): give ids "
      '(the first of 30 such faults)',
    ),
  ],
)
def test_a_file_of_other_labels_is_one_error(tmp_path, text, label, message):
  write_labelled(tmp_path, [label])
  (tmp_path / 'labels.csv').write_text(text)
  error = error_text(read, tmp_path, folder=tmp_path)
  assert error.startswith(message)


def test_a_file_of_few_labels_is_a_warning(tmp_path, logged):
  write_labelled(tmp_path, '01234')
  (tmp_path / 'labels.csv').write_text('id,name\n4,four\nx1,odd\n')
  read(tmp_path)
  (warning,) = [x for x in logged.records if x.levelname == 'WARNING']
  told = (
    "has 1 of the 5 labels of documents, which have '0', '1', '2'; the file"
  )
  assert told in warning.getMessage()


@pytest.mark.parametrize('name', ['Labels.CSV', 'label.csv', 'LABELS.Tab.GZIP'])
def test_a_file_of_labels_may_have_another_name(tmp_path, name):
  write_labelled(tmp_path, 'qz')
  mark = '\t' if 'Tab' in name else ','
  data = TABLE.replace(',', mark).encode()
  data = gzip.compress(data) if 'GZIP' in name else data
  (tmp_path / name).write_bytes(data)
  assert [label.name for label in read(tmp_path).labels] == [*NAMES.values()]


def test_lines_of_text_are_ids_of_labels(tmp_path, logged):
  write_labelled(tmp_path, 'qz')
  (tmp_path / 'Labels.txt').write_text('魚\nz\nq\n', 'utf-8')
  assert not read(tmp_path).labels
  assert 'not read: Labels.txt. A folder has' in logged.text
  labels = read(tmp_path, label_file='Labels.txt').labels
  assert labels.ids == ('魚', 'z', 'q')


def test_a_file_of_labels_may_be_anywhere(tmp_path, logged):
  write_labelled(tmp_path, 'qz')
  far = tmp_path / 'far'
  far.mkdir()
  skos, beside = far / 'minerals.ttl', tmp_path / 'names.csv'
  skos.write_text(SKOS)
  beside.write_text(TABLE)
  for source in (tmp_path / 'train.csv', tmp_path):
    for chosen in (str(skos), 'names.csv'):
      labels = read(source, label_file=chosen).labels
      assert {label.name for label in labels} == {*NAMES.values()}
  with pytest.raises(
    ConfigError, match="label_file='no.csv': there is no such"
  ):
    read(tmp_path, label_file='no.csv')
  with pytest.raises(ConfigError, match="label_language='fi': .* names in en"):
    read(tmp_path, label_file=str(skos), label_language='fi')
  beside.rename(tmp_path / 'labels.csv')
  logged.clear()
  assert not read(tmp_path / 'train.csv').labels
  assert 'train.csv: not read: labels.csv. A folder has' in logged.text
