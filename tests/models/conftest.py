"""Every module of this room runs on as many devices as it says."""

import pytest


@pytest.fixture(scope='module', autouse=True)
def so_many_devices(devices, n_devices):
  with devices(n_devices):
    yield
