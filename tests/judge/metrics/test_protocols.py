"""Protocols: their names, and which metrics each tool prints."""

import pytest

from xjax.judge.metrics.metric import kind_of
from xjax.judge.metrics.protocols import PROTOCOLS, XJAX


@pytest.mark.parametrize(
  ('metric', 'kind'),
  [
    ('P@5', 'P@k'),
    ('nDCG-full@10', 'nDCG-full@k'),
    ('R-Precision', 'R-Precision'),
    ('micro-F1', 'micro-F1'),
    ('micro-F1@5', 'micro-F1@k'),
    ('macro-F1-tuned', 'macro-F1-tuned'),
    ('macro-F1@5[10-99]', 'macro-F1@k[]'),
    ('macro-F1@5[1000+]', 'macro-F1@k[]'),
    ('macro-F0.5@5', 'macro-F0.5@k'),
    ('coverage[a=0.5]@5', 'coverage[a]@k'),
    ('coverage[n=1000]@5', 'coverage[n]@k'),
  ],
)
def test_kinds(metric, kind):
  assert kind_of(metric) == kind
  assert XJAX.prints(metric)


def test_names():
  assert tuple(PROTOCOLS) == (
    *('xjax', 'lmtc', 'pyxclib', 'napkinxc', 'libmultilabel'),
    *('attentionxml', 'pecos'),
  )
  for name, protocol in PROTOCOLS.items():
    assert protocol.name == name


def test_every_kind_of_a_tool_is_one_of_ours():
  for protocol in PROTOCOLS.values():
    assert len(set(protocol.kinds)) == len(protocol.kinds)
    assert set(protocol.kinds) <= set(XJAX.kinds)


def test_what_tools_print():
  assert PROTOCOLS['lmtc'].prints('RP@5')
  assert not PROTOCOLS['lmtc'].prints('PSP@5')
  # LibMultiLabel has F1 at a threshold, napkinXC of the first k.
  assert PROTOCOLS['libmultilabel'].prints('macro-F1')
  assert not PROTOCOLS['libmultilabel'].prints('macro-F1@5')
  assert PROTOCOLS['napkinxc'].prints('macro-F1@5')
  assert not PROTOCOLS['napkinxc'].prints('macro-F1')
  # Un-normalised: napkinXC alone.
  assert not PROTOCOLS['pyxclib'].prints('PSR@5')
  assert PROTOCOLS['napkinxc'].prints('PSR@5')
