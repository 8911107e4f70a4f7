"""A stack of all kinds of proposers without a neural part."""

import pytest

from tests.models.stack.test_stack_model import everything
from xjax.run.fit import fit


@pytest.fixture(scope='session')
def stacked(tmp_path_factory):
  """The result of fit; tests must copy its workdir before they change it."""
  return fit(everything(), tmp_path_factory.mktemp('stacked') / 'run')
