"""Holds the runs that a report compares, and groups runs of one system."""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import json
import math
import pathlib
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.data.schema import Label
from xjax.judge.calibration import Calibration, Method
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.predictions import Predictions
from xjax.run.judging import judged_probabilities
from xjax.train.run_record import RunRecord

SEED = 'seed'


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedRun:
  """Holds the predictions of one system for a split, and their metrics."""

  name: str
  path: pathlib.Path  # the workdir, folder or file that was given
  split: str  # '' for a file; else the name of a folder in eval/
  config: Mapping[str, Any] | None  # of config.json; only of a workdir
  metrics: Mapping[str, Any]  # of metrics.json; {} if not judged yet
  predictions: Predictions  # with gold
  labels: Sequence[Label] = ()  # with names and parents; only of a workdir
  concepts: Sequence[Label] = ()  # others of the taxonomy; of a workdir
  history: Sequence[Mapping[str, Any]] = ()  # of metrics.jsonl
  calibration: Calibration | None = None  # of the scores
  # Inverse propensities from a file, by label id; None means the formula.
  weight_of: Mapping[str, float] | None = None
  criteria: Criteria = Criteria()  # as far as known; set by judge_runs
  record: RunRecord | None = None  # what the run has cost, if recorded
  file: pathlib.Path | None = None  # from which the predictions were read

  def shown_probabilities(self) -> np.ndarray | None:
    """Returns the probabilities by which the run's calibration is judged.

    They are [N, K], for the lists of the slice `all`. On dev, they are from
    calibrations that did not see the documents. None stands for margins without
    a calibration.
    """
    calibration = self.calibration
    method = calibration.method if calibration else Method.NONE
    return judged_probabilities(
      self.predictions, self.split, method, calibration
    )

  @property
  def names(self) -> dict[str, str]:
    described = itertools.chain(self.labels, self.concepts)
    return {x.id: x.name for x in described if x.name != x.id}


@dataclasses.dataclass(frozen=True, eq=False)
class SystemRuns:
  """Holds the runs of one system; the runs differ only in their seeds."""

  name: str
  runs: tuple[JudgedRun, ...]

  @property
  def first(self) -> JudgedRun:
    """Returns the first run, for uses where a mean over runs makes no sense."""
    return self.runs[0]

  @property
  def seeds(self) -> str:
    """Returns a text such as 'mean of 3 seeds'; '' for one run."""
    n = len(self.runs)
    return f'mean of {n} seeds' if n > 1 else ''


@dataclasses.dataclass(frozen=True)
class Estimate:
  mean: float | int | None  # None if a run has no value
  error: float | None  # ddof 1; None for fewer than 2 runs
  n: int

  @property
  def deviation(self) -> float | None:
    """Returns the standard deviation over the runs (ddof 0)."""
    return None if self.error is None else self.error * math.sqrt(self.n - 1)


def group_by_seed(runs: Sequence[JudgedRun]) -> list[SystemRuns]:
  """Groups runs of the same split if their configs differ only in the seed.

  A run without a config is a group by itself. If two runs have the same config
  and the same seed, the second run is a group by itself. Groups are in the
  order of their first runs.
  """
  groups: dict[str, list[JudgedRun]] = {}
  for number, run in enumerate(runs):
    key = f'{number}'
    if run.config is not None:
      rest = {k: v for k, v in run.config.items() if k != SEED}
      key = json.dumps([rest, run.split], sort_keys=True)
      seeds = [other.config[SEED] for other in groups.get(key, ())]
      key = key if run.config[SEED] not in seeds else f'{number}'
    groups.setdefault(key, []).append(run)
  return [SystemRuns(_group_name(g), tuple(g)) for g in groups.values()]


def _group_name(runs: Sequence[JudgedRun]) -> str:
  names = list(dict.fromkeys(run.name for run in runs))
  shown = names if len(names) <= 3 else [names[0], f'{len(names) - 1} more']
  return ' + '.join(shown)


def estimate(values: Sequence[float | int | None]) -> Estimate:
  """Returns the mean and the standard error s / sqrt(n), with s of ddof 1."""
  n = len(values)
  if not n or None in values:
    return Estimate(None, None, n)
  if len(set(values)) == 1:  # no rounding error, and counts stay integers
    return Estimate(values[0], 0.0 if n > 1 else None, n)
  return Estimate(
    float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(n), n
  )


def protocols(metrics: Mapping[str, Any]) -> list[str]:
  """Returns the protocols of a metrics.json, in the order of the file."""
  return [name for name in metrics if name in PROTOCOLS]


def group_metrics(
  group: SystemRuns, protocol: str
) -> dict[str, dict[str, Estimate]]:
  """Returns a group's slice -> metric -> estimate, in the first run's order."""
  tables = [run.metrics.get(protocol, {}) for run in group.runs]
  return {
    name: {
      metric: estimate([t.get(name, {}).get(metric) for t in tables])
      for metric in values
    }
    for name, values in tables[0].items()
  }


def check_same_documents(runs: Sequence[JudgedRun]) -> None:
  """Raises DataError if two runs differ in their documents or their gold."""
  # The order may differ, and labels that are never gold are ignored.
  first = runs[0]
  others = [run for run in runs[1:] if not _same(first, run)]
  first_gold = _gold_of(first.predictions) if others else {}
  for run in others:
    gold_of = _gold_of(run.predictions)
    who = f'{first.name} ({first.path}) and {run.name} ({run.path})'
    if unshared := sorted(first_gold.keys() ^ gold_of.keys()):
      raise DataError(
        f'{who} have different documents: only one of the two systems has '
        f'{unshared[0]!r} (number of such documents: {len(unshared)}); choose '
        'the split of workdirs with --split, and give files gold labels with '
        'document ids with --gold'
      )
    differing = next(
      (d for d, gold in gold_of.items() if gold != first_gold[d]), None
    )
    if differing is not None:
      raise DataError(
        f'{who} have different gold labels for {differing!r}; if their order '
        'differs, give gold labels with document ids'
      )


def _same(first: JudgedRun, second: JudgedRun) -> bool:
  a, b = first.predictions, second.predictions
  return (
    np.array_equal(a.gold.indptr, b.gold.indptr)
    and np.array_equal(a.gold.values, b.gold.values)
    and tuple(a.doc_ids) == tuple(b.doc_ids)
    and tuple(a.labels) == tuple(b.labels)
  )


def _gold_of(predictions: Predictions) -> dict[str, frozenset[str]]:
  labels, gold = predictions.labels, predictions.gold
  return {
    id_: frozenset(labels[i] for i in gold[row].tolist())
    for row, id_ in enumerate(predictions.doc_ids)
  }


def check_names(groups: Sequence[SystemRuns]) -> None:
  """Raises ConfigError if two systems have the same name."""
  seen: dict[str, SystemRuns] = {}
  for group in groups:
    if group.name in seen:
      both = f'{seen[group.name].first.path} and {group.first.path}'
      raise ConfigError(
        f'two systems are called {group.name!r}: {both}; give them different '
        'names with --names=A,B,...'
      )
    seen[group.name] = group
