"""Two processes score their own rows and both get all of them."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from xjax.run.strategies.strategies import document_order

pytestmark = pytest.mark.thorough

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path(__file__).with_name('predict_process.py')


def free_port():
  with socket.socket() as listener:
    listener.bind(('localhost', 0))
    return listener.getsockname()[1]


def test_both_get_every_row(tmp_path):
  port = str(free_port())
  paths = [tmp_path / f'{process}.npz' for process in range(2)]
  running = [
    subprocess.Popen(
      [sys.executable, SCRIPT, port, str(process), paths[process]],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      env=os.environ | {'PYTHONPATH': str(ROOT)},
    )
    for process in range(2)
  ]
  try:
    outputs = [process.communicate(timeout=120)[0] for process in running]
  finally:
    for process in running:
      process.kill()
  assert [process.returncode for process in running] == [0, 0], outputs
  for path in paths:
    with np.load(path) as file:
      np.testing.assert_array_equal(file['ids'][:, 0], np.arange(11) % 6)
      np.testing.assert_array_equal(file['scores'][:, 0], np.arange(11) + 0.5)
      # Documents are scored by their places in the order they are visited in.
      places = np.argsort(document_order(0, 11))
      np.testing.assert_array_equal(file['covered'][:, 0], places % 6)
