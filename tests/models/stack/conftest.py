"""A stack of all kinds of proposers without a neural part."""

import pytest

from tests.models.stack.test_stack_model import everything


@pytest.fixture(scope='session')
def stacked(fit_once):
  """The result of fit; tests must copy its workdir before they change it."""
  return fit_once('stacked', everything())
