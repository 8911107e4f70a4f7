"""What systems are compared in, and how."""

from collections.abc import Mapping, Sequence
import dataclasses
import re

import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.schema import HELD_OUT
from xjax.judge.metrics.contract import kind_of
from xjax.judge.metrics.protocols import XJAX
from xjax.judge.request import Asked

METRICS = (
  *('P@1', 'P@5', 'R@5', 'RP@5', 'nDCG@5', 'PSP@5', 'PSnDCG@5'),
  *('micro-F1@5', 'macro-F1@5', 'coverage@5'),
)
_BINNED = 'macro-F1@k'
BY_FREQUENCY = 'frequent', 'few', 'zero', HELD_OUT


@dataclasses.dataclass(frozen=True)
class ComparisonPlan:
  """What is compared, and how.

  Attributes:
    metrics: names, as `P@5` or `macro-F1@5[1-9]`.
    by_frequency: whether slices by frequency are compared in as well.
    slices: further ones, as slice_names.named_slices.
    labels: file of descriptors; as Asked.
    iterations: of approximate randomization.
    replicates: of the bootstrap.
    seed: of both.
    level: of the intervals.
    propensity: A and B of the propensity formula; empty: the usual.
  """

  metrics: Sequence[str] = METRICS
  by_frequency: bool = False
  slices: Sequence[str] = ()
  labels: str = ''
  iterations: int = 10_000
  replicates: int = 1000
  seed: int = 0
  level: float = 0.95
  propensity: Sequence[float] = ()

  @property
  def ks(self) -> tuple[int, ...]:
    """Cut-offs of the metrics."""
    found = {
      int(k) for name in self.metrics for k in re.findall(r'@(\d+)', name)
    }
    return tuple(sorted(found))

  def has(self, slice_name: str) -> bool:
    """Whether a slice is compared in."""
    return self.by_frequency or slice_name not in BY_FREQUENCY

  def asked(self) -> Asked:
    """What all systems are judged by.

    Raises:
      ConfigError: a metric or a slice is unknown, or A and B are no such
        numbers.
    """
    if not self.metrics:
      raise ConfigError('--metrics: name one at least, as P@5')
    known = XJAX.simple_kinds
    for name in self.metrics:
      if kind_of(name) not in known or '@k' in name or '@0' in name:
        raise ConfigError(
          f'--metrics: {name!r} is unknown; there are, with a number for k: '
          + ', '.join(known)
        )
    kinds = {*map(kind_of, self.metrics), _BINNED, f'{_BINNED}[]'}
    return Asked(
      ks=self.ks or (1,),
      kinds=sorted(kinds),
      propensity=self.propensity,
      slices=self.slices,
      labels=self.labels,
    )

  def binned(self, bins: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Macro-F1 of each bin at the largest cut-off, by name, and its labels."""
    if not self.ks:
      return {}
    return {
      f'{_BINNED.replace("@k", self.end)}[{name}]': labels_L
      for name, labels_L in bins.items()
    }

  @property
  def end(self) -> str:
    """Ends the names of what is at the largest cut-off."""
    return f'@{self.ks[-1]}'
