"""EURLEX57K in all its forms: sources, TFDS builder, prepared corpus."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.formats.draft import text_digest
from xjax.data.formats.eurlex57k import (
  builder,
  published as published_data,
  reader,
)
from xjax.data.formats.eurlex57k.builder import Eurlex57k
from xjax.data.formats.eurlex57k.reader import Eurlex57kData, read_eurlex57k
from xjax.data.load import build_corpus
from xjax.data.overlaps import find_overlaps
from xjax.data.schema import Document, Label


def record(i: int, concepts: str) -> dict:
  return {
    'celex_id': f'3{i:04}R',
    'uri': f'http://x/{i}',
    'type': 'Regulation',
    'concepts': list(concepts),
    'title': f'title {i}\n',
    'header': f'header {i}',
    'recitals': '' if i % 2 else 'Whereas ü',
    'main_body': [f'Article {j}' for j in range(i % 3)],
    'attachments': 'annex',
  }


ROWS = {
  'train': [record(i, c) for i, c in enumerate(['12', '2', '', '13'])],
  'dev': [record(10, '2'), record(11, '4')],
}
CONCEPTS = {
  id_: {
    'label': f'concept {id_}',
    'alt_labels': ['other'],
    'concept_id': id_,
    'parents': parents,
  }
  for id_, parents in [('3', []), ('1', ['3']), ('2', []), ('4', []), ('9', [])]
}


def as_lines(folder: pathlib.Path) -> pathlib.Path:
  for name, rows in ROWS.items():
    data = b''.join(json.dumps(row).encode() + b'\n' for row in rows)
    (folder / f'{name}.jsonl.gz').write_bytes(gzip.compress(data))
  return folder


def as_folder(folder: pathlib.Path) -> pathlib.Path:
  for name, rows in ROWS.items():
    (folder / 'dataset' / name).mkdir(parents=True)
    for row in rows:
      path = folder / 'dataset' / name / f'{row["celex_id"]}.json'
      path.write_text(json.dumps(row, indent=2))
  return folder


def as_flat_folder(folder: pathlib.Path) -> pathlib.Path:
  as_folder(folder)
  for name in ROWS:
    (folder / 'dataset' / name).rename(folder / name)
  return folder


def as_archive(folder: pathlib.Path) -> pathlib.Path:
  with zipfile.ZipFile(folder / 'datasets.zip', 'w') as archive:
    for name, rows in ROWS.items():
      archive.writestr(f'__MACOSX/dataset/{name}/._x.json', b'\0\x05')
      for row in rows:
        path = f'dataset/{name}/{row["celex_id"]}.json'
        archive.writestr(path, json.dumps(row))
  return folder


def as_archive_itself(folder: pathlib.Path) -> pathlib.Path:
  return as_archive(folder) / 'datasets.zip'


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'source').mkdir()
  path = tmp_path / 'source' / 'eurovoc_en.json'
  path.write_text(json.dumps(CONCEPTS, indent=1))
  return tmp_path / 'source'


def config(source, cache, **kwargs) -> Eurlex57kData:
  return Eurlex57kData(dir=str(source), cache_dir=str(cache), **kwargs)


@pytest.mark.parametrize(
  'form',
  [as_lines, as_folder, as_flat_folder, as_archive, as_archive_itself],
)
def test_every_form_is_the_same_corpus(folder, tmp_path, form):
  raw = read_eurlex57k(config(form(folder), tmp_path / 'cache'))
  assert list(raw.splits) == ['train', 'dev']
  assert [label.id for label in raw.labels] == ['3', '1', '2', '4', '9']
  assert raw.labels[1] == Label('1', 'concept 1', ('other',), ('3',))
  train = raw.splits['train']
  assert train.ids == ('30000R', '30001R', '30002R', '30003R')
  assert raw.label_ids == ('1', '2', '3', '4')
  assert [list(row) for row in train.gold] == [[0, 1], [1], [], [0, 2]]
  assert [d.id for d in train.documents] == list(train.ids)
  assert train.documents[2] == Document(
    '30002R',
    {
      'title': 'title 2\n',
      'header': 'header 2',
      'recitals': 'Whereas ü',
      'main_body': 'Article 0\nArticle 1',
      'attachments': 'annex',
    },
    (),
  )
  again = read_eurlex57k(config(form_source(folder), tmp_path / 'other'))
  assert again.splits['train'].digest == train.digest


def form_source(folder: pathlib.Path) -> pathlib.Path:
  """The same content in another form, elsewhere."""
  other = folder.parent / 'again'
  other.mkdir()
  (other / 'eurovoc_en.json').write_text(json.dumps(CONCEPTS))
  return as_lines(other)


def test_full_text_is_without_the_title(folder, tmp_path):
  raw = read_eurlex57k(config(as_lines(folder), tmp_path))
  corpus = build_corpus(raw, config(folder, tmp_path), seed=0)
  documents = corpus.split('train').documents
  assert documents[2].text() == (
    'header 2\nWhereas ü\nArticle 0\nArticle 1\nannex'
  )
  titled = config(folder, tmp_path, zones=('title',))
  corpus = build_corpus(raw, titled, seed=0)
  assert corpus.split('train').documents[2].text() == 'title 2\n'


def test_prepared_once(folder, tmp_path, monkeypatch):
  data = config(as_lines(folder), tmp_path / 'cache')
  first = read_eurlex57k(data)
  (prepared,) = (tmp_path / 'cache' / 'eurlex57k').iterdir()
  monkeypatch.setattr(reader, 'build_folder', None)
  again = read_eurlex57k(data)
  assert again.splits['dev'].digest == first.splits['dev'].digest
  assert list((tmp_path / 'cache' / 'eurlex57k').iterdir()) == [prepared]


def test_a_changed_source_is_prepared_anew(folder, tmp_path):
  data = config(as_lines(folder), tmp_path / 'cache')
  before = read_eurlex57k(data)
  rows = [record(20, '4')]
  text = b''.join(json.dumps(row).encode() + b'\n' for row in rows)
  (folder / 'dev.jsonl.gz').write_bytes(gzip.compress(text))
  after = read_eurlex57k(data)
  assert after.splits['dev'].ids == ('30020R',)
  assert after.splits['dev'].digest != before.splits['dev'].digest
  assert after.splits['train'].digest == before.splits['train'].digest


@pytest.mark.parametrize(
  'victim',
  ['index.json', 'train.npz', '*array_record*', '**/dataset_info.json'],
)
def test_a_damaged_preparation_is_made_anew(folder, tmp_path, victim, caplog):
  data = config(as_lines(folder), tmp_path / 'cache')
  before = read_eurlex57k(data)
  (prepared,) = (tmp_path / 'cache' / 'eurlex57k').iterdir()
  hit = next(prepared.rglob(victim))
  whole = hit.read_bytes()
  hit.write_bytes(whole[: len(whole) // 2])
  after = read_eurlex57k(data)
  assert 'is damaged' in caplog.text
  assert list(prepared.parent.iterdir()) == [prepared]
  assert len(list(after.splits['train'].documents)) == 4
  assert after.splits['train'].digest == before.splits['train'].digest
  np.testing.assert_array_equal(
    after.splits['train'].gold.values, before.splits['train'].gold.values
  )


def test_a_preparation_without_one_of_its_files(folder, tmp_path, caplog):
  data = config(as_lines(folder), tmp_path / 'cache')
  read_eurlex57k(data)
  next((tmp_path / 'cache').rglob('*dev*array_record*')).unlink()
  assert read_eurlex57k(data).splits['dev'].documents[1].id == '30011R'
  assert 'is damaged' in caplog.text


def test_processes_that_find_the_same_damage(folder, tmp_path, monkeypatch):
  data = config(as_lines(folder), tmp_path / 'cache')
  read_eurlex57k(data)
  (prepared,) = (tmp_path / 'cache' / 'eurlex57k').iterdir()
  (prepared / 'index.json').write_text('{')
  rename = pathlib.Path.rename

  def second(path, target):
    # Another process was faster.
    if path == prepared:
      shutil.rmtree(prepared)
    return rename(path, target)

  monkeypatch.setattr(pathlib.Path, 'rename', second)
  assert list(read_eurlex57k(data).splits) == ['train', 'dev']


def test_nothing_is_left_of_a_preparation_that_fails(folder, tmp_path):
  as_folder(folder)
  (folder / 'dataset/dev/30010R.json').write_text('{"celex_id":\n 3,,}')
  broken = {**record(1, '2'), 'concepts': ['77'], 'header': None}
  del broken['recitals']
  (folder / 'dataset/train/30001R.json').write_text(json.dumps(broken))
  with pytest.raises(DataError) as caught:
    read_eurlex57k(config(folder, tmp_path / 'cache'))
  told = str(caught.value).replace(f'{folder}/', '').split('\n')
  assert told[:4] == [
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
    assert read_eurlex57k(skip).splits['train'].ids == (
      '30000R',
      '30002R',
      '30003R',
    )
    assert caplog.text.count('left out 1 record, with 1 fault:') == 1
    assert '30001R.json:1: not JSON' in caplog.text
  with pytest.raises(DataError):
    read_eurlex57k(config(folder, tmp_path / 'cache'))


def test_without_descriptors_an_id_is_a_name(folder, tmp_path):
  (folder / 'eurovoc_en.json').unlink()
  raw = read_eurlex57k(config(as_lines(folder), tmp_path / 'cache'))
  assert raw.labels == () and raw.label_ids == ('1', '2', '3', '4')


def test_faults_of_the_descriptors(folder, tmp_path):
  concepts = {
    **CONCEPTS,
    '5': {'label': 7},
    '6': [],
    '4': {'label': 'x', 'parents': ['0']},
  }
  (folder / 'eurovoc_en.json').write_text(json.dumps(concepts, indent=1))
  with pytest.raises(DataError) as caught:
    read_eurlex57k(config(as_lines(folder), tmp_path))
  told = str(caught.value).replace(f'{folder}/', '').split('\n')
  assert told[:3] == [
    "eurovoc_en.json:42: concept '5': label is a number, not text",
    "eurovoc_en.json:45: concept '6': not an object {...}",
    "eurovoc_en.json:28: label '4' has the unknown parent '0'",
  ]


def test_no_corpus_here(tmp_path):
  with pytest.raises(DataError, match='no EURLEX57K here; expected'):
    read_eurlex57k(config(tmp_path, tmp_path / 'cache'))
  (tmp_path / 'datasets.zip').write_bytes(b'PK not really')
  with pytest.raises(DataError, match='not a zip archive'):
    read_eurlex57k(config(tmp_path, tmp_path / 'cache'))
  with zipfile.ZipFile(tmp_path / 'datasets.zip', 'w') as archive:
    archive.writestr('readme.txt', 'x')
  with pytest.raises(DataError, match='no documents of EURLEX57K in it'):
    read_eurlex57k(config(tmp_path, tmp_path / 'cache'))


def test_the_builder_by_itself(folder, tmp_path):
  made = Eurlex57k(source=str(as_lines(folder)), data_dir=tmp_path / 'tfds')
  made.download_and_prepare()
  assert made.info.splits['train'].num_examples == 4
  source = made.as_data_source(split='dev')
  assert len(source) == 2
  example = source[1]
  assert example['celex_id'] == b'30011R' and example['type'] == b'Regulation'
  assert list(example['concepts']) == [b'4']
  assert list(example['main_body']) == [b'Article 0', b'Article 1']
  names = {p.suffix for p in (tmp_path / 'tfds').rglob('*dev*')}
  assert any('array_record' in name for name in names)


@contextlib.contextmanager
def served(folder: pathlib.Path):
  class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
      pass

  handler = functools.partial(Quiet, directory=folder)
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
      yield f'http://127.0.0.1:{server.server_port}/'
    finally:
      server.shutdown()
      thread.join()


@pytest.fixture
def published(monkeypatch):
  """Makes the small corpus the published one."""
  digest = hashlib.sha256(b'30010R\n30011R').hexdigest()
  parts = {
    'train': published_data._Part(4),
    'dev': published_data._Part(2, digest),
    'concepts': published_data._Part(5),
  }
  monkeypatch.setattr(published_data, 'PUBLISHED', parts)
  monkeypatch.setattr(builder, 'PUBLISHED', parts)
  return parts


def test_the_download(folder, tmp_path, monkeypatch, published, caplog):
  as_archive(folder)
  with served(folder) as site:
    monkeypatch.setattr(builder, 'ARCHIVE_URL', site + 'datasets.zip')
    monkeypatch.setattr(builder, 'CONCEPTS_URL', site + 'eurovoc_en.json')
    raw = read_eurlex57k(config('', tmp_path / 'cache'))
  assert raw.splits['train'].ids[0] == '30000R' and len(raw.labels) == 5
  assert list(read_eurlex57k(config('', tmp_path / 'cache')).splits) == [
    'train',
    'dev',
  ]


@pytest.mark.parametrize(
  ('name', 'part', 'says'),
  [
    ('train', (45_000,), 'train has 4 ids, not 45,000'),
    ('dev', (2, 'other'), 'dev has other ids'),
    ('test', (6_000,), 'test has 0 ids, not 6,000'),
    ('concepts', (7_201,), 'concepts has 5 ids, not 7,201'),
  ],
)
def test_a_download_of_other_documents_is_refused_and_removed(
  folder, tmp_path, monkeypatch, published, name, part, says
):
  as_archive(folder)
  published[name] = published_data._Part(*part)
  with served(folder) as site:
    monkeypatch.setattr(builder, 'ARCHIVE_URL', site + 'datasets.zip')
    monkeypatch.setattr(builder, 'CONCEPTS_URL', site + 'eurovoc_en.json')
    with pytest.raises(DataError, match=f'is not EURLEX57K: {says}. It was'):
      read_eurlex57k(config('', tmp_path / 'cache'))
    assert not list((tmp_path / 'cache').rglob('*datasets*.zip'))
    del published[name]  # the next start downloads again
    read_eurlex57k(config('', tmp_path / 'cache'))


def test_other_documents_in_a_folder_are_a_warning(
  folder, tmp_path, published, caplog
):
  read_eurlex57k(config(as_lines(folder), tmp_path / 'cache'))
  assert 'published' not in caplog.text
  published['train'] = published_data._Part(45_000)
  read_eurlex57k(config(folder, tmp_path / 'cache'))
  assert 'published EURLEX57K (train has 4 ids, not 45,000)' in caplog.text


def test_an_unreadable_file_of_an_archive_is_never_skipped(folder, tmp_path):
  as_archive(folder)
  archive = folder / 'datasets.zip'
  data = bytearray(archive.read_bytes())
  data[data.index(b'title 1')] ^= 1
  archive.write_bytes(data)
  skip = config(folder, tmp_path / 'cache', on_error=OnError.SKIP)
  with pytest.raises(DataError, match='json: cannot be read: Bad CRC-32'):
    read_eurlex57k(skip)


def test_a_download_that_fails_says_what_to_do(tmp_path, monkeypatch):
  (tmp_path / 'empty').mkdir()
  with served(tmp_path / 'empty') as site:
    monkeypatch.setattr(builder, 'ARCHIVE_URL', site + 'datasets.zip')
    with pytest.raises(DataError, match='give their folder as --config.data'):
      read_eurlex57k(config('', tmp_path / 'cache'))


def test_tensorflow_is_not_needed(folder, tmp_path):
  code = (
    'import sys\n'
    'from xjax.data.formats.eurlex57k.reader import Eurlex57kData\n'
    'from xjax.data.formats.eurlex57k.reader import read_eurlex57k\n'
    f'data = Eurlex57kData(dir={str(as_lines(folder))!r}, '
    f'cache_dir={str(tmp_path)!r})\n'
    'print(read_eurlex57k(data).splits["dev"].documents[0].id)\n'
    'assert "tensorflow" not in sys.modules\n'
  )
  blocked = tmp_path / 'blocked' / 'tensorflow'
  blocked.mkdir(parents=True)
  (blocked / '__init__.py').write_text('raise ImportError("none here")')
  root = pathlib.Path(__file__).parents[4]
  answer = subprocess.run(
    [sys.executable, '-W', 'error', '-c', code],
    capture_output=True,
    text=True,
    cwd=root,
    env={**os.environ, 'PYTHONPATH': f'{blocked.parent}{os.pathsep}{root}'},
  )
  assert answer.returncode == 0, answer.stderr
  assert answer.stdout == '30010R\n'
  assert 'none here' not in answer.stderr


def test_prepared_data_keep_the_digests_of_texts(folder, tmp_path):
  data = config(as_lines(folder), tmp_path)
  for _ in range(2):
    raw = read_eurlex57k(data)
    for split in raw.splits.values():
      texts = [document.zones.values() for document in split.documents]
      expected = [text_digest(zones) for zones in texts]
      assert split.text_digests.tolist() == expected


@pytest.mark.real_data
def test_the_real_corpus(data_dir, tmp_path):
  data = config(data_dir / 'eurlex57k', tmp_path, labels='label_universe.txt')
  corpus = build_corpus(read_eurlex57k(data), data, seed=0)
  masks = corpus.label_space.masks()
  counts = {name: int(mask.sum()) for name, mask in masks.items()}
  assert counts == {'frequent': 746, 'few': 3362, 'zero': 163}
  sizes = {name: len(split) for name, split in corpus.splits.items()}
  assert sizes['train'] == 45_000 and sizes['dev'] == 6_000
  assert not find_overlaps(corpus)
