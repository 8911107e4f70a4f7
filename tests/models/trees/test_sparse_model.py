"""A tree and its classifiers in a file."""

import numpy as np
import pytest

from xjax.core.errors import DataError
from xjax.models.trees.sparse_model import load_tree, save_tree


@pytest.fixture(scope='module')
def model(make_tree, make_model):
  rng = np.random.default_rng(0)
  return make_model(rng, make_tree(rng, 60))


@pytest.fixture
def path(model, tmp_path):
  save_tree(tmp_path / 'tree.npz', model.tree, model.weights)
  return tmp_path / 'tree.npz'


def everything(tree, weights):
  arrays = vars(tree) | vars(weights)
  return {name: np.asarray(value) for name, value in arrays.items()}


def test_what_is_saved_is_loaded(model, path, tmp_path):
  wanted = everything(model.tree, model.weights)
  loaded = everything(*load_tree(path))
  assert loaded.keys() == wanted.keys()
  for name, array in wanted.items():
    assert loaded[name].tobytes() == array.tobytes(), name
    assert loaded[name].dtype == array.dtype, name
  save_tree(tmp_path / 'again.npz', *load_tree(path))
  assert path.read_bytes() == (tmp_path / 'again.npz').read_bytes()


def test_bytes_that_were_changed(model, path):
  """A fault, or the same as before: not all bytes of a file say something."""
  whole, wanted = path.read_bytes(), everything(model.tree, model.weights)
  faults = 0
  for at in np.random.default_rng(0).choice(len(whole), 120, replace=False):
    damaged = bytearray(whole)
    damaged[at] ^= 0x55
    path.write_bytes(damaged)
    try:
      loaded = everything(*load_tree(path))
    except DataError as error:
      faults += 1
      assert 'tree.npz' in str(error)
      continue
    for name, array in wanted.items():
      assert loaded[name].tobytes() == array.tobytes(), (at, name)
  assert faults > 80
