import json

import pytest

from tests.fixtures.eurlex57k import CONCEPTS, as_lines, config


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'source').mkdir()
  path = tmp_path / 'source' / 'eurovoc_en.json'
  path.write_text(json.dumps(CONCEPTS, indent=1))
  return tmp_path / 'source'


@pytest.fixture
def data(folder, tmp_path):
  """The corpus as lines, prepared below the folder cache."""
  return config(as_lines(folder), tmp_path / 'cache')
