"""Judges by a user's own metrics, in a process that has imported them.

In a process of its own: what is imported stays, and is judged by ever after.
"""

import importlib
import json
import pathlib
import sys

from tests.extending.systems import KS, predictions
from xjax.judge.criteria import Criteria
from xjax.judge.judge import document_lines, judge
from xjax.judge.request import JudgeRequest
from xjax.report.terminal.judgement import (
  judgement_text,
  plain_slice_table,
  write_judgement,
)


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
    'kinds': request.criteria(judged).kinds,
  }
  pathlib.Path(folder, 'told.json').write_text(json.dumps(told))


if __name__ == '__main__':
  main(*sys.argv[1:])
