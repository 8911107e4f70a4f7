import pytest

from tests.judge.files.given import FIELDS


@pytest.fixture
def files(tmp_path):
  """Paths with names that tell what files are for, and not their formats."""
  return {name: tmp_path / name for name in (*FIELDS, 'other')}
