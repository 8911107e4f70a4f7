"""Judges runs by the same criteria, picks one per system, and compares them."""

from collections.abc import Mapping, Sequence
import dataclasses

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import PROPENSITY
from xjax.judge.comparison import Comparison, best_systems, compare
from xjax.judge.comparison_request import ComparisonRequest
from xjax.judge.criteria import Criteria
from xjax.judge.files.evaluation import read_value
from xjax.judge.files.judge_files import DEPTH, JudgeFiles
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.metrics.metric import cut_offs, metric_kind
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.judge.request import JudgeRequest
from xjax.models.contract import DEV
from xjax.report.runs import (
  Estimate,
  JudgedRun,
  SystemRuns,
  check_names,
  check_same_documents,
  estimate,
  group_by_seed,
  protocols,
)
from xjax.report.sources import OWN, read_runs
from xjax.train.workdir import Workdir


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


@dataclasses.dataclass(frozen=True)
class SeedEstimate:
  slice: str
  metric: str
  system: str
  estimate: Estimate


@dataclasses.dataclass(frozen=True, eq=False)
class RunComparison:
  groups: Sequence[SystemRuns]  # the first system is the baseline
  tested: Mapping[str, JudgedRun]  # system -> the run that was tested
  plan: ComparisonRequest
  comparison: Comparison
  seeds: Sequence[SeedEstimate]  # of systems with several runs


def compare_runs(
  arguments: Sequence[str],
  plan: ComparisonRequest,
  split: str = '',
  names: Sequence[str] = (),
  files: JudgeFiles = OWN,
) -> RunComparison:
  """Reads systems, and compares every other system with the first system.

  Runs that differ only in their seeds are one system. Tests and intervals use
  its run that is best on dev, as in Chalkidis et al. 2019, section 5. By
  default, the propensity is that of the first config, and `split` the first
  that all workdirs have. A DataError says that the systems differ in documents,
  labels, gold or training counts, or that a file has faults.
  """
  plan.request()  # unknown names raise an error before any file is read
  runs = read_runs(arguments, split, names, files, max((DEPTH, *plan.ks)))
  check_same_documents(runs)
  groups = group_by_seed(runs)
  if len(groups) < 2:
    raise ConfigError(
      f'there is only one system, {groups[0].name!r}, so there is nothing to '
      'compare; runs that differ only in their seeds are one system; give two '
      'or more systems'
    )
  check_names(groups)
  check_same_labels(runs)
  plan = dataclasses.replace(
    plan, propensity=plan.propensity or propensity_of(runs)
  )
  tested = {group.name: best_on_dev(group) for group in groups}
  seeds = [row for group in groups for row in seed_rows(group, plan)]
  return RunComparison(
    groups, tested, plan, _compare(runs, tested, plan), seeds
  )


def _compare(
  runs: Sequence[JudgedRun],
  tested: Mapping[str, JudgedRun],
  plan: ComparisonRequest,
) -> Comparison:
  first = runs[0].predictions
  systems = {
    name: reorder_documents(run.predictions, first.doc_ids)
    for name, run in tested.items()
  }
  return compare(systems, criteria_of(runs, plan), plan)


def best_by_tests(
  groups: Sequence[SystemRuns], metrics: Sequence[str], protocol: str
) -> dict[str, dict[str, str]]:
  """Finds the systems that are significantly better than all others."""
  # Of each group, the run that is best on dev is tested. {} if nothing can be
  # tested (see why_not_tested) or if there is one system.
  runs = [run for group in groups for run in group.runs]
  known = [m for m in metrics if metric_kind(m) in XJAX.simple_kinds]
  if len(groups) < 2 or not known or why_not_tested(groups, protocol):
    return {}
  criteria = dataclasses.replace(
    runs[0].criteria,
    ks=ComparisonRequest(known).ks or (1,),
    kinds=sorted(map(metric_kind, known)),
    protocols=(XJAX,),
    replicates=0,
    hierarchy=first_hierarchy(runs),
  )
  doc_ids = runs[0].predictions.doc_ids
  systems = {
    group.name: reorder_documents(best_on_dev(group).predictions, doc_ids)
    for group in groups
  }
  return best_systems(systems, criteria, known)


def why_not_tested(groups: Sequence[SystemRuns], protocol: str) -> str:
  """Returns why best_by_tests cannot test the systems; '' if it can."""
  if protocol != PROTOCOL:
    return f'only values under the protocol {PROTOCOL} can be tested'
  try:
    check_same_labels([run for group in groups for run in group.runs])
  except DataError as error:
    return str(error)
  return ''


def criteria_of(runs: Sequence[JudgedRun], plan: ComparisonRequest) -> Criteria:
  """Returns the criteria by which all runs, of the same labels, are judged."""
  weights_L, *_ = shared_weights(runs)
  described = next((run.labels for run in runs if run.labels), ())
  criteria = plan.request().criteria(runs[0].predictions, weights_L, described)
  if criteria.hierarchy is not None:
    return criteria
  if plan.uses_parents and (others := other_hierarchies(runs)):
    logging.warning(
      'the labels of %s have other parents than those of the first system, '
      'whose parents are used for all systems; --labels=FILE chooses the '
      'parents for all',
      ', '.join(others),
    )
  return dataclasses.replace(criteria, hierarchy=first_hierarchy(runs))


def first_hierarchy(runs: Sequence[JudgedRun]) -> Hierarchy | None:
  """Returns the hierarchy of the first run that has one; old runs have none."""
  return next(filter(None, map(_own_hierarchy, runs)), None)


def other_hierarchies(runs: Sequence[JudgedRun]) -> list[str]:
  """Returns the names of runs whose labels have other ancestors."""
  # They are compared with the first hierarchy. Runs without one use it.
  first = first_hierarchy(runs)
  if first is None:
    return []
  return [
    run.name
    for run in runs
    if (own := _own_hierarchy(run))
    and own is not first
    and not first.same_above(own, run.predictions.labels)
  ]


def _own_hierarchy(run: JudgedRun) -> Hierarchy | None:
  return run.criteria.hierarchy or run.predictions.hierarchy


def check_same_labels(runs: Sequence[JudgedRun]) -> None:
  """Raises DataError if two runs differ in their labels or training counts."""
  first, *others = runs
  ours = first.predictions
  for run in others:
    theirs = run.predictions
    who = f'{first.name} ({first.path}) and {run.name} ({run.path})'
    if tuple(ours.labels) != tuple(theirs.labels):
      raise DataError(
        f'{who} do not rank the same labels in the same order: '
        f'{len(ours.labels)} and {len(theirs.labels)} labels; give the same '
        '--gold and --train_labels for all files of other tools'
      )
    same = np.array_equal(ours.train_counts, theirs.train_counts)
    if ours.n_train != theirs.n_train or not same:
      raise DataError(
        f'{who} do not agree on the training documents of each label: '
        f'{ours.n_train} and {theirs.n_train} documents'
      )
    if not np.array_equal(ours.held_out, theirs.held_out):
      raise DataError(f'{who} hold out different labels')


def best_on_dev(group: SystemRuns) -> JudgedRun:
  """Returns the run with the best dev value; the first if one has no value."""
  values = [_dev_value(run) for run in group.runs]
  if None in values:
    return group.first
  return group.runs[int(np.argmax(values))]


def _dev_value(run: JudgedRun) -> float | None:
  if run.config is None:
    return None
  best_metric = run.config.get('train', {}).get('best_metric', '')
  home = Workdir.at(run.path)
  if not home.judged(DEV).is_file():
    return None
  remedy = 'judge again with xjax evaluate --split=dev'
  return read_value(home.evaluation(DEV), best_metric, remedy)


def reorder_documents(
  predictions: Predictions, doc_ids: Sequence[str]
) -> Predictions:
  """Returns the same predictions with the documents in the given order."""
  if tuple(predictions.doc_ids) == tuple(doc_ids):
    return predictions
  row_of = {id_: row for row, id_ in enumerate(predictions.doc_ids)}
  rows = np.array([row_of[id_] for id_ in doc_ids], np.int64)
  ordered = predictions.of_documents(rows)
  return dataclasses.replace(ordered, recalls=predictions.recalls)


def seed_rows(group: SystemRuns, plan: ComparisonRequest) -> list[SeedEstimate]:
  """Returns means and standard errors over a system's runs; [] for one run."""
  if len(group.runs) < 2:
    return []
  criteria = criteria_of(group.runs, plan)
  judged = [judge(run.predictions, criteria)[PROTOCOL] for run in group.runs]
  return [
    SeedEstimate(
      slice_name,
      metric,
      group.name,
      estimate([metrics[slice_name][metric] for metrics in judged]),
    )
    for slice_name, values in judged[0].items()
    if plan.has(slice_name)
    for metric in plan.metrics
    if metric in values
  ]
