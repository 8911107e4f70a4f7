"""Tests which metrics are shown first."""

from xjax.judge.criteria import main_metrics


def names(*ks):
  kinds = 'P', 'R', 'nDCG', 'RP', 'PSP', 'macro-F1'
  return [f'{kind}@{k}' for kind in kinds for k in ks] + ['micro-F1', 'n_docs']


def test_usual_cut_offs():
  assert main_metrics(names(1, 3, 5, 10)) == [
    *('P@1', 'P@3', 'P@5', 'nDCG@5', 'RP@5', 'PSP@1', 'PSP@3', 'PSP@5'),
    'macro-F1@5',
  ]


def test_other_cut_offs_take_their_place():
  assert main_metrics(names(2, 8)) == [
    *('P@2', 'P@8', 'nDCG@8', 'RP@8', 'PSP@2', 'PSP@8', 'macro-F1@8')
  ]
  assert main_metrics(['n_docs', 'micro-F1']) == ['micro-F1']
  assert main_metrics([]) == []
