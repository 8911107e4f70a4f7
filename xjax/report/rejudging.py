"""Judges the compared systems by the same criteria."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import DataError
from xjax.data.schema import PROPENSITY
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.metrics.metric import cut_offs
from xjax.judge.metrics.slices import ALL
from xjax.judge.request import JudgeRequest
from xjax.report.runs import JudgedRun, protocols


def judge_runs(
  runs: Sequence[JudgedRun], request: JudgeRequest
) -> list[JudgedRun]:
  """Judges the saved lists of runs of the same documents.

  If the request has no cut-offs, they are those of the saved metrics. If it has
  no propensities, they are taken from the first run whose config has some. A
  ConfigError says that files or options are missing; a DataError, that a label
  has no weight.
  """
  tables = (run.metrics[p][ALL] for run in runs for p in protocols(run.metrics))
  ks = cut_offs(metric for table in tables for metric in table)
  usual = Criteria(ks or Criteria.ks, propensity=propensity_of(runs))
  judged_runs = []
  for run, weights_L in zip(runs, shared_weights(runs)):
    criteria = request.criteria(
      run.predictions, weights_L, run.labels, usual=usual
    )
    metrics = judge(
      run.predictions, criteria, _threshold(run), run.shown_probabilities()
    )
    judged_runs.append(
      dataclasses.replace(run, metrics=metrics, criteria=criteria)
    )
  return judged_runs


def _threshold(run: JudgedRun) -> float | None:
  for protocol in protocols(run.metrics):
    threshold = run.metrics[protocol][ALL].get('threshold-tuned')
    if threshold is not None:
      return threshold
  return None


def propensity_of(runs: Sequence[JudgedRun]) -> tuple[float, float]:
  """Returns A and B of the first config with propensities, or PROPENSITY."""
  configs = (run.config or {} for run in runs)
  pairs = (config.get('eval', {}).get('propensity') for config in configs)
  return tuple(map(float, next(filter(None, pairs), PROPENSITY)))


def shared_weights(runs: Sequence[JudgedRun]) -> list[np.ndarray | None]:
  """Gives all runs the label weights of the first run with a file of them."""
  # float64 [L] per run, by label id, or None for each. A label without a weight
  # is a DataError.
  weighted = (run.weight_of for run in runs if run.weight_of is not None)
  weight_of = next(weighted, None)
  if weight_of is None:
    return [None] * len(runs)
  weights = []
  for run in runs:
    labels = run.predictions.labels
    if missing_ids := [id_ for id_ in labels if id_ not in weight_of]:
      raise DataError(
        f'--inv_prop has no weight for label {missing_ids[0]!r} of {run.path}'
      )
    weights.append(np.array([weight_of[id_] for id_ in labels]))
  return weights
