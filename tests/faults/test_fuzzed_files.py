"""Checks that a reader succeeds or raises DataError, whatever a file holds."""

import contextlib
import gzip
import io
import json
import pathlib
import tempfile
import zipfile

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.faults.damage import damaged, pieces
from tests.fixtures.fuzzing import fuzzed
from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields
from xjax.data.formats.corpus_builder import (
  plain_document,
  plain_record,
  to_bytes,
)
from xjax.data.formats.data_config import DataConfig, read_document
from xjax.data.formats.descriptors import read_descriptors
from xjax.data.formats.eurlex57k.records import (
  find_source,
  input_document,
  read_concepts,
  read_eurlex_record,
)
from xjax.data.formats.htc import HtcConfig, HtcData, HtcLabels
from xjax.data.formats.jsonl import JsonlData, parse_documents, read_jsonl
from xjax.data.formats.own.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.hierarchy import Hierarchy
from xjax.data.labels import read_label_list
from xjax.data.load import load_corpus, read_input
from xjax.data.new_labels import add_new_labels, read_new_labels
from xjax.data.schema import Label, LabelSpace, read_label

DOCUMENT = [
  b'{"id": "d1", "text": "one \\u00e9", "labels": ["a", "b"]}\n',
  b'{"id": "d2", "zones": {"t": "T", "b": "B"}, "labels": []}\n',
]
LAW = [
  b'{"celex_id": "c", "concepts": ["a"], "title": "t", "header": "h", '
  b'"recitals": "", "main_body": ["m"], "attachments": ""}\n'
]
LABEL = [
  b'{"id": "a", "name": "A", "alt": ["x"], "parents": ["b"]}\n',
  b'{"id": "b", "description": "d"}\n',
]
CONCEPTS = [
  b'{"a": {"label": "A", "alt_labels": ["x"], "concept_id": "a", '
  b'"parents": ["b"]},\n"b": {"label": "B", "parents": []}}\n'
]
LIST = [b'a\n', b'b\n', b'\xc3\xa9\n']

# These tend to matter: brackets, kinds of values, ends of lines, encodings.
PIECES = st.one_of(
  st.text(max_size=3).map(lambda text: text.encode('utf-8', 'replace')),
  st.sampled_from(
    '"|,|:|{|}|[|]|null|NaN|1e999|-1|true|""|[]|{}|\\|\\ud800|\\u0000|\n|\r|\0'
    '|{"id"|"id": "d1",|"labels"|"a"|"parents"|\t|\xe9'.split('|')
  ).map(str.encode),
  st.sampled_from([b'\xff\xfe', b'\xef\xbb\xbf', b'\xe4', b'\x1f\x8b']),
)


@st.composite
def some(draw, lines: list[bytes]) -> bytes:
  """Draws some of the lines, in any order."""
  order = draw(st.permutations(lines))
  return b''.join(order[: draw(st.integers(1, len(order)))])


JSON = st.recursive(
  st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(['a', 'b', 'd1', '', ' ', '\ud800', '\0']),
    st.text(max_size=3),
  ),
  lambda inner: st.one_of(
    st.lists(inner, max_size=2),
    st.dictionaries(st.text(max_size=2), inner, max_size=2),
  ),
  max_leaves=4,
)


@st.composite
def altered(draw, lines: list[bytes]) -> bytes:
  """Sound lines of JSON, one field of each perhaps with another value."""
  found = []
  for line in lines:
    row = json.loads(line)
    if draw(st.booleans()):
      row[draw(st.sampled_from(sorted(row)))] = draw(JSON)
    found.append(json.dumps(row).encode() + b'\n')
  return b''.join(found)


def contents(lines: list[bytes]) -> st.SearchStrategy[bytes]:
  """Draws what a file may hold, mostly lines that are nearly sound."""
  return st.one_of(
    damaged(some(lines), PIECES, most=3, cut=8), st.binary(max_size=30)
  )


def json_contents(lines: list[bytes]) -> st.SearchStrategy[bytes]:
  """The same for lines of JSON."""
  return st.one_of(contents(lines), altered(lines), altered(lines))


def rows(*names: str) -> st.SearchStrategy[dict]:
  """Objects with the right names and any values."""
  return st.fixed_dictionaries({}, optional=dict.fromkeys(names, JSON))


ON_ERROR = st.sampled_from(OnError)


@contextlib.contextmanager
def one_clear_error():
  """Lets a DataError through whose every line says where."""
  try:
    yield
  except DataError as error:
    assert str(error).split(':')[0].startswith(('f', '/')), error


@pytest.fixture(scope='module')
def path():
  with tempfile.TemporaryDirectory() as folder:
    yield pathlib.Path(folder) / 'f'


def tagged(path: pathlib.Path, faults: Faults, *make) -> None:
  documents = parse_documents(io.BytesIO(path.read_bytes()), 'f', faults, *make)
  faults.settle()
  assert documents and len({d.id for d in documents}) == len(documents)
  assert all(document.text().strip() for document in documents)


def tagged_laws(path: pathlib.Path, faults: Faults) -> None:
  tagged(path, faults, input_document)


def labels(path: pathlib.Path, faults: Faults) -> None:
  described = read_descriptors(path, faults)
  faults.settle()
  assert described.labels
  assert all(id_ == v.id and v.name for id_, v in described.labels.items())
  if faults.on_error is OnError.RAISE:
    assert described.complete


def concepts(path: pathlib.Path, faults: Faults) -> None:
  described = read_concepts(path, faults)
  faults.settle()
  assert faults.on_error is OnError.SKIP or described.labels


def label_lists(path: pathlib.Path, faults: Faults) -> None:
  ids = read_label_list(path, {}, faults)
  faults.settle()
  assert ids and all(id_.strip() == id_ != '' for id_ in ids)


def archives(path: pathlib.Path, faults: Faults) -> None:
  for read in find_source(path, faults).splits.values():
    for _, line, row in read(faults):
      assert line == 1 and isinstance(row, dict)
  faults.settle()


def gzipped_lines(path: pathlib.Path, faults: Faults) -> None:
  assert read_input(JsonlData(), str(path.rename(f'{path}.jsonl.gz')))


def zipped(lines: list[bytes]) -> bytes:
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
    # The time is fixed, so that every run has the same bytes.
    member = zipfile.ZipInfo('dataset/dev/c.json', (2019, 1, 1, 0, 0, 0))
    archive.writestr(member, lines[0], zipfile.ZIP_DEFLATED)
  return file.getvalue()


READERS = {
  tagged: json_contents(DOCUMENT),
  tagged_laws: json_contents(LAW + DOCUMENT[:1]),
  labels: json_contents(LABEL),
  concepts: json_contents(CONCEPTS),
  label_lists: contents(LIST),
  archives: contents([zipped(LAW)]),
  gzipped_lines: contents([gzip.compress(b''.join(DOCUMENT), mtime=0)]),
}


@pytest.mark.fuzzed
@pytest.mark.parametrize('read', READERS)
def test_a_file_is_read_or_one_clear_error(read, path):
  @fuzzed(2000)
  @hypothesis.given(READERS[read], ON_ERROR)
  def check(data, on_error):
    path.write_bytes(data)
    with one_clear_error():
      read(path, Faults(on_error))

  check()


@fuzzed(2000)
@hypothesis.given(json_contents(DOCUMENT), json_contents(LABEL), ON_ERROR)
def test_folders_of_json_lines(path, train, labels, on_error):
  folder = path.parent / 'folder'
  folder.mkdir(exist_ok=True)
  (folder / 'train.jsonl').write_bytes(train)
  (folder / 'labels.jsonl').write_bytes(labels)
  data = JsonlData(dir=str(folder), on_error=on_error)
  with one_clear_error():
    split = read_jsonl(data).splits['train']
    assert [d.id for d in split.documents] == list(split.ids) != []
    assert len(split.gold) == len(split.ids)


@fuzzed(300)
@hypothesis.given(rows('id', 'text', 'zones', 'labels'))
def test_fields_of_a_document(row):
  fields = Fields(row)
  document = read_document(fields)
  if not fields.faults:
    assert document.id and document.text().strip()
    assert plain_document(json.loads(to_bytes(plain_record(document)))) == (
      document
    )


@fuzzed(300)
@hypothesis.given(rows('id', 'name', 'alt', 'parents', 'description'))
def test_fields_of_a_label(row):
  fields = Fields(row)
  label = read_label(fields)
  if not fields.faults:
    assert label.id and label.name
    assert len(set(label.parents)) == len(label.parents)


@fuzzed(300)
@hypothesis.given(rows(*json.loads(LAW[0])))
def test_fields_of_a_law(row):
  fields = Fields(json.loads(LAW[0]) | row)
  record = read_eurlex_record(fields)
  if not fields.faults:
    assert record == {**json.loads(to_bytes(record))}


SPACE = LabelSpace(
  (Label('a', 'A'), Label('b', 'B')), np.ones(2, np.int32), 3, 1, 1
)
NEW = [
  *(b'fish\n', b'a\n', b'{"name": "law of the sea", "id": "l"}\n'),
  *(b'{"name": "x", "alt": ["y"], "parents": ["a"]}\n', b'{"name": 3}\n'),
  *(b'{"name": "\\ud800"}\n', b'\xff\xfe\n', b'\xef\xbb\xbf', b'\0\n'),
  *(b'{', b'\n', b'[' * 9999),
]


@fuzzed(400)
@hypothesis.given(
  st.lists(st.sampled_from(NEW) | st.binary(max_size=20), max_size=4),
  st.sampled_from(['n.txt', 'n.jsonl', 'n.jsonl.gz']),
  st.integers(0, 40),
)
def test_new_labels(path, lines, name, cut):
  data = b''.join(lines)
  if name.endswith('.gz'):
    data = gzip.compress(data)[: 200 - cut]
  (path.parent / name).write_bytes(data)
  try:
    labels = read_new_labels(path.parent / name, SPACE)
  except DataError as error:
    assert name in str(error)
    return
  assert labels and all(label.id and label.name for label in labels)
  assert add_new_labels(SPACE, labels).n_new == len(labels)


TRN = (
  b'{"uid": "a", "title": "t", "content": "c", "target_ind": [0, 2]}\n'
  b'{"uid": 7, "title": "u", "target_ind": [1], "target_rel": [1.0]}\n'
)
ROWS = b'3 4 3\n0,2 0:1 3:0.5\n 1:2\n1 2:1.5\n'
NAMES = b'one\ntwo\nthree\n'
TAXONOMY = b'Root\ta\tb\na\tc\td\nb\td\n'
HTC = (
  b'{"doc_token": ["x", "y"], "doc_label": ["a", "c"]}\n'
  b'{"doc_token": "x", "doc_label": ["d"], "id": "own"}\n'
)
TABLE = b'title,body,tags\n' + b''.join(
  b'"t, %d","b\n\xe9",a;b%d\n' % (i, i % 3) for i in range(12)
)
CORPUS_PIECES = pieces(
  b'a|b|c|d|Root|\t|\n|"|,|[|]|{|}|null|-1|3|1e999|1.5|[2]|"a"|"doc_label"|'
  b'"target_ind"|"uid"|\0|\xff\xfe|\xe9|\x1f\x8b| ',
  2,
)


def in_corpus(sound: bytes) -> st.SearchStrategy[bytes]:
  return damaged(sound, CORPUS_PIECES)


def check_corpus(data: DataConfig) -> None:
  try:
    corpus = load_corpus(data, 0)
  except DataError as error:
    assert str(error).startswith(data.dir)
    return
  space, split = corpus.label_space, corpus.split('train')
  assert [document.id for document in split.documents] == list(split.ids) != []
  assert split.gold.values.max(initial=0) < len(space)
  assert len(space.train_counts) == len(space) > 0


@fuzzed(400)
@hypothesis.given(in_corpus(TRN), in_corpus(NAMES), st.sampled_from(OnError))
def test_raw_text(path, trn, names, on_error):
  place = path.parent / 'xc'
  place.mkdir(exist_ok=True)
  (place / 'trn.json').write_bytes(trn)
  (place / 'Y.txt').write_bytes(names)
  check_corpus(XcRepoData(dir=str(place), on_error=on_error))


@fuzzed(400)
@hypothesis.given(in_corpus(TABLE), st.sampled_from(OnError))
def test_tables(path, table, on_error):
  path = path.parent / 'table.csv'
  path.write_bytes(table)
  check_corpus(OwnData(dir=str(path), on_error=on_error))


@fuzzed(400)
@hypothesis.given(in_corpus(ROWS), in_corpus(NAMES))
def test_features(path, rows, names):
  place = path.parent / 'features'
  place.mkdir(exist_ok=True)
  (place / 'train.txt').write_bytes(rows)
  (place / 'Y.txt').write_bytes(names)
  check_corpus(XcFeaturesData(dir=str(place)))


@fuzzed(400)
@hypothesis.given(
  in_corpus(HTC),
  in_corpus(TAXONOMY),
  st.sampled_from(HtcLabels),
  st.sampled_from(OnError),
)
def test_hierarchies(path, documents, taxonomy, labels, on_error):
  place = path.parent / 'htc'
  place.mkdir(exist_ok=True)
  (place / 'train.json').write_bytes(documents)
  (place / 'taxonomy').write_bytes(taxonomy)
  htc = HtcConfig(labels=labels)
  data = HtcData(dir=str(place), on_error=on_error, htc=htc)
  check_corpus(data)
  if on_error is OnError.RAISE and taxonomy == TAXONOMY:
    try:
      space = load_corpus(data, 0).label_space
    except DataError:
      return
    if labels is HtcLabels.ALL:
      assert (Hierarchy.of_space(space).levels > 0).all()
