"""Where training of word vectors stands, on disk."""

import dataclasses
import json

import numpy as np
import pytest

from xjax.core.errors import ConfigError, DataError
from xjax.train.initial.word2vec import StateFolder, WordState

STATE = WordState(
  epoch=3,
  words=('the', 'über', 'DD'),
  counts=np.array([9, 4, 2]),
  vectors=np.arange(6, dtype=np.float32).reshape(3, 2),
  contexts=np.ones((3, 2), np.float32),
)


@pytest.fixture
def folder(tmp_path):
  return StateFolder(tmp_path / 'new' / 'x.bin.state')


def test_saved_and_loaded_is_the_same(folder):
  assert folder.load() is None
  folder.save(STATE)
  folder.save(dataclasses.replace(STATE, epoch=4))
  got = folder.load()
  assert got.epoch == 4 and got.words == STATE.words
  for name in ('counts', 'vectors', 'contexts'):
    ours, theirs = getattr(STATE, name), getattr(got, name)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype
  assert [path.name for path in folder.path.iterdir()] == ['state.npz']


def test_other_settings_are_refused_by_name(folder):
  before = {'--dim': 200, '--epochs': 5, '--seed': 0}
  folder.compare(before)
  assert not folder.path.exists()
  folder.begin(before, STATE)
  assert folder.load().epoch == STATE.epoch
  folder.compare(dict(reversed(before.items())))
  with pytest.raises(ConfigError) as caught:
    folder.compare({'--dim': 200, '--epochs': 6, '--new': 1})
  message = str(caught.value)
  assert '\n  --epochs: 5 -> 6\n  --seed: 0 -> None\n  --new: None' in message
  assert '--dim' not in message and str(folder.path) in message
  assert json.loads(folder.settings.read_text()) == before


@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'\xff'])
def test_damaged_settings(folder, content):
  folder.begin({'a': 1}, STATE)
  folder.settings.write_bytes(content)
  with pytest.raises(DataError, match=r'settings.json: .* remove .*x.bin'):
    folder.compare({'a': 1})


@pytest.mark.parametrize(
  'fields',
  [
    {'words': ('the', 'the', 'DD')},
    {'words': ('the', 'DD')},
    {'counts': np.array([9.5, 4, 2])},
    {'vectors': np.ones((3, 3), np.float32)},
    {'vectors': np.ones(3, np.float32), 'contexts': np.ones(3, np.float32)},
    {'contexts': np.full((3, 2), np.nan, np.float32)},
  ],
)
def test_arrays_that_cannot_be(folder, fields):
  folder.save(dataclasses.replace(STATE, **fields))
  with pytest.raises(DataError, match=r'state.npz: .* damaged; remove .*x.bin'):
    folder.load()


def test_arrays_cut_anywhere(folder):
  folder.save(STATE)
  whole = folder.arrays.read_bytes()
  for size in range(0, len(whole), 50):
    folder.arrays.write_bytes(whole[:size])
    with pytest.raises(DataError, match='damaged'):
      folder.load()
