"""A port at which processes meet."""

import contextlib
import random
import socket

import pytest


@pytest.fixture
def free_port() -> int:
  """Of the last 4096 that there are, one that nobody has.

  On SLURM, JAX takes it where the job has this number.
  """
  for port in random.sample(range(65536 - 4096, 65536), 100):
    with socket.socket() as free, contextlib.suppress(OSError):
      free.bind(('localhost', port))
      return port
  raise AssertionError('all ports are taken')
