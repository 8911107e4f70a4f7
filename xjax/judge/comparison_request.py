"""Defines the metrics, slices and tests of a comparison of systems."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.schema import HELD_OUT
from xjax.judge.metrics.metric import Needs, cut_offs, kinds_where, metric_kind
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.request import JudgeRequest, needs_parents

METRICS = (
  *('P@1', 'P@5', 'R@5', 'RP@5', 'nDCG@5', 'PSP@5', 'PSnDCG@5'),
  *('micro-F1@5', 'macro-F1@5', 'coverage@5'),
)
_BINNED = 'macro-F1@k'
BY_FREQUENCY = 'frequent', 'few', 'zero', HELD_OUT


@dataclasses.dataclass(frozen=True)
class ComparisonRequest:
  metrics: Sequence[str] = METRICS  # such as `P@5` or `macro-F1@5[1-9]`
  by_frequency: bool = False  # whether also in the slices BY_FREQUENCY
  slices: Sequence[str] = ()  # further slices, as for named_slices
  labels: str = ''  # file of label descriptors, as in JudgeRequest
  iterations: int = 10_000  # of approximate randomization
  replicates: int = 1000  # of the bootstrap
  seed: int = 0  # of the randomization and of the bootstrap
  propensity: Sequence[float] = ()  # A, B (Jain et al. 2016); () for defaults

  @property
  def ks(self) -> tuple[int, ...]:
    return cut_offs(self.metrics)

  @property
  def uses_parents(self) -> bool:
    """Returns whether a metric or a slice depends on the parents of labels."""
    by_path = kinds_where(lambda metric: metric.needs is Needs.HIERARCHY)
    return any(map(needs_parents, self.slices)) or any(
      metric_kind(name) in by_path or '[level=' in name for name in self.metrics
    )

  def has(self, slice_name: str) -> bool:
    return self.by_frequency or slice_name not in BY_FREQUENCY

  def request(self) -> JudgeRequest:
    if not self.metrics:
      raise ConfigError('--metrics: name at least one metric, such as P@5')
    known_kinds = XJAX.simple_kinds
    for name in self.metrics:
      if metric_kind(name) not in known_kinds or '@k' in name or '@0' in name:
        raise ConfigError(
          f'--metrics: {name!r} is unknown; known metrics (write a number '
          'instead of k): ' + ', '.join(known_kinds)
        )
    kinds = {*map(metric_kind, self.metrics), _BINNED, f'{_BINNED}[]'}
    return JudgeRequest(
      ks=self.ks or (1,),
      kinds=sorted(kinds),
      propensity=self.propensity,
      slices=self.slices,
      labels=self.labels,
    )

  def bin_metrics(
    self, bins: Mapping[str, np.ndarray]
  ) -> dict[str, np.ndarray]:
    """Returns the macro-F1 metrics of bins at the largest cut-off."""
    if not self.ks:
      return {}
    return {
      f'{_BINNED.replace("@k", self.end)}[{name}]': labels_L
      for name, labels_L in bins.items()
    }

  @property
  def end(self) -> str:
    """Returns the suffix of metrics at the largest cut-off, such as `@5`."""
    return f'@{self.ks[-1]}'
