"""Defines the criteria for judging predictions."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import re

import numpy as np
import scipy.sparse

from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import PROPENSITY
from xjax.judge.metrics.metric import (
  Measure,
  MetricPoints,
  MetricSettings,
  Protocol,
  measures,
  metric_classes,
  metric_kind,
  users_kinds,
)
from xjax.judge.metrics.protocols import XJAX


@dataclasses.dataclass(frozen=True, eq=False)
class Criteria:
  """Holds the criteria for judging predictions; defaults suit most corpora."""

  ks: Sequence[int] = (1, 3, 5, 10)
  # Kinds to print; `P@k` stands for every cut-off; () for all.
  kinds: Sequence[str] = ()
  # The notes of the result are about the first.
  protocols: Sequence[Protocol] = (XJAX,)
  propensity: tuple[float, float] = PROPENSITY  # A and B of the formula
  # float64, inverse propensities instead of the formula.
  weights_L: np.ndarray | None = None
  # Name -> bool [L], slices in addition to those of the predictions.
  slices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  vectors_LD: scipy.sparse.csr_array | None = None  # of norm 1, for ILD
  ranks_LK: np.ndarray | None = None  # for weighted@k
  settings: MetricSettings = MetricSettings()  # the parameters of label metrics
  replicates: int = 0  # of the bootstrap; 0 gives no intervals
  seed: int = 0  # of the bootstrap's draws
  # Its first nodes are the judged labels; None for that of the predictions.
  hierarchy: Hierarchy | None = None

  def table(
    self,
    protocol: Protocol,
    thresholds: Sequence[str],
    bins: Iterable[str],
    levels: Sequence[int] = (),
  ) -> dict[str, Measure]:
    """Returns the requested metrics of a protocol, by name, such as `P@5`.

    `thresholds` are suffixes of metrics: '' or '-tuned'.
    """
    points = MetricPoints(
      tuple(self.ks), tuple(thresholds), tuple(bins), tuple(levels)
    )
    printed = measures(metric_classes(), protocol, points, self.settings)
    return {
      name: measure
      for name, measure in printed.items()
      if not self.kinds or metric_kind(name) in self.kinds
    }


USUAL_K = 5
_BY_PLACE = 'P', 'PSP'  # shown at the cut-offs 1, 3 and 5
_WITHOUT_CUT_OFF = 'R-Precision', 'micro-F1', 'macro-F1'


def main_metrics(names: Iterable[str]) -> list[str]:
  """Returns the metrics that tables and TensorBoard show first.

  These are P and PSP at 1, 3 and 5 (or at the smallest and the largest
  cut-off), nDCG, RP and macro-F1 at 5, and the metrics that users have defined.
  If no metric has a cut-off, F1 and R-Precision are returned.
  """
  names = list(dict.fromkeys(names))
  ks = {int(name[2:]) for name in names if re.fullmatch(r'P@\d+', name)}
  if not ks:
    return [name for name in names if name in _WITHOUT_CUT_OFF]
  last = USUAL_K if USUAL_K in ks else max(ks)
  precision, propensity = (
    [f'{kind}@{k}' for k in dict.fromkeys((min(ks), 3, last))]
    for kind in _BY_PLACE
  )
  columns = [*precision, f'nDCG@{last}', f'RP@{last}', *propensity]
  columns += [f'macro-F1@{last}', *users_metrics(names, last)]
  return [name for name in columns if name in names]


def users_metrics(names: Iterable[str], k: int) -> list[str]:
  """Returns the user-defined metrics at cut-off k or without a cut-off."""
  kinds = users_kinds()
  return [
    name
    for name in names
    if metric_kind(name) in kinds
    and re.search(r'@(\d+)|$', name)[1] in (None, f'{k}')
  ]
