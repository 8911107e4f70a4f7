"""Fixtures: the devices of each module, and a small run of every kind."""

import pytest

from tests.fixtures.kinds import KINDS, MEMBERS


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
