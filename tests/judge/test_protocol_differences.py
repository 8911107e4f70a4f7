"""Reasons why protocols differ, of conventions and of documents by hand."""

import functools

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.judge import NOTES, REASONS, judge
from xjax.judge.metrics.protocols import (
  LMTC,
  NAPKINXC,
  PECOS,
  PROTOCOLS,
  PYXCLIB,
  XJAX,
)

ALL = tuple(PROTOCOLS.values())
# Two labels have 50 training documents, and one label has none.
COUNTS = np.array([90, 50, 8, 50, 51, 0, 3, 2], np.int32)
# Two documents have no gold label. Label 7 is neither gold nor listed first.
GOLD = [[0, 1], [], [2], [0, 4], [], [3, 6]]
FIRST = [[0, 2], [1, 3], [4, 2], [0, 1], [3, 0], [6, 3]]


def problem(**fields):
  """Every list has all eight labels, the first two as in FIRST."""
  rows = [first + [i for i in range(8) if i not in first] for first in FIRST]
  scores = np.tile(np.arange(8, 0, -1, dtype=np.float32), (len(rows), 1))
  parts = {'score_kind': ScoreKind.MARGIN, 'n_train': 200, **fields}
  return system(rows, scores, GOLD, COUNTS, **parts)


def judged(*protocols, ks=(1, 2), **fields):
  return judge(problem(**fields), Criteria(ks, protocols=protocols or ALL))


under_all = functools.cache(judged)


def told(slice_name, protocol, metric, metrics=None):
  reasons = (metrics or under_all())[REASONS]
  return reasons[protocol][slice_name].get(metric)


def differ(subject, ours, theirs, us='xjax', them='napkinxc'):
  return f'{subject} {ours} in {us}, {theirs} in {them}'


def means(documents, everyone, *who):
  with_gold = f'the {documents} documents with gold labels'
  return differ(
    'the mean is over', with_gold, f'all {everyone} documents', *who
  )


@pytest.mark.parametrize('protocol', ['pyxclib', 'pecos'])
def test_documents_without_gold(protocol):
  for metric in ('n_docs', 'n_skipped', 'P@1', 'P@2'):
    assert told('all', protocol, metric) == means(4, 6, 'xjax', protocol)
  # Labels 2 and 6 are gold in one document each, and label 7 in none.
  assert told('few', protocol, 'P@2') == means(2, 6, 'xjax', protocol)
  ours, theirs = under_all()['xjax']['all'], under_all()[protocol]['all']
  assert (ours['n_docs'], ours['n_skipped']) == (4, 2)
  assert (theirs['n_docs'], theirs['n_skipped']) == (6, 0)
  assert theirs['P@1'] == pytest.approx(ours['P@1'] * 4 / 6)


def test_labels_that_only_one_calls_frequent():
  reasons = judged()[REASONS]['lmtc']
  assert set(reasons) == {'frequent', 'few'}
  for name, ours, theirs in (('frequent', 4, 2), ('few', 3, 5)):
    sizes = (
      f'{n} labels (frequent: from {least} training documents)'
      for n, least in ((ours, 50), (theirs, 51))
    )
    why = differ('the slice has', *sizes, them='lmtc')
    assert reasons[name]['n_labels'] == why
    assert all(text.startswith(why) for text in reasons[name].values())


def test_averaged_labels():
  metrics = judged(ks=(1, 2, 3))
  # Six of eight labels are gold: a, b, c, d, e and g. No list starts with h.
  assert told('all', 'napkinxc', 'coverage@1', metrics) == differ(
    *('the mean is over', 'all 8 labels'),
    'the 6 labels that are gold for a document',
  )
  ours, theirs = metrics['xjax']['all'], metrics['napkinxc']['all']
  assert theirs['coverage@1'] == pytest.approx(ours['coverage@1'] * 8 / 6)

  def mean(n, fewer):
    upto = f'the {fewer} labels up to the largest that is gold or listed'
    return differ('the mean is over', f'all {n} labels', upto)

  for k in (1, 2):
    name = f'macro-F1@{k}'
    assert told('all', 'napkinxc', name, metrics) == mean(8, 7)
    assert theirs[name] == pytest.approx(ours[name] * 8 / 7)
  # napkinXC counts up to g, the largest gold label; h is listed only at k = 3.
  assert told('few', 'napkinxc', 'macro-F1@1', metrics) == mean(3, 2)
  assert 'macro-F1@3' not in metrics[REASONS]['napkinxc']['few']


def test_propensities():
  assert told('all', 'pyxclib', 'PSnDCG@2') == differ(
    *('hits are divided by', 'the largest possible sum'),
    "the document's ideal DCG, then by the largest possible sum",
    them='pyxclib',
  )
  # With one label both ways are the same, so no reason is given.
  assert told('all', 'pyxclib', 'PSnDCG@1') is None
  assert told('all', 'napkinxc', 'PSR@2').split('; ') == [
    means(4, 6),
    differ(
      'hits are divided by',
      "the weights of the document's gold labels",
      "the number of the document's gold labels",
    ),
  ]


def same(*values):
  values = np.array(values, float)  # None becomes NaN
  return np.allclose(*values, rtol=0, atol=1e-9, equal_nan=True)


def test_every_difference_has_a_reason_and_nothing_else_has():
  metrics = judged()
  for protocol in ALL[1:]:
    for name, values in metrics[protocol.name].items():
      whys = metrics[REASONS].get(protocol.name, {}).get(name, {})
      ours = metrics['xjax'][name]
      assert set(whys) == {
        metric
        for metric in values.keys() & ours.keys()
        if not same(ours[metric], values[metric])
      }


def test_the_first_protocol_is_what_others_are_compared_with():
  metrics = judged(PYXCLIB, XJAX, LMTC)
  for protocol in (XJAX, LMTC):
    assert told('all', protocol.name, 'P@1', metrics) == differ(
      *('the mean is over', 'all 6 documents'),
      'the 4 documents with gold labels',
      *('pyxclib', protocol.name),
    )
  assert 'pyxclib' not in metrics[REASONS]


def test_why_a_protocol_of_its_own_has_no_value():
  lists = problem().lists['all'].first(2)
  metrics = judged(XJAX, LMTC, NAPKINXC, ks=(1, 3), lists={'all': lists})
  deep = 'of 4 documents need a list deeper than the 2 labels saved'
  assert deep in metrics[NOTES]['all']['P@3']
  # A value that the first protocol lacks too is explained once, in the notes.
  assert 'P@3' not in metrics[REASONS]['napkinxc']['all']
  # The list has all labels that xjax calls few, but not the two labels of 50
  # documents, which lmtc calls few as well.
  few = problem().lists['all'].cut(np.isin(np.arange(8), [2, 6, 7]))
  metrics = judged(XJAX, LMTC, lists={'all': lists, 'few': few})
  assert metrics['xjax']['few']['P@2'] is not None
  assert metrics['lmtc']['few']['P@2'] is None
  why = metrics[REASONS]['lmtc']['few']['P@2']
  assert 'need a list deeper than the 2 labels saved' in why
  # PECOS comes first and never prints PSP, so napkinXC's reason is given.
  unknown = {'n_train': 0, 'train_counts': np.zeros(8, np.int32)}
  bare = judged(PECOS, NAPKINXC, **unknown)
  assert bare['napkinxc']['all']['PSP@1'] is None
  why = 'propensities need the training labels'
  assert bare[REASONS]['napkinxc']['all']['PSP@1'] == why
