import json

import pytest

from tests.fixtures.eurlex57k import CONCEPTS


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'source').mkdir()
  path = tmp_path / 'source' / 'eurovoc_en.json'
  path.write_text(json.dumps(CONCEPTS, indent=1))
  return tmp_path / 'source'
