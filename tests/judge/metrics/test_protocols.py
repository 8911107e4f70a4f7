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
  assert ' '.join(PROTOCOLS) == (
    'xjax lmtc pyxclib napkinxc libmultilabel attentionxml pecos'
  )
  for name, protocol in PROTOCOLS.items():
    assert protocol.name == name
    # Every kind of a tool is one of ours.
    assert len(set(protocol.kinds)) == len(protocol.kinds)
    assert set(protocol.kinds) <= set(XJAX.kinds)


@pytest.mark.parametrize(
  ('tool', 'prints', 'never'),
  [
    ('lmtc', 'RP@5', 'PSP@5'),
    # LibMultiLabel has F1 at a threshold, napkinXC of the first k.
    ('libmultilabel', 'macro-F1', 'macro-F1@5'),
    ('napkinxc', 'macro-F1@5', 'macro-F1'),
    ('pyxclib', 'PSR-norm@5', 'PSR@5'),
    ('napkinxc', 'PSR@5', 'macro-F1'),  # un-normalised: napkinXC alone
  ],
)
def test_what_tools_print(tool, prints, never):
  assert PROTOCOLS[tool].prints(prints)
  assert not PROTOCOLS[tool].prints(never)
