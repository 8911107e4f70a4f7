"""Metrics of systems side by side: as they were judged, or anew, by one."""

from collections.abc import Mapping, Sequence
import copy
import dataclasses
from itertools import starmap
import re
from typing import Any

import numpy as np

from xjax.core.errors import DataError
from xjax.judge.criteria import PROPENSITY, Criteria
from xjax.judge.judge import INTERVALS, NOTES, Metrics, judge
from xjax.judge.metrics.contract import is_weighed, weighed_kinds
from xjax.judge.metrics.slices import ALL
from xjax.judge.request import JudgeRequest
from xjax.judge.slice_names import needs_labels
from xjax.report.runs import JudgedRun, every_metric, protocols

_SAME = 1e-9
_OTHERS = 'computed with other propensities than those of the other systems'


def judge_runs(
  runs: Sequence[JudgedRun], asked: JudgeRequest
) -> list[JudgedRun]:
  """Gives every run metrics, all with the same propensities.

  What was judged stays as it was, unless something in particular is asked for.
  Of runs judged with other propensities than the first that tells, metrics that
  depend on these are computed anew.

  Args:
    runs: of the same documents.
    asked: what to judge by; JudgeRequest(): nothing in particular. Replicates
      alone add intervals where there are none. Where it has no cut-offs those
      are the run's, of one that was not judged the first's.

  Raises:
    ConfigError: what is asked for takes more than is given.
    DataError: a label without a weight.
  """
  usual = Criteria(
    ks=next(filter(None, map(_cut_offs, runs)), Criteria.ks),
    propensity=tuple(asked.propensity) or propensity_of(runs),
  )
  runs = [
    dataclasses.replace(run, weights_L=weights_L)
    for run, weights_L in zip(runs, shared_weights(runs))
  ]
  anew = dataclasses.replace(asked, replicates=0, seed=0) != JudgeRequest()
  found = []
  for run in runs:
    if anew or not run.metrics:
      found.append(_judged(run, asked, usual))
    else:
      found.append(_kept(run, asked, usual, alone=len(runs) == 1))
  return found


def propensity_of(runs: Sequence[JudgedRun]) -> tuple[float, float]:
  """A and B of the first run that tells; else PROPENSITY."""
  return next(filter(None, map(_told, runs)), PROPENSITY)


def _told(run: JudgedRun) -> tuple[float, ...]:
  found = (run.config or {}).get('eval', {}).get('propensity', ())
  return tuple(map(float, found))


def shared_weights(runs: Sequence[JudgedRun]) -> list[np.ndarray | None]:
  """Weights of the labels of each run, where a file gives those of one.

  Raises:
    DataError: a label without a weight.
  """
  given = next((run for run in runs if run.weights_L is not None), None)
  if given is None:
    return [None] * len(runs)
  known = dict(zip(given.predictions.labels, given.weights_L, strict=True))
  found = []
  for run in runs:
    labels = run.predictions.labels
    if lacking := [id_ for id_ in labels if id_ not in known]:
      raise DataError(
        f'--inv_prop: no weight of the label {lacking[0]!r} of {run.path}'
      )
    found.append(np.array([known[id_] for id_ in labels]))
  return found


def _judged(run: JudgedRun, asked: JudgeRequest, usual: Criteria) -> JudgedRun:
  criteria = _criteria(run, asked, usual)
  metrics = judge(run.predictions, criteria, _threshold(run))
  return dataclasses.replace(run, metrics=metrics, criteria=criteria)


def _criteria(run: JudgedRun, asked: JudgeRequest, usual: Criteria) -> Criteria:
  """What is asked for, else what the run was judged by, else the usual."""
  own = dataclasses.replace(usual, ks=_cut_offs(run) or usual.ks)
  return asked.criteria(run.predictions, run.weights_L, run.labels, usual=own)


def _cut_offs(run: JudgedRun) -> tuple[int, ...]:
  names = [metric for _, _, metric, _ in every_metric(run.metrics)]
  found = {int(k) for name in names for k in re.findall(r'@(\d+)', name)}
  return tuple(sorted(found))


def _threshold(run: JudgedRun) -> float | None:
  """That of the tuned metrics, where the run has them."""
  for protocol in protocols(run.metrics):
    found = run.metrics[protocol].get(ALL, {}).get('threshold-tuned')
    if found is not None:
      return found
  return None


def _kept(
  run: JudgedRun, asked: JudgeRequest, usual: Criteria, alone: bool
) -> JudgedRun:
  """As it was judged, but for what other propensities change."""
  again = dataclasses.replace(
    asked, protocols=protocols(run.metrics), slices=_slices(run)
  )
  criteria = _criteria(run, again, usual)
  same = _same_propensities(run, criteria)
  if same or alone:
    remark = '' if same else _unknown(run)
    metrics = run.metrics
  else:
    remark, metrics = _remark(run), _replaced(run, criteria)
  if asked.replicates:
    found = judge(run.predictions, criteria, _threshold(run))
    metrics = _with_intervals(metrics, found, not same and alone)
  remark = ' '.join(filter(None, (run.remark, remark)))
  return dataclasses.replace(
    run, metrics=metrics, criteria=criteria, remark=remark
  )


def _slices(run: JudgedRun) -> list[str]:
  """The further slices that can be told from their names."""
  described = any(label.parents for label in run.labels)
  names = dict.fromkeys(name for _, name, *_ in every_metric(run.metrics))
  return [
    name
    for name in names
    if (name.startswith('bin:') and run.predictions.n_train)
    or (needs_labels(name) and described)
  ]


def _same_propensities(run: JudgedRun, criteria: Criteria) -> bool:
  """Whether its metrics are by these weights, as its config says or they do."""
  if told := _told(run):
    return told == tuple(criteria.propensity) and criteria.weights_L is None
  if not any(
    is_weighed(metric) for _, _, metric, _ in every_metric(run.metrics)
  ):
    return True
  found = _weighed(run, criteria)
  pairs = (
    (run.metrics[protocol].get(name, {}).get(metric, value), value)
    for protocol, name, metric, value in every_metric(found)
  )
  return all(starmap(_alike, pairs))


def _alike(one: float | None, other: float | None) -> bool:
  if one is None or other is None:
    return one is other
  return abs(one - other) <= _SAME


def _weighed(run: JudgedRun, criteria: Criteria) -> Metrics:
  """Those metrics alone that depend on propensities."""
  only = dataclasses.replace(criteria, kinds=weighed_kinds(), replicates=0)
  return judge(run.predictions, only)


def _remark(run: JudgedRun) -> str:
  told = _told(run)
  by = f'A {told[0]:g}, B {told[1]:g}' if told else 'other propensities'
  return f'{run.name} was judged with {by}; what depends on them is anew here.'


def _unknown(run: JudgedRun) -> str:
  return (
    f'{run.name} was judged with propensities that are not known here; '
    '--propensity or --inv_prop says which to judge with.'
  )


def _replaced(run: JudgedRun, criteria: Criteria) -> dict[str, Any]:
  """The metrics, those that depend on propensities by these criteria."""
  found, metrics = _weighed(run, criteria), copy.deepcopy(dict(run.metrics))
  for protocol, name, metric, _ in every_metric(run.metrics):
    if is_weighed(metric):
      value = found[protocol].get(name, {}).get(metric)
      metrics[protocol][name][metric] = value
      sure = metrics.get(INTERVALS, {}).get(protocol, {})
      sure.get(name, {}).pop(metric, None)
      if value is None:
        notes = metrics.setdefault(NOTES, {}).setdefault(name, {})
        notes.setdefault(metric, _OTHERS)
  return metrics


def _with_intervals(
  metrics: Mapping[str, Any], found: Metrics, but_weighed: bool
) -> dict[str, Any]:
  """With the intervals found, of metrics that have a value and none yet."""
  metrics = copy.deepcopy(dict(metrics))
  sure = metrics.setdefault(INTERVALS, {})
  for protocol, name, metric, ends in every_metric(found.get(INTERVALS, {})):
    known = metrics[protocol].get(name, {}).get(metric) is not None
    if known and not (but_weighed and is_weighed(metric)):
      slices = sure.setdefault(protocol, {})
      slices.setdefault(name, {}).setdefault(metric, ends)
  return metrics
