"""Makes sure that the metrics of compared systems use the same propensities."""

from collections.abc import Mapping, Sequence
import copy
import dataclasses
import re
from typing import Any

import numpy as np

from xjax.core.errors import DataError
from xjax.data.schema import PROPENSITY
from xjax.judge.criteria import Criteria
from xjax.judge.judge import INTERVALS, NOTES, Metrics, judge
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
  - Otherwise a run keeps its saved metrics, with one exception. If there are
    several runs, and this run was judged with other propensities, its metrics
    that depend on propensities are computed again. Replicates add intervals to
    metrics that have none.

  A ConfigError says that files or options are missing; a DataError, that a
  label has no weight.
  """
  usual = Criteria(
    ks=next(filter(None, map(_cut_offs, runs)), Criteria.ks),
    propensity=tuple(request.propensity) or propensity_of(runs),
  )
  runs = [
    dataclasses.replace(run, weights_L=weights_L)
    for run, weights_L in zip(runs, shared_weights(runs))
  ]
  has_criteria = (
    dataclasses.replace(request, replicates=0, seed=0) != JudgeRequest()
  )
  judged = []
  for run in runs:
    if has_criteria or not run.metrics:
      judged.append(_judge_run(run, request, usual))
    else:
      judged.append(_keep_metrics(run, request, usual, alone=len(runs) == 1))
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
  run: JudgedRun, request: JudgeRequest, usual: Criteria, alone: bool
) -> JudgedRun:
  """Keeps the saved metrics of a run if they use the shared propensities."""
  # If not, those that depend on propensities are computed again, with a remark,
  # unless the run is `alone`.
  kept_request = dataclasses.replace(
    request, protocols=protocols(run.metrics), slices=_slices(run)
  )
  criteria = _criteria(run, kept_request, usual)
  same, remark, metrics = _same_propensities(run, criteria), '', run.metrics
  if not same and alone:
    remark = (
      f'{run.name} was judged with unknown propensities; choose them with '
      '--propensity or --inv_prop.'
    )
  elif not same:
    a_b = _config_propensity(run)
    by = 'A {:g}, B {:g}'.format(*a_b) if a_b else 'other propensities'
    remark = (
      f'{run.name} was judged with {by}; metrics that depend on propensities '
      'were computed again for this comparison.'
    )
    metrics = _replace_weighed(run, criteria)
  if request.replicates:
    judged = judge(
      run.predictions, criteria, _threshold(run), run.shown_probabilities()
    )
    metrics = _with_intervals(metrics, judged, not same and alone)
  remark = ' '.join(filter(None, (run.remark, remark)))
  return dataclasses.replace(
    run, metrics=metrics, criteria=criteria, remark=remark
  )


def _slices(run: JudgedRun) -> list[str]:
  """Returns the frequency bins and label levels that can be judged again."""
  names = dict.fromkeys(name for _, name, *_ in every_metric(run.metrics))
  return [
    name
    for name in names
    if (name.startswith('bin:') and run.predictions.n_train)
    or (needs_parents(name) and run.predictions.hierarchy is not None)
  ]


def _same_propensities(run: JudgedRun, criteria: Criteria) -> bool:
  """Returns whether a run's metrics use the propensities of `criteria`."""
  # Without a config, metrics are computed and compared with saved ones.
  if propensity := _config_propensity(run):
    return (
      propensity == tuple(criteria.propensity) and criteria.weights_L is None
    )
  if not any(
    is_weighed(metric) for _, _, metric, _ in every_metric(run.metrics)
  ):
    return True
  rejudged = _judge_weighed(run, criteria)
  for protocol, name, metric, value in every_metric(rejudged):
    saved = run.metrics[protocol].get(name, {}).get(metric, value)
    if saved is None or value is None:
      if saved is not value:
        return False
    elif abs(saved - value) > _SAME:
      return False
  return True


def _judge_weighed(run: JudgedRun, criteria: Criteria) -> Metrics:
  """Computes only the metrics that depend on propensities."""
  weighed = dataclasses.replace(criteria, kinds=weighed_kinds(), replicates=0)
  return judge(run.predictions, weighed)


def _replace_weighed(run: JudgedRun, criteria: Criteria) -> dict[str, Any]:
  """Returns a run's metrics; those that depend on propensities are new."""
  rejudged, metrics = (
    _judge_weighed(run, criteria),
    copy.deepcopy(dict(run.metrics)),
  )
  for protocol, name, metric, _ in every_metric(run.metrics):
    if is_weighed(metric):
      value = rejudged[protocol].get(name, {}).get(metric)
      metrics[protocol][name][metric] = value
      intervals = metrics.get(INTERVALS, {}).get(protocol, {})
      intervals.get(name, {}).pop(metric, None)
      if value is None:
        notes = metrics.setdefault(NOTES, {}).setdefault(name, {})
        notes.setdefault(metric, _OTHER_PROPENSITIES)
  return metrics


def _with_intervals(
  metrics: Mapping[str, Any], rejudged: Metrics, skip_weighed: bool
) -> dict[str, Any]:
  """Adds intervals to the metrics that have a value but no interval yet."""
  metrics = copy.deepcopy(dict(metrics))
  intervals = metrics.setdefault(INTERVALS, {})
  for protocol, name, metric, ends in every_metric(rejudged.get(INTERVALS, {})):
    has_value = metrics[protocol].get(name, {}).get(metric) is not None
    if has_value and not (skip_weighed and is_weighed(metric)):
      slices = intervals.setdefault(protocol, {})
      slices.setdefault(name, {}).setdefault(metric, ends)
  return metrics
