"""Rows of a batch that lie apart on the mesh of two processes."""

import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name('rows_process.py')


def test_each_process_puts_and_gets_its_rows(free_port):
  running = [
    subprocess.Popen(
      [sys.executable, SCRIPT, str(free_port), str(process)],
      env=os.environ | {'PYTHONPATH': str(SCRIPT.parents[2])},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for process in range(2)
  ]
  try:
    outputs = [process.communicate(timeout=120)[0] for process in running]
  finally:
    for process in running:
      process.kill()
  assert [process.returncode for process in running] == [0, 0], outputs
