"""What all tests share: eight CPU devices, checked types, a cache of ours."""

import os
import shutil
import tempfile

import jax
from jaxtyping import install_import_hook
import pytest

# Before any backend starts: sharding is never a no-op in the tests.
jax.config.update('jax_num_cpu_devices', 8)

# Shapes and types of these rooms are checked at every call. Done here, before
# any test imports them.
install_import_hook(
  ['xjax.heads', 'xjax.losses', 'xjax.metrics'], 'beartype.beartype'
)


def pytest_configure(config: pytest.Config) -> None:
  """Prepared data goes to a folder that lives as long as the tests."""
  config.xjax_cache = tempfile.mkdtemp(prefix='xjax_tests_')
  os.environ['XJAX_CACHE_DIR'] = config.xjax_cache


def pytest_unconfigure(config: pytest.Config) -> None:
  shutil.rmtree(config.xjax_cache, ignore_errors=True)
