"""Fixtures: the devices of each module, and a small run of every kind."""

import fcntl
import os

import pytest

from tests.fixtures.kinds import KINDS, MEMBERS
from xjax.run.fit import fit


@pytest.fixture(scope='session')
def fit_once(devices, tmp_path_factory):
  """A function (name, config) that fits a run once for all workers of pytest.

  Tests must copy its workdir before they change it.
  """
  folder, results = tmp_path_factory.getbasetemp(), {}
  if 'PYTEST_XDIST_WORKER' in os.environ:
    folder = folder.parent

  def result(name, config):
    if name not in results:
      with open(folder / f'{name}.lock', 'w') as file, devices(1):
        fcntl.flock(file, fcntl.LOCK_EX)
        # A run that another worker has finished is only read.
        results[name] = fit(config, folder / name)
    return results[name]

  return result


@pytest.fixture(scope='session')
def fitted(fit_once):
  """A function that fits a kind of model once, and returns its result."""

  def result(kind):
    runs = [result(x).workdir for x in MEMBERS] if kind == 'ensemble' else []
    return fit_once(kind, KINDS[kind]([str(x) for x in runs]))

  return result


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield
