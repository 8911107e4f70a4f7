"""Metrics of one's own, each a class in a file outside the library."""

import csv
import dataclasses
import importlib
import itertools
import json

import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.types import Ragged, ScoreKind
from xjax.judge.comparison import compare
from xjax.judge.comparison_plan import Plan
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import Evidence
from xjax.judge.intervals import bootstrap_sums, names_of
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics.contract import LabelMetric
from xjax.judge.metrics.documents import Precision
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.resampling import draws
from xjax.judge.predictions import Lists, Predictions
from xjax.judge.request import Asked
from xjax.judge.slice import Slice
from xjax.report.tables.plain import slice_table
from xjax.report.terminal.judged import judgement_text, write_judgement

OWN = 'tests.extending.own_metrics'
KS = (1, 3)


@pytest.fixture(autouse=True)
def own_metrics():
  importlib.import_module(OWN)


def predictions(seed=0, n=60, n_labels=30, k=6):
  rng = np.random.default_rng(seed)
  scores = rng.random((n, n_labels)).astype(np.float32)
  ids = np.argsort(-scores, axis=1, kind='stable')[:, :k].astype(np.int32)
  # The same gold, whatever the system.
  golds = np.random.default_rng(9)
  rows = [golds.permutation(n_labels)[: golds.integers(0, 5)] for _ in range(n)]
  return Predictions(
    score_kind=ScoreKind.PROBABILITY,
    n_scored=n_labels,
    n_train=100,
    doc_ids=tuple(f'd{i}' for i in range(n)),
    labels=tuple(f'l{i}' for i in range(n_labels)),
    train_counts=np.arange(1, n_labels + 1, dtype=np.int32),
    lists={'all': Lists(ids, np.take_along_axis(scores, ids, 1))},
    gold=Ragged.of([row.tolist() for row in rows]),
  )


def reciprocal_rank(judged, k):
  values = []
  for ids, gold in zip(judged.lists['all'].ids, judged.gold, strict=True):
    places = [i + 1 for i in range(k) if ids[i] in gold]
    values += [1 / places[0] if places else 0] if len(gold) else []
  return np.mean(values)


def jaccard(judged, k):
  values = []
  for label in range(len(judged.labels)):
    listed = (judged.lists['all'].ids[:, :k] == label).any(1)
    golden = np.array([label in gold for gold in judged.gold])
    either = (listed | golden).sum()
    values.append((listed & golden).sum() / either if either else 0)
  return np.mean(values)


def test_they_are_judged_and_written(tmp_path):
  judged = predictions()
  criteria = Criteria(KS, replicates=40)
  metrics = judge(judged, criteria)
  values = metrics['xjax']['all']
  for k in KS:
    assert values[f'MRR@{k}'] == pytest.approx(reciprocal_rank(judged, k))
    assert values[f'macro-Jaccard@{k}'] == pytest.approx(jaccard(judged, k))
    for name in (f'MRR@{k}', f'macro-Jaccard@{k}'):
      low, high = metrics['intervals']['xjax']['all'][name]
      assert low < values[name] < high
  write_judgement(tmp_path, judged, criteria, metrics)
  saved = json.loads((tmp_path / 'metrics.json').read_text())
  assert saved['xjax']['all']['MRR@3'] == values['MRR@3']
  rows = csv.reader((tmp_path / 'metrics.csv').read_text().splitlines())
  assert {'MRR@3', 'macro-Jaccard@3'} <= {row[2] for row in rows}
  assert 'MRR@3' in slice_table(metrics)
  assert 'macro-Jaccard@1' in judgement_text(metrics, full=True)
  line = json.loads(next(document_lines(judged, criteria)))
  assert 'MRR@3' in line and 'macro-Jaccard@3' not in line


def test_replicates_are_values_of_drawn_documents():
  judged, criteria = predictions(), Criteria((3,), ('macro-Jaccard@k',))
  part = Slice.of(judged, 'all', judged.masks['all'])
  evidence = Evidence.of(part, criteria, criteria.protocols, {}, 100)
  (measure,) = criteria.table(XJAX, (), ()).values()
  (sums,) = bootstrap_sums([evidence], names_of([measure]), 0, 20)
  drawn = itertools.islice(draws(0, len(judged)), 20)
  for value, counts in zip(measure.value(sums)[:20], drawn, strict=True):
    rows = np.repeat(np.arange(len(judged)), counts)
    lists = judged.lists['all']
    again = dataclasses.replace(
      judged,
      lists={'all': Lists(lists.ids[rows], lists.scores[rows])},
      gold=Ragged.of([judged.gold[row] for row in rows]),
    )
    assert value == pytest.approx(jaccard(again, 3))


def test_systems_are_compared_in_them():
  plan = Plan(
    metrics=('MRR@3', 'macro-Jaccard@3'), iterations=50, replicates=50
  )
  systems = {'one': predictions(0), 'other': predictions(1)}
  criteria = plan.asked().criteria(systems['one'])
  rows = {
    row.metric: row for row in compare(systems, criteria, plan).differences
  }
  for name, value in (('MRR@3', reciprocal_rank), ('macro-Jaccard@3', jaccard)):
    ours, theirs = (value(system, 3) for system in systems.values())
    row = rows[name]
    assert row.difference == pytest.approx(theirs - ours)
    assert row.interval.low <= row.difference <= row.interval.high
    assert 0 < row.p <= 1


def test_they_are_asked_for_by_name():
  asked = Asked(ks=(3,), kinds=('MRR', 'macro-Jaccard@k'))
  assert asked.criteria(predictions()).kinds == ('MRR@k', 'macro-Jaccard@k')


def test_a_label_that_nothing_is_said_of_adds_nothing():
  class NeverPredicted(LabelMetric):
    name = 'never-predicted@k'
    protocols = ('another',)

    def over(self, labels):
      return (labels.predicted_L == 0).astype(labels.gold_L.dtype)

  another = dataclasses.replace(XJAX, name='another')
  with pytest.raises(ConfigError, match='NeverPredicted: never-predicted@k'):
    judge(predictions(), Criteria((3,), protocols=(another,)))


def test_two_metrics_of_one_name_are_refused():
  class Once(Precision):
    name = 'twice@k'
    protocols = ('a third',)

  class Again(Once):
    name = 'twice@k'

  third = dataclasses.replace(XJAX, name='a third')
  with pytest.raises(ConfigError, match='metrics are called twice@3: .*Once'):
    judge(predictions(), Criteria((3,), protocols=(third,)))
  assert Again.name not in XJAX.kinds
