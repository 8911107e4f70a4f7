"""Judges by a user's own metrics, in a process that has imported them.

In a process of its own: what is imported stays, and is judged by ever after.
"""

import importlib
import json
import pathlib
import sys

from tests.extending.systems import KS, drawn_rows, predictions
from xjax.judge.comparison import compare
from xjax.judge.comparison_plan import ComparisonPlan
from xjax.judge.criteria import Criteria
from xjax.judge.intervals import bootstrap_sums, sum_names
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.request import JudgeRequest
from xjax.judge.slice import Slice
from xjax.judge.slice_statistics import SliceStatistics
from xjax.report.terminal.judgement import (
  judgement_text,
  plain_slice_table,
  write_judgement,
)

OWN = 'MRR@3', 'macro-Jaccard@3'


def replicates(judged, metric):
  """Its values in each bootstrap replicate."""
  criteria = Criteria((3,), (metric,))
  part = Slice.of(judged, 'all', judged.masks['all'])
  evidence = SliceStatistics.of(
    part, criteria, criteria.protocols, {}, judged.n_train
  )
  (measure,) = criteria.table(XJAX, (), ()).values()
  n = len(drawn_rows(judged))
  (sums,) = bootstrap_sums([evidence], sum_names([measure]), 0, n)
  return measure.value(sums)[:n].tolist()


def differences(systems):
  """Metric -> difference, ends of its interval, p."""
  plan = ComparisonPlan(metrics=OWN, iterations=50, replicates=50)
  criteria = plan.request().criteria(next(iter(systems.values())))
  return {
    row.metric: [row.difference, row.interval.low, row.interval.high, row.p]
    for row in compare(systems, criteria, plan).differences
  }


def main(folder, *modules):
  for module in modules:
    importlib.import_module(module)
  judged, criteria = predictions(), Criteria(KS, replicates=40)
  metrics = judge(judged, criteria)
  write_judgement(folder, judged, criteria, metrics)
  request = JudgeRequest(ks=(3,), kinds=('MRR', 'macro-Jaccard@k'))
  told = {
    'table': plain_slice_table(metrics),
    'full': judgement_text(metrics, full=True),
    'document': json.loads(next(document_lines(judged, criteria))),
    'replicates': replicates(judged, 'macro-Jaccard@k'),
    'differences': differences({'one': judged, 'other': predictions(1)}),
    'kinds': request.criteria(judged).kinds,
  }
  pathlib.Path(folder, 'told.json').write_text(json.dumps(told))


if __name__ == '__main__':
  main(*sys.argv[1:])
