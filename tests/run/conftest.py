"""Fixtures: the devices of each module, and runs to change."""

import shutil

import pytest


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield


@pytest.fixture
def workdir(finished, tmp_path):
  """A copy of the finished run, to change and to go on in."""
  return shutil.copytree(finished.workdir, tmp_path / 'run')
