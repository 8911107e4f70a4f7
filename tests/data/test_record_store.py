"""Records on disk by random access."""

import concurrent.futures

import pytest

from xjax.core.errors import UserError
from xjax.data.record_store import RecordStore


def test_records_come_back(tmp_path):
  store = RecordStore(tmp_path / 'new')
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
  with pytest.raises(UserError, match='data.cache_dir'):
    RecordStore(tmp_path / 'file')
