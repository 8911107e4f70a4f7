"""The download of EURLEX57K: only the published documents are accepted."""

import functools
import hashlib
import http.server
import shutil
import threading

import pytest

from tests.fixtures.eurlex57k import as_archive, config
from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.formats.eurlex57k import reader
from xjax.data.formats.eurlex57k.reader import read_eurlex57k


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
    monkeypatch.setattr(reader, 'ARCHIVE_URL', f'{url}/datasets.zip')
    monkeypatch.setattr(reader, 'CONCEPTS_URL', f'{url}/eurovoc_en.json')
    yield path
    server.shutdown()
    thread.join()


@pytest.fixture
def published(monkeypatch):
  """Makes the small corpus the published one."""
  digest = hashlib.sha256(b'30010R\n30011R').hexdigest()
  parts = {
    'train': reader._Part(4),
    'dev': reader._Part(2, digest),
    'concepts': reader._Part(5),
  }
  monkeypatch.setattr(reader, 'PUBLISHED', parts)
  return parts


def test_the_download(folder, tmp_path, site, published):
  as_archive(folder)
  raw = read_eurlex57k(config('', tmp_path / 'cache'))
  assert raw.splits['train'].ids[0] == '30000R' and len(raw.labels) == 5
  shutil.rmtree(site)
  again = read_eurlex57k(config('', tmp_path / 'cache'))
  assert list(again.splits) == ['train', 'dev']


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
  folder, tmp_path, site, published, name, part, says
):
  as_archive(folder)
  published[name] = reader._Part(*part)
  with pytest.raises(DataError, match=f'is not EURLEX57K: {says}. It was'):
    read_eurlex57k(config('', tmp_path / 'cache'))
  assert not list((tmp_path / 'cache').rglob('*datasets*.zip'))
  del published[name]  # the next start downloads again
  read_eurlex57k(config('', tmp_path / 'cache'))


def test_other_documents_in_a_folder_are_a_warning(data, published, caplog):
  read_eurlex57k(data)
  assert 'published' not in caplog.text
  published['train'] = reader._Part(45_000)
  read_eurlex57k(data)
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


def test_a_download_that_fails_says_what_to_do(tmp_path, site):
  site.mkdir()
  with pytest.raises(DataError, match='give their folder as --config.data'):
    read_eurlex57k(config('', tmp_path / 'cache'))
