"""Linear models, and rows of a batch, on the devices of two processes."""

import importlib.util
import pathlib

import numpy as np
import pytest

from tests.multihost.conftest import finish, start
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.models.linear.classifiers import Classifiers

SCRIPT = pathlib.Path(__file__).with_name('linear_process.py')
ROWS = SCRIPT.with_name('rows_process.py')


def test_each_process_puts_and_gets_its_rows(free_port):
  finish(*(start(ROWS, free_port, process) for process in range(2)))


@pytest.mark.thorough
def test_two_processes_train_as_one_does(free_port, tmp_path):
  finish(*(start(SCRIPT, free_port, n, tmp_path) for n in range(2)))
  assert len(list((tmp_path / 'parts').iterdir())) == 2
  spec = importlib.util.spec_from_file_location('linear_process', SCRIPT)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  one = module.train(tmp_path / 'one', make_mesh(MeshConfig(), count=1))
  for process in range(2):
    with np.load(tmp_path / f'{process}.npz') as arrays:
      found = Classifiers.of_arrays(dict(arrays))
    np.testing.assert_allclose(
      found.weights.toarray(), one.weights.toarray(), atol=1e-5
    )
    np.testing.assert_allclose(found.bias, one.bias, atol=1e-5)
