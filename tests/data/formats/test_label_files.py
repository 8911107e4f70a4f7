"""Files about labels: descriptors, taxonomies, names of columns."""

import dataclasses
import gzip
import json
import tracemalloc

import hypothesis
from hypothesis import strategies as st
import pyarrow as pa
from pyarrow import parquet
import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import write_csv
from xjax.core.errors import ConfigError
from xjax.data.files.faults import Faults
from xjax.data.formats.label_files import (
  is_table,
  read_columns,
  read_descriptors,
  read_taxonomy,
)
from xjax.data.schema import Label

READERS = {
  'taxonomy': read_taxonomy,
  'Y.txt': lambda path, faults: read_columns(path, faults, plain=True),
  'lbl.json': read_columns,
}


def read(path, *language):
  faults = Faults()
  name = path.name.removesuffix('.gz')
  labels = READERS.get(name, read_descriptors)(path, faults, *language)
  faults.raise_or_log()
  return labels


def test_descriptors_have_all_fields(tmp_path):
  path = tmp_path / 'labels.jsonl'
  path.write_text(
    '{"id": "b", "name": "B", "alt": ["bee"], "parents": ["a"], '
    '"description": "letter", "more": 1}\n{"id": "a"}\n'
  )
  assert list(read(path).values()) == [
    Label('b', 'B', ('bee',), ('a',), 'letter'),
    Label('a', 'a'),
  ]


ANIMAL = Label('2', 'animal')
FISH = Label('1', 'fish', ('fishes', 'Pisces, plural'), ('2',), 'swims; eats')
IRIS = {'1': 'http://x.org/1', '2': 'http://x.org/2'}


def as_iri(label):
  parents = tuple(IRIS[parent] for parent in label.parents)
  return dataclasses.replace(label, id=IRIS[label.id], parents=parents)


@pytest.mark.parametrize(
  ('name', 'text', 'labels'),
  [
    (
      'labels.csv',
      'id,name,alt,parents,description\n'
      '1,fish,"fishes|Pisces, plural",2,swims; eats\n2,animal,,,\n',
      [FISH, ANIMAL],
    ),
    (
      'labels.tsv',
      'uri\tskos:prefLabel@fi\tskos:prefLabel@en\taltLabel\tbroader\t'
      'definition\n<http://x.org/1>\tkala\tfish\tfishes;Pisces, plural\t'
      '<http://x.org/2>\tswims; eats\n<http://x.org/2>\teläin\tanimal\t\t\t\n',
      [as_iri(FISH), as_iri(ANIMAL)],
    ),
    (  # parents by name, lists in cells
      'labels.csv',
      'code;Pref Label;synonyms;Parent\n'
      '1;魚;"[""a"", ""b;c""]";動物\n2;動物;;\n',
      [Label('1', '魚', ('a', 'b;c'), ('2',)), Label('2', '動物')],
    ),
    (  # Annif's vocabularies
      'labels.tsv',
      '<http://x.org/2>\tanimal\n<http://x.org/1>\tfish\n',
      [as_iri(ANIMAL), Label('http://x.org/1', 'fish')],
    ),
    (
      'labels.csv',
      'uri,label_fi,label_en,notation\nhttp://x.org/2,eläin,animal,590\n',
      [as_iri(ANIMAL)],
    ),
    (  # parents by code
      'labels.csv',
      'id,code,name,parent_code\n1,B1,fish,"A,1"\n2,"A,1",animal,\n',
      [Label('1', 'fish', parents=('2',)), ANIMAL],
    ),
    (
      'labels.jsonl',
      '{"uri": "1", "prefLabel": "fish", "altLabel": "kala", "parent_id": "2"}'
      '\n{"uri": "2", "prefLabel": "animal"}\n',
      [Label('1', 'fish', ('kala',), ('2',)), ANIMAL],
    ),
    (  # an id of 0, and fields that the first line lacks
      'labels.jsonl',
      '{"label_id": 0, "label_name": "fish"}\n'
      '{"label_id": 2, "label_name": "law", "synonym": "б", "broader": [0]}\n',
      [Label('0', 'fish'), Label('2', 'law', ('б',), ('0',))],
    ),
    ('labels.csv', 'label,title\n2,animal\n', [ANIMAL]),
    ('labels.csv', 'code,libellé\n2,animal\n', [ANIMAL]),
    ('labels.csv', 'label\nfish\n', [Label('fish', 'fish')]),
    (
      'labels.tsv',
      'id\tparents\na\thttp://x.org/1 http://x.org/2\n'
      'http://x.org/1\t\nhttp://x.org/2\t\n',
      [Label('a', 'a', parents=tuple(IRIS.values()))]
      + [Label(id_, id_) for id_ in IRIS.values()],
    ),
    (  # most cells tell the separator; names of parents may have commas
      'labels.csv',
      'id,name,alt,parents\na,A,x|y;z,"Oil, gas"\nb,B,p;q,"a,c"\n'
      'c,"Oil, gas",s;t,\n',
      [
        Label('a', 'A', ('x|y', 'z'), ('c',)),
        Label('b', 'B', ('p', 'q'), ('a', 'c')),
        Label('c', 'Oil, gas', ('s', 't')),
      ],
    ),
    (  # a parent whose id has a comma, and two parents
      'labels.csv',
      'id,parents\na,"b, c"\n"b, c",\nd,"a,e"\ne,\n',
      [
        Label('a', 'a', parents=('b, c',)),
        Label('b, c', 'b, c'),
        Label('d', 'd', parents=('a', 'e')),
        Label('e', 'e'),
      ],
    ),
  ],
)
def test_tables_of_labels(tmp_path, name, text, labels):
  path = tmp_path / name
  path.write_text(text)
  assert is_table(path) == (name != 'labels.jsonl')
  assert list(read(path).values()) == labels


@pytest.mark.parametrize(
  'column',
  'parents parent_code Parent-ID broader broaderConcept parentUri parent_label '
  'broader_id superclass'.split(),
)
def test_columns_of_parents(tmp_path, column):
  path = tmp_path / 'labels.csv'
  path.write_text(f'id,name,{column}\n1,fish,2\n2,animal,\n')
  assert read(path)['1'].parents == ('2',)


@pytest.mark.parametrize('form', ['csv', 'jsonl'])
@pytest.mark.parametrize(
  ('english', 'other'),
  [
    ('name_en', 'name_de'),
    ('label@en', 'label@de'),
    ('prefLabel (en)', 'prefLabel (de-AT)'),
    ('en_name', 'de_name'),
    ('labelEn', 'labelDe'),
    ('skos:prefLabel@en-GB', 'Label-DE'),
    ('name', 'name_de'),
  ],
)
def test_names_in_languages(tmp_path, caplog, form, english, other):
  caplog.set_level('INFO', 'absl')
  path = tmp_path / f'labels.{form}'
  rows = [{'id': '1', english: 'fish', other: 'Fußfisch'}]
  if form == 'csv':
    write_csv(path, rows, encoding='utf-8')
  else:
    path.write_text(json.dumps(rows[0]))
  for language, name in (('', 'fish'), ('de', 'Fußfisch'), ('DE', 'Fußfisch')):
    assert read(path, language) == {'1': Label('1', name)}
  assert f"'{other}'" in caplog.text
  tags = 'de.*' if english == 'name' else 'de.*, en.*'
  with pytest.raises(ConfigError, match=f"='sv': .* in {tags}; the columns ar"):
    read(path, 'sv')


def test_a_table_in_one_language_has_no_other(tmp_path):
  path = tmp_path / 'labels.csv'
  path.write_text('id,name,alt_id\n1,fish,2\n')
  with pytest.raises(ConfigError, match='in one language, which is not named'):
    read(path, 'alt')


def test_a_table_of_labels_may_be_parquet(tmp_path):
  columns = {'id': [1.0, 2.0], 'name': ['fish', 'animal']}
  columns |= {'alt': [['fishes', 'Pisces, plural'], None]}
  columns |= {'parent': [2.0, None], 'scope note': ['swims; eats', None]}
  path = tmp_path / 'labels.parquet'
  parquet.write_table(pa.table(columns), path)
  assert list(read(path).values()) == [FISH, ANIMAL]


def test_plain_names_are_no_table(tmp_path):
  path = tmp_path / 'names.csv'
  path.write_text('fish, frozen\nbirds, dead\n')
  assert not is_table(path) and not is_table(tmp_path / 'names.txt')


def test_labels_of_a_taxonomy_are_in_order(tmp_path):
  path = tmp_path / 'taxonomy.gz'
  path.write_bytes(gzip.compress(b'b\tb 1\tx\nRoot\tb\ta\n\na\tx\n'))
  parents = {'b 1': ('b',), 'x': ('b', 'a'), 'b': (), 'a': ()}
  labels = read(path)
  assert {id_: label.parents for id_, label in labels.items()} == parents
  assert list(labels) == list(parents)


ROOT = 'no line `Root<TAB>child...` with the labels of level 1'
ONE_LINE = (
  'is the parent on line 2 already; write all its children on that line'
)
OWN = 'is its own ancestor, through its parent'


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('labels.jsonl', '\n', ' no label in it'),
    ('labels.jsonl', '{"id": "a"}\n{"id": "a"}', "2: duplicate label 'a'"),
    ('labels.jsonl', '{"id": "a", "name": 3}\n{}', '1: name is a number, not'),
    (
      'labels.jsonl',
      '{"id": "a", "parents": ["x"]}\n',
      "1: label 'a' has the unknown parent 'x'",
    ),
    (
      'labels.jsonl',
      '{"id": "a", "parents": ["a"]}\n',
      f"1: label 'a' {OWN} 'a'",
    ),
    ('labels.csv', 'id,name\n1,a\n1,b\n', "3: duplicate label '1'"),
    ('labels.csv', 'id,name\n1,a\n,b\n', '3: id is empty'),
    (
      'labels.tsv',
      'id\tbroader\n1\t2\n',
      "2: label '1' has the unknown parent '2'",
    ),
    (
      'labels.csv',
      'id,name,parent\n1,a,b\n2,b,\n3,b,\n',
      "2: label '1' has the unknown parent, the name of several labels, 'b'",
    ),
    ('labels.csv', 'id,parent\n1,2\n2,1\n', f"3: label '2' {OWN} '1'"),
    ('labels.csv', 'foo,bar,x\n1,2,3\n', ' cannot tell which column holds'),
    ('taxonomy', '', ' no label in it'),
    ('taxonomy', 'Root\n', ' no label in it'),
    ('taxonomy', 'a\tb\n', f' {ROOT}'),
    ('taxonomy', 'Root\ta\na\tb\na\tc\n', f"3: 'a' {ONE_LINE}"),
    ('taxonomy', 'Root\ta\tb\ta\n', "1: 'a' occurs twice"),
    ('taxonomy', 'Root\ta\nb\tc\n', "2: 'b' is never a child; put it below Ro"),
    ('taxonomy', 'Root\ta\na\tRoot\n', "2: Root is a child of 'a'"),
    ('taxonomy', 'Root\ta\t\tb\n', '1: name 3 is empty'),
    ('taxonomy', 'Root\ta\na\tb\nb\ta\n', f"2: label 'b' {OWN} 'a'"),
    ('taxonomy', 'Root\ta\n\xe4', '2: not UTF-8: unexpected end of data'),
    ('Y.txt', '\n', ' no label in it'),
    ('Y.txt', 'a\n\xe4\n', '2: not UTF-8: '),
    ('lbl.json', '{"title": 3}', '1: title is a number, not text'),
  ],
)
def test_faults(tmp_path, name, text, message):
  path = tmp_path / name
  path.write_bytes(text.encode('latin-1'))
  assert error_text(read, path).startswith(f'{path}:{message}')


@hypothesis.settings(
  derandomize=True,
  deadline=None,
  database=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
  st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15)
)
def test_cycles_are_found_where_there_are_some(tmp_path, edges):
  above = {i: {b for a, b in edges if a == i} for i in range(7)}
  rows = (f'{{"id": {i}, "parents": {[*above[i]]}}}\n' for i in above)
  path = tmp_path / 'labels.jsonl'
  path.write_text(''.join(rows))

  def ringed(left: dict) -> bool:
    while free := [k for k in left if not left[k] & left.keys()]:
      left = {k: v for k, v in left.items() if k not in free}
    return bool(left)

  faults = Faults()
  read_descriptors(path, faults)
  assert bool(faults.count) == ringed(above)


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('Y.txt', 'a\n\nb\n'),
    ('lbl.json', '{"title": "a"}\n{"title": " "}\n{"title": "b"}\n'),
  ],
)
def test_a_name_that_is_missing_keeps_its_column(tmp_path, name, text):
  (tmp_path / name).write_text(text)
  assert list(read(tmp_path / name)) == [
    Label('0', 'a'),
    Label('1', '1'),
    Label('2', 'b'),
  ]


def test_names_are_read_into_arrays(tmp_path):
  n, path = 20_000, tmp_path / 'Y.txt'
  path.write_text(''.join(f'name {i}\n' for i in range(n)))
  tracemalloc.start()
  labels = read(path)
  _, most = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(labels) == n and labels[n - 1].name == f'name {n - 1}'
  assert most < 120 * n  # while they are read; a Label takes 242
