r"""Compares strategies of choosing labels (Table 2 of Schultheis et al. 2022).

  python benchmarks/strategies.py --workdir=DIR [--split=dev]

DIR is a finished run on sparse features. The benchmark chooses 5 labels for
each document by score (standard), propensity and coverage (beta 0 and 0.25). It
prints precision, propensity-scored precision, coverage, and milliseconds per
document (the best of three turns after one that compiles, without the time for
features). Then it prints whether coverage@5 rises and P@1 falls from standard
to propensity to coverage, as in the paper, and whether coverage@5 of beta 0.25
is between standard and coverage.
"""

from collections.abc import Callable
import dataclasses
import functools
import time

from absl import app, flags
import numpy as np

from xjax.core.ranking import Query
from xjax.data.documents import Documents
from xjax.data.load import load_corpus
from xjax.judge.criteria import Criteria
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.make_predictions import predict
from xjax.judge.metrics.slices import ALL
from xjax.run.open_run import open_run
from xjax.run.strategies.strategies import RankedDocuments
from xjax.run.strategies.strategy_request import (
  StrategyKind,
  StrategyRequest,
  StrategyRunner,
)

K, TURNS = 5, 3
REQUESTS = {
  'propensity': StrategyRequest(StrategyKind.PROPENSITY, K),
  'coverage': StrategyRequest(StrategyKind.COVERAGE, K),
  'beta 0.25': StrategyRequest(StrategyKind.COVERAGE, K, beta=0.25),
}
CRITERIA = Criteria((1, 3, 5), ('P@k', 'PSP@k', 'coverage@k'))
COLUMNS = [
  f'{kind}@{k}' for kind in ('P', 'PSP', 'coverage') for k in (1, 3, 5)
]

_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_SPLIT = flags.DEFINE_string('split', 'dev', 'Split of the documents.')


def main(argv: list[str]) -> None:
  """Chooses labels by all strategies and prints the table."""
  del argv
  run = open_run(_WORKDIR.value)
  config, split = run.config, _SPLIT.value
  corpus = load_corpus(config.data, config.seed, run.space, [split])
  split = corpus.split(split)
  # The documents remember their features, which the first lists compute.
  documents, depth = Documents.of_split(split).remembering(), config.eval.depth
  by_score = predict(run.scorer, split, run.space, depth, documents=documents)
  best_lists = by_score.lists[ALL].ids, by_score.lists[ALL].scores
  print(f'{"":16}' + ''.join(f'{name:>12}' for name in [*COLUMNS, 'ms']))
  results = {}

  def show(name: str, lists: LabelLists, ms: float) -> None:
    judged = dataclasses.replace(by_score, lists={**by_score.lists, ALL: lists})
    results[name] = judge(judged, CRITERIA)[PROTOCOL][ALL]
    values = ''.join(f'{100 * results[name][x]:12.2f}' for x in COLUMNS)
    print(f'{name:16}{values}{ms:12.3f}', flush=True)

  ms = timed(lambda: run.rank(documents, Query(K)), len(split))
  show('standard', by_score.lists[ALL].first(K), ms)
  for name, request in REQUESTS.items():
    runner = StrategyRunner.of(request, run)
    ranked = RankedDocuments(run, documents, runner.sigmoid, best_lists)
    select = functools.partial(runner.select, ranked, K)
    chosen, ms = select(), timed(select, len(split))
    lists = LabelLists(chosen.ids_NK, chosen.ranks_NK.astype(np.float32))
    show(name, lists, ms)
  coverage = {name: values['coverage@5'] for name, values in results.items()}
  precision = {name: values['P@1'] for name, values in results.items()}
  between = coverage['standard'] < coverage['beta 0.25'] < coverage['coverage']
  print(f'coverage@5 rises: {rises(coverage)}')
  print(
    f'P@1 falls: {rises({name: -value for name, value in precision.items()})}'
  )
  print(f'coverage@5 of beta 0.25 is between: {between}')


def timed(call: Callable[[], object], n: int) -> float:
  """Returns the milliseconds per document of a call for n documents."""
  times = []
  for _ in range(1 + TURNS):
    start = time.perf_counter()
    call()
    times.append(time.perf_counter() - start)
  return 1000 * min(times[1:]) / n


def rises(values: dict[str, float]) -> bool:
  """Returns whether values rise from standard to propensity to coverage."""
  return values['standard'] < values['propensity'] < values['coverage']


if __name__ == '__main__':
  app.run(main)
