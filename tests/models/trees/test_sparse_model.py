"""A tree and its classifiers in a file."""

import numpy as np
import pytest

from tests.fixtures.trees import make_model, make_tree
from xjax.models.trees.sparse_model import load_tree, save_tree


@pytest.fixture(scope='module')
def model():
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
