"""Makes sure that the metrics of compared systems use the same propensities."""

from collections.abc import Sequence
import copy
import dataclasses
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.data.schema import PROPENSITY
from xjax.judge.criteria import Criteria
from xjax.judge.judge import INTERVALS, NOTES, judge
from xjax.judge.metrics.metric import is_weighed, weighed_kinds
from xjax.judge.metrics.slices import ALL
from xjax.judge.request import JudgeRequest
from xjax.judge.slice_names import needs_parents
from xjax.report.runs import JudgedRun, every_metric, protocols

_SAME = 1e-9
_OTHER_PROPENSITIES = (
  'computed with propensities that differ from those of the other systems'
)


def judge_runs(
  runs: Sequence[JudgedRun], request: JudgeRequest
) -> list[JudgedRun]:
  """Gives runs of the same documents metrics that use the same propensities.

  The propensities are taken from `request`. If the request has no propensities,
  they are taken from the first run whose config has propensities.

  - A run without metrics is judged.
  - If the request has criteria other than replicates and a seed, all runs are
    judged. Without requested cut-offs a run keeps its own; a run that was not
    judged takes those of the first judged run.
  - Otherwise a run keeps its saved metrics, except those that other
    propensities change. Replicates add intervals to metrics that have none.

  A ConfigError says that files or options are missing; a DataError, that a
  label has no weight.
  """
  usual = Criteria(
    ks=next(filter(None, map(_cut_offs, runs)), Criteria.ks),
    propensity=tuple(request.propensity) or propensity_of(runs),
  )
  has_criteria = (
    dataclasses.replace(request, replicates=0, seed=0) != JudgeRequest()
  )
  judged = []
  for run, weights_L in zip(runs, shared_weights(runs)):
    run = dataclasses.replace(run, weights_L=weights_L)
    anew = has_criteria or not run.metrics
    judged.append((_judge_run if anew else _keep_metrics)(run, request, usual))
  return judged


def propensity_of(runs: Sequence[JudgedRun]) -> tuple[float, float]:
  """Returns A and B of the first config with propensities, or PROPENSITY."""
  return next(filter(None, map(_config_propensity, runs)), PROPENSITY)


def _config_propensity(run: JudgedRun) -> tuple[float, ...]:
  propensity = (run.config or {}).get('eval', {}).get('propensity', ())
  return tuple(map(float, propensity))


def shared_weights(runs: Sequence[JudgedRun]) -> list[np.ndarray | None]:
  """Gives all runs the label weights of the first run with a file of them."""
  # float64 [L] per run, by label id, or None for each. A label without a weight
  # is a DataError.
  weighted_run = next((run for run in runs if run.weights_L is not None), None)
  if weighted_run is None:
    return [None] * len(runs)
  weight_of = dict(
    zip(weighted_run.predictions.labels, weighted_run.weights_L, strict=True)
  )
  weights = []
  for run in runs:
    labels = run.predictions.labels
    if missing_ids := [id_ for id_ in labels if id_ not in weight_of]:
      raise DataError(
        f'--inv_prop has no weight for label {missing_ids[0]!r} of {run.path}'
      )
    weights.append(np.array([weight_of[id_] for id_ in labels]))
  return weights


def _judge_run(
  run: JudgedRun, request: JudgeRequest, usual: Criteria
) -> JudgedRun:
  criteria = _criteria(run, request, usual)
  metrics = judge(
    run.predictions, criteria, _threshold(run), run.shown_probabilities()
  )
  return dataclasses.replace(run, metrics=metrics, criteria=criteria)


def _criteria(
  run: JudgedRun, request: JudgeRequest, usual: Criteria
) -> Criteria:
  """Returns the requested criteria; others are the run's, else `usual`."""
  fallback = dataclasses.replace(usual, ks=_cut_offs(run) or usual.ks)
  return request.criteria(
    run.predictions, run.weights_L, run.labels, usual=fallback
  )


def _cut_offs(run: JudgedRun) -> tuple[int, ...]:
  names = [metric for _, _, metric, _ in every_metric(run.metrics)]
  ks = {int(k) for name in names for k in re.findall(r'@(\d+)', name)}
  return tuple(sorted(ks))


def _threshold(run: JudgedRun) -> float | None:
  for protocol in protocols(run.metrics):
    threshold = run.metrics[protocol].get(ALL, {}).get('threshold-tuned')
    if threshold is not None:
      return threshold
  return None


def _keep_metrics(
  run: JudgedRun, request: JudgeRequest, usual: Criteria
) -> JudgedRun:
  """Keeps the saved metrics that have the shared propensities."""
  kept_request = dataclasses.replace(
    request, protocols=protocols(run.metrics), slices=_slices(run)
  )
  criteria = _criteria(run, kept_request, usual)
  kept = dataclasses.replace(
    run, metrics=copy.deepcopy(dict(run.metrics)), criteria=criteria
  )
  same = _config_propensity(run) == tuple(criteria.propensity)
  if not same or criteria.weights_L is not None:
    _replace_weighed(kept)
  if request.replicates:
    judged = _judge_run(run, kept_request, usual).metrics[INTERVALS]
    intervals = kept.metrics.setdefault(INTERVALS, {})
    for protocol, name, metric, ends in every_metric(judged):
      if kept.metrics[protocol].get(name, {}).get(metric) is not None:
        slices = intervals.setdefault(protocol, {})
        slices.setdefault(name, {}).setdefault(metric, ends)
  return kept


def _slices(run: JudgedRun) -> list[str]:
  """Returns the frequency bins and label levels that can be judged again."""
  names = dict.fromkeys(name for _, name, *_ in every_metric(run.metrics))
  return [
    name
    for name in names
    if (name.startswith('bin:') and run.predictions.n_train)
    or (needs_parents(name) and run.predictions.hierarchy is not None)
  ]


def _replace_weighed(run: JudgedRun) -> None:
  """Replaces the metrics that the propensities of the criteria change."""
  weighed = dataclasses.replace(
    run.criteria, kinds=weighed_kinds(), replicates=0
  )
  metrics, judged = run.metrics, None
  for protocol, name, metric, saved in every_metric(metrics):
    if not is_weighed(metric):
      continue
    if judged is None:
      judged = judge(run.predictions, weighed)
    value = judged[protocol].get(name, {}).get(metric)
    if None not in (saved, value) and abs(saved - value) <= _SAME:
      continue
    metrics[protocol][name][metric] = value
    intervals = metrics.get(INTERVALS, {}).get(protocol, {})
    intervals.get(name, {}).pop(metric, None)
    if value is None:
      notes = metrics.setdefault(NOTES, {}).setdefault(name, {})
      notes.setdefault(metric, _OTHER_PROPENSITIES)
