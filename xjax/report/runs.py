"""What is compared: runs, those of one config together, and their numbers."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import math
import pathlib
from typing import Any

import numpy as np

from xjax.config.json import from_json, to_json
from xjax.core.errors import ConfigError, DataError
from xjax.data.schema import Label
from xjax.judge.calibration import Calibration
from xjax.judge.criteria import Criteria
from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.predictions import Predictions

SEED = 'seed'


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedRun:
  """One system's predictions of a split, judged.

  Attributes:
    name: what it is called.
    path: the workdir, folder or file it was read from.
    split: of a workdir; '' where a file does not tell.
    config: the JSON of config.json; None of a file.
    metrics: as metrics.json; empty: it was not judged.
    predictions: with gold.
    labels: what is known of labels; of a workdir alone.
    history: records of metrics.jsonl.
    calibration: of these scores; None: there is none.
    weights_L: float64 [L], inverse propensities from a file; None: by formula.
    criteria: what the metrics are judged by, as far as is known.
    remark: what a reader should know of how it was judged; '' for nothing.
  """

  name: str
  path: pathlib.Path
  split: str
  config: Mapping[str, Any] | None
  metrics: Mapping[str, Any]
  predictions: Predictions
  labels: Sequence[Label] = ()
  history: Sequence[Mapping[str, Any]] = ()
  calibration: Calibration | None = None
  weights_L: np.ndarray | None = None
  criteria: Criteria = Criteria()
  remark: str = ''

  @property
  def names(self) -> dict[str, str]:
    """Label id -> name, of the labels that have one."""
    return {x.id: x.name for x in self.labels if x.name != x.id}


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
  """Runs that differ in their seeds alone: one system."""

  name: str
  runs: tuple[JudgedRun, ...]

  @property
  def first(self) -> JudgedRun:
    """The run that stands for all where a mean would say nothing."""
    return self.runs[0]

  @property
  def seeds(self) -> str:
    """'mean of 3 seeds'; '' of one run."""
    n = len(self.runs)
    return f'mean of {n} seeds' if n > 1 else ''


@dataclasses.dataclass(frozen=True)
class Estimate:
  """What several runs say of one number.

  Attributes:
    mean: over the runs; None where one of them has none.
    error: standard error of the mean (ddof 1); None of fewer than 2 runs.
    n: runs.
  """

  mean: float | int | None
  error: float | None
  n: int


def group_by_seed(runs: Sequence[JudgedRun]) -> list[Group]:
  """Runs whose configs differ in nothing but the seed, together.

  A run without a config is alone, and so is a second one of the same seed. The
  groups are in the order of their first runs. A group is named by its runs.
  """
  groups: dict[str, list[JudgedRun]] = {}
  for number, run in enumerate(runs):
    key = f'{number}'
    if run.config is not None:
      rest = {k: v for k, v in _today(run.config).items() if k != SEED}
      key = json.dumps([rest, run.split], sort_keys=True)
      seeds = [other.config[SEED] for other in groups.get(key, ())]
      key = key if run.config[SEED] not in seeds else f'{number}'
    groups.setdefault(key, []).append(run)
  return [Group(_group_name(g), tuple(g)) for g in groups.values()]


def _today(config: dict[str, Any]) -> dict[str, Any]:
  """A config.json as it is written now; as it is if it cannot be read.

  That an earlier xjax wrote one of two runs makes no other system of it.
  """
  try:
    return to_json(from_json(config))
  except ConfigError:
    return config


def _group_name(runs: Sequence[JudgedRun]) -> str:
  names = list(dict.fromkeys(run.name for run in runs))
  shown = names if len(names) <= 3 else [names[0], f'{len(names) - 1} more']
  return ' + '.join(shown)


def estimate(values: Sequence[float | int | None]) -> Estimate:
  """Mean and standard error s / sqrt(n), s with n - 1 below the line."""
  n = len(values)
  if not n or None in values:
    return Estimate(None, None, n)
  if len(set(values)) == 1:  # as it stands, and counts stay whole
    return Estimate(values[0], 0.0 if n > 1 else None, n)
  return Estimate(
    float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(n), n
  )


def protocols(metrics: Mapping[str, Any]) -> list[str]:
  """Those of a metrics.json, in its order; its other keys are left out."""
  return [name for name in metrics if name in PROTOCOLS]


def every_metric(metrics: Mapping[str, Any]) -> list[tuple[str, str, str, Any]]:
  """Protocol, slice, name and value of every metric."""
  return [
    (protocol, name, metric, value)
    for protocol in protocols(metrics)
    for name, values in metrics[protocol].items()
    for metric, value in values.items()
  ]


def common_protocol(runs: Sequence[JudgedRun]) -> str:
  """Our own where all were judged by it, else the first that all were.

  Raises:
    DataError: there is none.
  """
  first, *others = (protocols(run.metrics) for run in runs)
  common = [name for name in first if all(name in o for o in others)]
  if not common:
    raise DataError(
      'the systems were judged by different protocols: '
      + '; '.join(f'{r.name}: {", ".join(protocols(r.metrics))}' for r in runs)
      + '; --protocol=NAME judges all by one'
    )
  return PROTOCOL if PROTOCOL in common else common[0]


def group_metrics(
  group: Group, protocol: str
) -> dict[str, dict[str, Estimate]]:
  """Slice -> metric -> what the runs say of it, in the order of the first."""
  tables = [run.metrics.get(protocol, {}) for run in group.runs]
  return {
    name: {
      metric: estimate([t.get(name, {}).get(metric) for t in tables])
      for metric in values
    }
    for name, values in tables[0].items()
  }


def check_same_documents(runs: Sequence[JudgedRun]) -> None:
  """Refuses runs of different documents, or of different gold for them.

  Order does not matter, nor do the labels that are nobody's gold.

  Raises:
    DataError: naming two runs and a document in which they differ.
  """
  first = runs[0]
  others = [run for run in runs[1:] if not _same(first, run)]
  known = _gold_of(first.predictions) if others else {}
  for run in others:
    golden = _gold_of(run.predictions)
    who = f'{first.name} ({first.path}) and {run.name} ({run.path})'
    if apart := sorted(known.keys() ^ golden.keys()):
      raise DataError(
        f'{who} are of different documents: {len(apart)} are in one alone, '
        f'as {apart[0]!r}; --split chooses what workdirs are read of'
      )
    wrong = next((d for d, gold in golden.items() if gold != known[d]), None)
    if wrong is not None:
      raise DataError(f'{who} have different gold labels for {wrong!r}')


def _same(one: JudgedRun, other: JudgedRun) -> bool:
  """Whether they were judged on the same arrays: quick, and mostly true."""
  a, b = one.predictions, other.predictions
  return (
    np.array_equal(a.gold.indptr, b.gold.indptr)
    and np.array_equal(a.gold.values, b.gold.values)
    and tuple(a.doc_ids) == tuple(b.doc_ids)
    and tuple(a.labels) == tuple(b.labels)
  )


def _gold_of(predictions: Predictions) -> dict[str, frozenset[str]]:
  label: Callable[[int], str] = predictions.labels.__getitem__
  gold = predictions.gold
  return {
    id_: frozenset(map(label, gold[row].tolist()))
    for row, id_ in enumerate(predictions.doc_ids)
  }


def check_names(groups: Sequence[Group]) -> None:
  """Refuses two systems of one name.

  Raises:
    ConfigError: naming the paths of both.
  """
  seen: dict[str, Group] = {}
  for group in groups:
    if group.name in seen:
      both = f'{seen[group.name].first.path} and {group.first.path}'
      raise ConfigError(
        f'two systems are called {group.name!r}: {both}; --names=A,B,... '
        'gives each its own'
      )
    seen[group.name] = group
