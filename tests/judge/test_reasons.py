"""Reasons: for each convention that differs a sentence, and for no other."""

import dataclasses
import string

import pytest

from xjax.judge.metrics.metric import Protocol
from xjax.judge.metrics.protocols import (
  LMTC,
  NAPKINXC,
  PROTOCOLS,
  PYXCLIB,
  XJAX,
)
from xjax.judge.protocol_differences import reasons

COUNTS = {
  'without_gold': 34,
  'labels': 100,
  'gold_labels': 60,
  'up_to_largest': 90,
  'between': 7,
}


def filled(*args):
  return [sentence.format(**COUNTS) for sentence in reasons(*args)]


def test_where_conventions_are_alike_there_is_no_reason():
  for metric, one, other in (
    ('PSP@5', XJAX, PYXCLIB),  # a ratio of sums is the same either way
    ('macro-F1', XJAX, NAPKINXC),
    ('RP@5', XJAX, LMTC),
    ('PSnDCG@5', NAPKINXC, PYXCLIB),
  ):
    assert filled(metric, one, other) == []


def test_sentences_name_the_first_protocol_first():
  assert filled('macro-F1@5', NAPKINXC, XJAX) == [
    'the mean in napkinxc is over the 90 labels up to the largest index that '
    'is gold or listed, in xjax over all 100 labels'
  ]
  assert filled('PSR-norm@5', PYXCLIB, XJAX) == [
    "a document's hits are divided by the number of its gold labels in "
    'pyxclib, by the weights of its gold labels in xjax'
  ]


CONVENTIONS = {
  'skip_without_gold': 'P@5',
  'psndcg': 'PSnDCG@5',
  'psr': 'PSR@5',
  'coverage_over': 'coverage@5',
  'macro_over': 'macro-P@5',
}


@pytest.mark.parametrize('field', CONVENTIONS)
def test_every_convention_has_a_sentence(field):
  others = {getattr(protocol, field) for protocol in PROTOCOLS.values()}
  others -= {getattr(XJAX, field)}
  assert others
  for value in others:
    them = dataclasses.replace(XJAX, name='them', **{field: value})
    assert len(filled(CONVENTIONS[field], XJAX, them)) == 1
    assert len(filled(CONVENTIONS[field], them, XJAX)) == 1


def test_no_convention_is_forgotten():
  words = {'name', 'title', 'source', 'printed', 'ties', 'frequent_from'}
  assert {f.name for f in dataclasses.fields(Protocol)} == words | {
    *CONVENTIONS
  }


def test_sentences_ask_for_known_counts_alone():
  for us in PROTOCOLS.values():
    for them in PROTOCOLS.values():
      for metric in ('P@1', 'PSR@1', 'PSnDCG@1', 'coverage@1', 'macro-F1@1'):
        for sentence in reasons(metric, us, them, 'few'):
          asked = {name for _, name, *_ in string.Formatter().parse(sentence)}
          assert asked - {None} <= set(COUNTS)
