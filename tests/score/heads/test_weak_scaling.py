"""Twice the labels on twice the devices: each has as much to do and to send."""

import jax
import numpy as np
import pytest

from xjax.core.mesh import DATA, LABEL
from xjax.losses.bce import bce
from xjax.plan.collectives import bytes_by_kind, compiled_collectives
from xjax.plan.head_traffic import HeadPass, head_traffic
from xjax.plan.lowering import lowered_pass
from xjax.score.heads.storage import Storage
from xjax.score.heads.update import SGD


def compiled(n):
  given = HeadPass(
    documents=32,
    positives=4,
    labels=1536 * n,
    dim=64,
    data=1,
    label=n,
    feature_bytes=4,
    storage=Storage.BFLOAT16,
    rule=SGD(),
    # Compilers count the operations of a loop's body once.
    chunk=1536,
  )
  assert given.n_chunks == 1
  devices = np.array(jax.devices()[:n]).reshape(1, n)
  mesh = jax.sharding.Mesh(devices, (DATA, LABEL))
  return given, lowered_pass(given, mesh, bce).compile()


@pytest.fixture(scope='module')
def programs():
  return [compiled(n) for n in (2, 4, 8)]


def test_operations_are_flat(programs):
  found = [program.cost_analysis()['flops'] for _, program in programs]
  np.testing.assert_allclose(found, found[0], rtol=0.01)
  # Above products, what is done to each logit and each weight.
  given, _ = programs[0]
  assert 1 < found[0] / head_traffic(given).operations < 1.25


def test_collectives_are_flat(programs):
  sent = []
  for given, program in programs:
    found = compiled_collectives(program.as_text())
    expected = head_traffic(given).collectives
    assert bytes_by_kind(found) == {'all-reduce': expected.total}
    assert not any(one.looped for one in found)
    sent.append(expected.total)
  np.testing.assert_allclose(sent, sent[0], rtol=0.01)


def test_memory_is_flat(programs):
  for given, program in programs:
    stats = program.memory_analysis()
    held = head_traffic(given).held
    assert stats.alias_size_in_bytes == held.rows  # overwritten where they lie
    assert stats.temp_size_in_bytes < held.features + held.chunk
