"""EURLEX57K in all its forms, prepared, and its download."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import json
import pathlib
import shutil
import threading
import zipfile

import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.eurlex57k import (
  CONCEPTS,
  as_archive,
  as_archive_itself,
  as_folder,
  as_lines,
  config,
  record,
)
from xjax.core.errors import DataError
from xjax.data.formats import eurlex57k
from xjax.data.formats.corpus_builder import text_digest
from xjax.data.load import build_corpus
from xjax.data.quality import find_overlaps
from xjax.data.schema import Document, Label
from xjax.data.tokens_config import OnError


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'source').mkdir()
  path = tmp_path / 'source' / 'eurovoc_en.json'
  path.write_text(json.dumps(CONCEPTS, indent=1))
  return tmp_path / 'source'


@pytest.fixture
def data(folder, tmp_path):
  """The corpus as lines, prepared below the folder cache."""
  return config(as_lines(folder), tmp_path / 'cache')


@pytest.fixture
def prepared(data):
  """The folder of the prepared corpus."""
  data.read()
  (path,) = (pathlib.Path(data.cache_dir) / 'eurlex57k').iterdir()
  return path


@pytest.mark.parametrize(
  'form', [as_lines, as_folder, as_archive, as_archive_itself]
)
def test_every_form_is_the_same_corpus(folder, tmp_path, form):
  raw = config(form(folder), tmp_path / 'cache').read()
  assert list(raw.splits) == ['train', 'dev']
  assert [label.id for label in raw.labels] == ['3', '1', '2', '4', '9']
  assert raw.labels[1] == Label('1', 'concept 1', ('other',), ('3',))
  train = raw.splits['train']
  assert train.ids == ('30000R', '30001R', '30002R', '30003R')
  assert raw.label_ids == ('1', '2', '3', '4')
  assert [list(row) for row in train.gold] == [[0, 1], [1], [], [0, 2]]
  assert [d.id for d in train.documents] == list(train.ids)
  zones = {
    'title': 'title 2\n',
    'header': 'header 2',
    'recitals': 'Whereas ü',
    'main_body': 'Article 0\nArticle 1',
    'attachments': 'annex',
  }
  assert train.documents[2] == Document('30002R', zones, ())
  assert train.digest[:16] == 'd3165057f78f9118'


def test_full_text_is_without_the_title(data):
  raw = data.read()
  text = 'header 2\nWhereas ü\nArticle 0\nArticle 1\nannex'
  for zones, wanted in ((), text), (('title',), 'title 2\n'):
    corpus = build_corpus(raw, dataclasses.replace(data, zones=zones), seed=0)
    assert corpus.split('train').documents[2].text() == wanted


def test_prepared_once(data, prepared, monkeypatch):
  first = data.read()
  monkeypatch.setattr(eurlex57k, 'build_folder', None)
  again = data.read()
  assert again.splits['dev'].digest == first.splits['dev'].digest
  assert list(prepared.parent.iterdir()) == [prepared]
  for split in again.splits.values():
    digests = [text_digest(d.zones.values()) for d in split.documents]
    assert split.text_digests.tolist() == digests


def test_a_changed_source_is_prepared_anew(folder, data):
  before = data.read()
  text = json.dumps(record(20, '4')).encode() + b'\n'
  (folder / 'dev.jsonl.gz').write_bytes(gzip.compress(text))
  after = data.read()
  assert after.splits['dev'].ids == ('30020R',)
  assert after.splits['dev'].digest != before.splits['dev'].digest
  assert after.splits['train'].digest == before.splits['train'].digest


LACKING = '*dev*array_record*'


@pytest.mark.parametrize('victim', ['index.json', '*array_record*', LACKING])
def test_a_damaged_preparation_is_one_error(data, prepared, victim):
  hit = next(prepared.rglob(victim))
  whole = hit.read_bytes()
  if victim == LACKING:
    hit.unlink()
  else:
    hit.write_bytes(whole[: len(whole) // 2])
  with pytest.raises(DataError, match=f'{prepared}: is damaged .*; remove'):
    data.read()


def test_nothing_is_left_of_a_preparation_that_fails(folder, tmp_path):
  as_folder(folder)
  (folder / 'dataset/dev/30010R.json').write_text('{"celex_id":\n 3,,}')
  broken = {**record(1, '2'), 'concepts': ['77'], 'header': None}
  del broken['recitals']
  (folder / 'dataset/train/30001R.json').write_text(json.dumps(broken))
  data = config(folder, tmp_path / 'cache')
  lines = error_text(data.read, folder=folder).split('\n')
  assert lines[:4] == [
    'dataset/train/30001R.json:1: header is null, not text',
    "dataset/train/30001R.json:1: no field 'recitals'",
    "dataset/train/30001R.json:1: unknown label '77': it has no descriptor",
    'dataset/dev/30010R.json:2: not JSON: Expecting property name enclosed in '
    'double quotes at column 4',
  ]
  assert list((tmp_path / 'cache' / 'eurlex57k').iterdir()) == []


def test_skip_leaves_documents_out(folder, tmp_path, caplog):
  as_folder(folder)
  (folder / 'dataset/train/30001R.json').write_text('{')
  skip = config(folder, tmp_path / 'cache', on_error=OnError.SKIP)
  for _ in range(2):  # prepared, then opened again
    caplog.clear()
    ids = skip.read().splits['train'].ids
    assert ids == ('30000R', '30002R', '30003R')
    assert caplog.text.count('left out 1 record, with 1 fault') == 1
  with pytest.raises(DataError):
    config(folder, tmp_path / 'cache').read()


def test_without_descriptors_an_id_is_a_name(folder, data):
  (folder / 'eurovoc_en.json').unlink()
  raw = data.read()
  assert raw.labels == () and raw.label_ids == ('1', '2', '3', '4')


def test_faults_of_the_descriptors(folder, data):
  faulty = {'5': {'label': 7}, '6': [], '4': {'label': 'x', 'parents': ['0']}}
  concepts = json.dumps(CONCEPTS | faulty, indent=1)
  (folder / 'eurovoc_en.json').write_text(concepts)
  lines = error_text(data.read, folder=folder).split('\n')
  assert lines[:2] == [
    "eurovoc_en.json: concept '5': name is a number, not text",
    "eurovoc_en.json: concept '6': not an object {...}",
  ]


def test_no_corpus_here(tmp_path):
  data = config(tmp_path, tmp_path / 'cache')
  assert 'no EURLEX57K here; expected' in error_text(data.read)
  (tmp_path / 'datasets.zip').write_bytes(b'PK not really')
  assert 'not a zip archive' in error_text(data.read)
  with zipfile.ZipFile(tmp_path / 'datasets.zip', 'w') as archive:
    archive.writestr('readme.txt', 'x')
  assert 'no EURLEX57K here; expected' in error_text(data.read)


@pytest.fixture
def site(tmp_path, monkeypatch):
  """The folder of a site that the corpus is downloaded from."""

  class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
      pass

  path = tmp_path / 'source'
  handler = functools.partial(Quiet, directory=path)
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f'http://127.0.0.1:{server.server_port}'
    monkeypatch.setattr(eurlex57k, 'ARCHIVE_URL', f'{url}/datasets.zip')
    monkeypatch.setattr(eurlex57k, 'CONCEPTS_URL', f'{url}/eurovoc_en.json')
    yield path
    server.shutdown()
    thread.join()


@pytest.fixture
def published(monkeypatch):
  """Makes the small corpus the published one."""
  digest = hashlib.sha256(b'30010R\n30011R').hexdigest()
  parts = {'train': (4, ''), 'dev': (2, digest), 'concepts': (5, '')}
  monkeypatch.setattr(eurlex57k, 'PUBLISHED', parts)
  return parts


def test_the_download(folder, tmp_path, site, published):
  as_archive(folder)
  raw = config('', tmp_path / 'cache').read()
  assert raw.splits['train'].ids[0] == '30000R' and len(raw.labels) == 5
  shutil.rmtree(site)
  again = config('', tmp_path / 'cache').read()
  assert list(again.splits) == ['train', 'dev']


@pytest.mark.parametrize(
  ('name', 'part', 'says'),
  [
    ('train', (45_000, ''), 'train has 4 ids, not 45,000'),
    ('dev', (2, 'other'), 'dev has other ids'),
    ('test', (6_000, ''), 'test has 0 ids, not 6,000'),
    ('concepts', (7_201, ''), 'concepts has 5 ids, not 7,201'),
  ],
)
def test_a_download_of_other_documents_is_refused_and_removed(
  folder, tmp_path, site, published, name, part, says
):
  as_archive(folder)
  published[name] = part
  with pytest.raises(DataError, match=f'is not EURLEX57K: {says}. It was'):
    config('', tmp_path / 'cache').read()
  assert not list((tmp_path / 'cache').rglob('*datasets*.zip'))
  del published[name]  # the next start downloads again
  config('', tmp_path / 'cache').read()


def test_other_documents_in_a_folder_are_a_warning(data, published, caplog):
  data.read()
  assert 'published' not in caplog.text
  published['train'] = (45_000, '')
  data.read()
  assert 'published EURLEX57K (train has 4 ids, not 45,000)' in caplog.text


def test_an_unreadable_file_of_an_archive_is_never_skipped(folder, tmp_path):
  as_archive(folder)
  archive = folder / 'datasets.zip'
  data = bytearray(archive.read_bytes())
  data[data.index(b'title 1')] ^= 1
  archive.write_bytes(data)
  skip = config(folder, tmp_path / 'cache', on_error=OnError.SKIP)
  with pytest.raises(DataError, match='json: cannot be read: Bad CRC-32'):
    skip.read()


def test_a_download_that_fails_says_what_to_do(tmp_path, site):
  site.mkdir()
  with pytest.raises(DataError, match='give their folder as --config.data'):
    config('', tmp_path / 'cache').read()


@pytest.mark.real_data
def test_the_real_corpus(data_dir, tmp_path):
  data = config(data_dir / 'eurlex57k', tmp_path, labels='label_universe.txt')
  corpus = build_corpus(data.read(), data, seed=0)
  masks = corpus.label_space.masks()
  counts = {name: int(mask.sum()) for name, mask in masks.items()}
  assert counts == {'frequent': 746, 'few': 3362, 'zero': 163}
  sizes = {name: len(split) for name, split in corpus.splits.items()}
  assert sizes['train'] == 45_000 and sizes['dev'] == 6_000
  assert not find_overlaps(corpus)
