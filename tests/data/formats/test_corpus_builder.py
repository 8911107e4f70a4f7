"""Records on disk by random access."""

import concurrent.futures
import tempfile

import pytest

from xjax.core.errors import UserError
from xjax.data.formats.corpus_builder import RecordStore


def test_records_come_back(tmp_path):
  store = RecordStore(tmp_path / 'new')
  # Nothing is opened for nothing.
  assert list(store) == [] and not (tmp_path / 'new').exists()
  for data in (b'{"a": "x\\n"}', b'[1, null]', b'""'):
    store.append(data)
  assert list(store) == [{'a': 'x\n'}, [1, None], '']
  assert store[-1] == '' and list((tmp_path / 'new').iterdir()) == []
  with pytest.raises(IndexError):
    store[3]
  store.append(b'"late"')
  assert store[3] == 'late'


def test_threads_read_at_once():
  store = RecordStore()
  for i in range(500):
    store.append(b'[%s]' % b','.join([b'%d' % i] * (i % 17)))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(store.__getitem__, range(500))) == list(store)


def test_an_impossible_folder_is_the_users_to_mend(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='/file: .*data.cache_dir'):
    RecordStore(tmp_path / 'file').append(b'x')
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'gone'))
  with pytest.raises(UserError, match='/gone: .* variable TMPDIR'):
    RecordStore().append(b'x')


def test_a_full_disk(tmp_path, monkeypatch):
  def full(buffering, dir):
    return open('/dev/full', 'r+b', buffering)

  monkeypatch.setattr(tempfile, 'TemporaryFile', full)
  with pytest.raises(UserError, match=f'^{tmp_path}: .*No space left'):
    RecordStore(tmp_path).append(b'x')
