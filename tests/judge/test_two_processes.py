"""Two processes score their own rows and both get all of them."""

import pathlib
import socket

import numpy as np
import pytest

from tests.multihost.conftest import finish, start
from xjax.run.strategies.strategies import document_order

SCRIPT = pathlib.Path(__file__).with_name('predict_process.py')


@pytest.mark.thorough
def test_both_get_every_row(tmp_path):
  with socket.socket() as listener:
    listener.bind(('localhost', 0))
    port = listener.getsockname()[1]
  paths = [tmp_path / f'{process}.npz' for process in range(2)]
  finish(*(start(SCRIPT, port, n, path) for n, path in enumerate(paths)))
  for path in paths:
    with np.load(path) as file:
      np.testing.assert_array_equal(file['ids'][:, 0], np.arange(11) % 6)
      np.testing.assert_array_equal(file['scores'][:, 0], np.arange(11) + 0.5)
      # Documents are scored by their places in the order they are visited in.
      places = np.argsort(document_order(0, 11))
      np.testing.assert_array_equal(file['covered'][:, 0], places % 6)
