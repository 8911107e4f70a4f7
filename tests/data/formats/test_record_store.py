"""Records on disk by random access."""

import concurrent.futures
import gc
import tempfile

import pytest

from xjax.core.errors import UserError
from xjax.data.formats.corpus_builder import RecordStore


def test_records_come_back(tmp_path):
  store = RecordStore(tmp_path / 'new')
  # Nothing is opened for nothing.
  assert list(store) == [] and not (tmp_path / 'new').exists()
  records = [{'a': 'é\n"\u2028'}, [1, None], '', {}]
  for record in records:
    store.append(record)
  assert len(store) == 4 and list(store) == records
  assert store[-1] == {} and store[1] == [1, None]
  with pytest.raises(IndexError):
    store[4]
  store.append('late')
  assert store[4] == 'late'


def test_nothing_is_left_in_the_folder(tmp_path):
  store = RecordStore(tmp_path)
  store.append('x' * 100_000)
  assert store[0][:1] == 'x'
  assert list(tmp_path.iterdir()) == []


def test_threads_read_at_once():
  store = RecordStore()
  for i in range(500):
    store.append([i] * (i % 17))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(store.__getitem__, range(500))) == list(store)


def test_an_impossible_folder_is_the_users_to_mend(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='/file: .*data.cache_dir'):
    RecordStore(tmp_path / 'file').append('x')


def test_the_systems_folder_is_named_as_well(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'gone'))
  with pytest.raises(UserError, match='/gone: .* variable TMPDIR'):
    RecordStore().append('x')


@pytest.mark.parametrize('size', [1, 100_000])  # within the buffer and beyond
def test_a_full_disk(tmp_path, monkeypatch, size):
  def full(dir):
    return open('/dev/full', 'w+b')

  monkeypatch.setattr(tempfile, 'TemporaryFile', full)
  store = RecordStore(tmp_path)
  with pytest.raises(UserError, match=f'^{tmp_path}: .*No space left'):
    store.append('x' * size)
    store[0]
  del store
  gc.collect()
