"""Between slices, steps sum gradients, and one-vs-all heads send documents."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.fixtures.collectives import bytes_by_kind
from tests.train.two_slices import (
  DOCUMENTS,
  POSITIVES,
  STEPS,
  bert,
  crossing,
)
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.plan.costs import Collective

ROOT = pathlib.Path(__file__).parents[2]
DIM = 128
SMALL = 64 * 1024  # bytes of scalars, biases and norms, padded for a TPU


@pytest.fixture(scope='module')
def n_devices():
  return 8


def check(name, found, summed):
  sent = bytes_by_kind(found)
  # Devices of a slice may each send a part of the gradient.
  assert summed / 8 < sent.pop('all-reduce') < 1.3 * summed + SMALL, sent
  documents = sent.pop('all-gather', 0) + sent.pop('reduce-scatter', 0)
  assert not sent
  if name in ('one_vs_all', 'fused_rows'):
    # Features with gold labels, and the features' gradients.
    most = DOCUMENTS * (4 * DIM + 4 * POSITIVES + 1) + DOCUMENTS * DIM * 4
    assert 0 < documents <= most
  else:
    assert not documents


def test_between_fake_slices(all_devices):
  config = bert()
  config.model.encoder.dropout = config.model.encoder.attention_dropout = 0.0
  mesh = make_mesh(MeshConfig(4, 2, slices=2))
  check('bert', *crossing(config, mesh, 4))


@pytest.mark.chips
def test_between_slices_of_tpus():
  environment = {
    'JAX_PLATFORMS': 'cpu',
    'PATH': '/usr/bin:/bin',
    'PYTHONPATH': str(ROOT),
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
  }
  done = subprocess.run(
    [sys.executable, '-m', 'tests.train.two_slices', *STEPS],
    cwd=ROOT,
    env=environment,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
  )
  lines = done.stdout.splitlines()
  for name, line in zip(STEPS, lines, strict=True):
    found, summed = json.loads(line)
    check(name, [Collective(**one) for one in found], summed)
