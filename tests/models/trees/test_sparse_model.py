"""A tree and its classifiers in a file."""

import numpy as np

from tests.fixtures.trees import make_model, make_tree
from xjax.models.trees.sparse_model import load_tree, save_tree


def arrays(tree, weights):
  values = vars(tree) | vars(weights)
  return {name: np.asarray(value) for name, value in values.items()}


def test_what_is_saved_is_loaded(tmp_path):
  rng = np.random.default_rng(0)
  model = make_model(rng, make_tree(rng, 60))
  path, again = tmp_path / 'tree.npz', tmp_path / 'again.npz'
  save_tree(path, model.tree, model.weights)
  wanted, loaded = arrays(model.tree, model.weights), arrays(*load_tree(path))
  assert loaded.keys() == wanted.keys()
  for name, array in wanted.items():
    assert loaded[name].tobytes() == array.tobytes(), name
    assert loaded[name].dtype == array.dtype, name
  save_tree(again, *load_tree(path))
  assert path.read_bytes() == again.read_bytes()
