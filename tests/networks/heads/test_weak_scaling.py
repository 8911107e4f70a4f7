"""Twice the labels on twice the devices: each has as much to do and to send."""

import numpy as np
import pytest

from benchmarks.weak_scaling import HeadPass, compile_pass, count_sent_bytes
from tests.fixtures.collectives import bytes_by_kind
from xjax.plan.costs import compiled_collectives

ROWS, DOCUMENTS, POSITIVES, DIM = 1536, 32, 4, 64


def compiled_for(n):
  head_pass = HeadPass(
    documents=DOCUMENTS,
    positives=POSITIVES,
    labels=ROWS * n,
    dim=DIM,
    label=n,
    # Compilers count the operations of a loop's body once.
    chunk=ROWS,
  )
  return head_pass, compile_pass(head_pass)


@pytest.fixture(scope='module')
def programs():
  return [compiled_for(n) for n in (2, 4, 8)]


def test_operations_are_flat(programs):
  operations = [program.cost_analysis()['flops'] for _, program in programs]
  np.testing.assert_allclose(operations, operations[0], rtol=0.01)
  # Above products, what is done to each logit and each weight.
  products = 3 * 2 * DOCUMENTS * ROWS * DIM
  assert 1 < operations[0] / products < 1.25


def test_collectives_are_flat(programs):
  for head_pass, program in programs:
    collectives = compiled_collectives(program.as_text())
    # The gradient of the features, and the loss.
    expected = {'all-reduce': DOCUMENTS * DIM * 4 + 4}
    assert (
      bytes_by_kind(collectives)
      == count_sent_bytes(program, head_pass)
      == expected
    )
    assert not any(one.looped for one in collectives)


def test_memory_is_flat(programs):
  for _, program in programs:
    stats = program.memory_analysis()
    rows = ROWS * (DIM * 2 + 4)  # and biases
    assert stats.alias_size_in_bytes == rows  # overwritten where they lie
    # Features, their gradient and gold; logits, their derivative, rows as
    # operands and their gradient.
    features = DOCUMENTS * (DIM * 8 + POSITIVES * 4 + 1)
    assert stats.temp_size_in_bytes < features + ROWS * (DOCUMENTS + DIM) * 8
