"""Provides a port at which processes meet."""

import contextlib
import random
import socket

import pytest


@pytest.fixture
def free_port() -> int:
  """Returns a port among the last 4096 that nobody uses.

  On SLURM, JAX takes this port if the job has the same number.
  """
  for port in random.sample(range(65536 - 4096, 65536), 100):
    with socket.socket() as free, contextlib.suppress(OSError):
      free.bind(('localhost', port))
      return port
  raise AssertionError('all ports are taken')
