"""A neural model is served without a compilation after the start."""

import numpy as np
import pytest

from tests.run.serve.conftest import serving
from xjax.report.page import served
from xjax.run.serve.service import Service

pytestmark = pytest.mark.thorough


@pytest.fixture(scope='module')
def client(finished):
  with serving(Service.load(finished.workdir, served)) as client:
    yield client


def compiled(client) -> float:
  text = client.send('GET', '/metrics')[1].decode()
  values = dict(line.rsplit(' ', 1) for line in text.splitlines())
  return float(values['xjax_compiled_programs_total'])


def test_no_request_compiles(client):
  rng, words = np.random.default_rng(0), np.array('puma sa funu x'.split())
  most = client.json('GET', '/health')[1]['max_k']
  for path in ('/predict', '/shaded') * 10:
    texts = [
      ' '.join(rng.choice(words, rng.integers(1, 60)))
      for _ in range(rng.integers(1, 20))
    ]
    body = {'documents': texts, 'k': int(rng.integers(1, most + 1))}
    body['explain'] = int(rng.integers(0, 9))
    assert client.json('POST', path, body)[0] == 200
  assert compiled(client) == 0
