"""The systems of a comparison: which run stands for each, and on what."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Ragged
from xjax.judge.comparison import Comparison, compare
from xjax.judge.comparison_plan import ComparisonPlan
from xjax.judge.criteria import Criteria
from xjax.judge.files.judged import DEPTH, JudgeFiles
from xjax.judge.judge import PROTOCOL, judge
from xjax.judge.predict import METRICS
from xjax.judge.predictions import Lists, Predictions
from xjax.report.rejudging import propensity_of, shared_weights
from xjax.report.runs import (
  Estimate,
  Group,
  JudgedRun,
  check_names,
  check_same_documents,
  estimate,
  group_by_seed,
)
from xjax.report.sources import OWN, read_runs
from xjax.run.judging import DEV
from xjax.train.workdir import Workdir, read_json


@dataclasses.dataclass(frozen=True)
class Seeds:
  """What the runs of a system that differ in their seeds say of a metric."""

  slice: str
  metric: str
  system: str
  estimate: Estimate


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
  """A comparison, and of what.

  Attributes:
    groups: systems, the baseline first.
    tested: name of each -> the run that its tests are of.
    plan: what was compared.
    comparison: what came out.
    seeds: of the systems with several runs.
  """

  groups: Sequence[Group]
  tested: Mapping[str, JudgedRun]
  plan: ComparisonPlan
  comparison: Comparison
  seeds: Sequence[Seeds]


def compare_runs(
  arguments: Sequence[str],
  plan: ComparisonPlan,
  split: str = '',
  names: Sequence[str] = (),
  files: JudgeFiles = OWN,
) -> Compared:
  """Reads systems and compares them with the first.

  Runs that differ in their seeds alone are one system. Its tests and intervals
  are of the run that is best on dev, as Chalkidis et al. 2019, section 5, do
  it.

  Args:
    arguments: workdirs, folders of an evaluation, files of predictions.
    plan: what to compare; without a propensity: that of the first config.
    split: of the workdirs; '': as sources.read_runs.
    names: as sources.read_runs.
    files: as sources.read_runs.

  Raises:
    ConfigError: fewer than two systems, a name twice, an unknown metric.
    DataError: other documents, labels, gold or training counts; a file with
      faults.
  """
  plan.request()  # refuses what is unknown before anything is read
  runs = read_runs(arguments, split, names, files, max((DEPTH, *plan.ks)))
  check_same_documents(runs)
  groups = group_by_seed(runs)
  if len(groups) < 2:
    raise ConfigError(
      f'nothing to compare {groups[0].name!r} with: name two systems or more; '
      'runs that differ in their seeds alone are one'
    )
  check_names(groups)
  check_same_labels(runs)
  plan = dataclasses.replace(
    plan, propensity=plan.propensity or propensity_of(runs)
  )
  tested = {group.name: best_on_dev(group) for group in groups}
  seeds = [row for group in groups for row in seed_rows(group, plan)]
  return Compared(groups, tested, plan, _compared(runs, tested, plan), seeds)


def _compared(
  runs: Sequence[JudgedRun],
  tested: Mapping[str, JudgedRun],
  plan: ComparisonPlan,
) -> Comparison:
  first = runs[0].predictions
  systems = {
    name: in_order(run.predictions, first.doc_ids)
    for name, run in tested.items()
  }
  return compare(systems, criteria_of(runs, plan), plan)


def criteria_of(runs: Sequence[JudgedRun], plan: ComparisonPlan) -> Criteria:
  """What all are judged by; their labels are the same."""
  weights_L, *_ = shared_weights(runs)
  described = next((run.labels for run in runs if run.labels), ())
  return plan.request().criteria(runs[0].predictions, weights_L, described)


def check_same_labels(runs: Sequence[JudgedRun]) -> None:
  """Refuses runs of other labels, or trained on other documents.

  Raises:
    DataError: naming two runs and what differs.
  """
  first, *others = runs
  ours = first.predictions
  for run in others:
    theirs = run.predictions
    who = f'{first.name} ({first.path}) and {run.name} ({run.path})'
    if tuple(ours.labels) != tuple(theirs.labels):
      raise DataError(
        f'{who} do not rank the same labels in the same order: '
        f'{len(ours.labels)} and {len(theirs.labels)} labels; files of other '
        'tools get the same ones with the same --gold and --train_labels'
      )
    same = np.array_equal(ours.train_counts, theirs.train_counts)
    if ours.n_train != theirs.n_train or not same:
      raise DataError(
        f'{who} do not agree on the training documents of each label: '
        f'{ours.n_train} and {theirs.n_train} documents'
      )
    if not np.array_equal(ours.held_out, theirs.held_out):
      raise DataError(f'{who} hold out different labels')


def best_on_dev(group: Group) -> JudgedRun:
  """The run that is best on dev by what its config chooses checkpoints by.

  Where that is not known of all runs it is the first; of equal ones as well.
  """
  values = [_on_dev(run) for run in group.runs]
  if None in values:
    return group.first
  return group.runs[int(np.argmax(values))]


def _on_dev(run: JudgedRun) -> float | None:
  if run.config is None:
    return None
  wanted = run.config.get('train', {}).get('best_metric', '')
  path = Workdir.at(run.path).evaluation(DEV) / METRICS
  if not path.is_file():
    return None
  slice_name, _, metric = wanted.partition('/')
  return read_json(path).get(PROTOCOL, {}).get(slice_name, {}).get(metric)


def in_order(predictions: Predictions, doc_ids: Sequence[str]) -> Predictions:
  """The same predictions with the documents in this order."""
  if tuple(predictions.doc_ids) == tuple(doc_ids):
    return predictions
  row_of = {id_: row for row, id_ in enumerate(predictions.doc_ids)}
  rows = np.array([row_of[id_] for id_ in doc_ids], np.int64)
  lists = {
    name: Lists(each.ids[rows], each.scores[rows])
    for name, each in predictions.lists.items()
  }
  gold = Ragged.of([predictions.gold[row] for row in rows])
  return dataclasses.replace(
    predictions, doc_ids=tuple(doc_ids), lists=lists, gold=gold
  )


def seed_rows(group: Group, plan: ComparisonPlan) -> list[Seeds]:
  """Mean and standard error of each metric; none of a single run."""
  if len(group.runs) < 2:
    return []
  criteria = criteria_of(group.runs, plan)
  found = [judge(run.predictions, criteria)[PROTOCOL] for run in group.runs]
  return [
    Seeds(
      slice_name,
      metric,
      group.name,
      estimate([metrics[slice_name][metric] for metrics in found]),
    )
    for slice_name, values in found[0].items()
    if plan.has(slice_name)
    for metric in plan.metrics
    if metric in values
  ]
