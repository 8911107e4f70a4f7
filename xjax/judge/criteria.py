"""Defines the criteria for judging predictions."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

import numpy as np
import scipy.sparse

from xjax.judge.metrics.contract import (
  LabelForm,
  Measure,
  MetricPoints,
  Protocol,
  kind_of,
  measures,
)
from xjax.judge.metrics.protocols import XJAX

# A and B of the propensity formula (Jain et al. 2016). Amazon-670K and similar
# corpora have (0.6, 2.6), and Wikipedia corpora have (0.5, 0.4).
PROPENSITY = (0.55, 1.5)
MOST_RANKS = 1_000_000  # the largest cut-off; metrics have arrays of this size


@dataclasses.dataclass(frozen=True, eq=False)
class Criteria:
  """Holds the criteria for judging predictions. The defaults suit most corpora.

  Attributes:
    ks: cut-offs k.
    kinds: kinds of metrics to print. The kind `P@k` stands for P at every
      cut-off. If empty, all metrics are printed.
    protocols: the conventions to follow. The notes in the result of `judge` are
      about the first protocol.
    propensity: A and B of the formula for propensities, which give the weights
      of labels.
    weights_L: float64 [L], inverse propensities to use instead of the formula;
      None to use the formula.
    slices: name -> bool [L], slices in addition to those of the predictions.
    vectors_LD: sparse label vectors of norm 1, for the metric ILD. If None, ILD
      is left out.
    ranks_LK: float64 [L, K], weight of each label at each place of a list, for
      the metric weighted@k. If None, weighted@k is left out.
    form: the parameters of label metrics.
    replicates: number of bootstrap replicates; 0 gives no intervals.
    seed: seed of the bootstrap's draws.
  """

  ks: Sequence[int] = (1, 3, 5, 10)
  kinds: Sequence[str] = ()
  protocols: Sequence[Protocol] = (XJAX,)
  propensity: tuple[float, float] = PROPENSITY
  weights_L: np.ndarray | None = None
  slices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  vectors_LD: scipy.sparse.csr_array | None = None
  ranks_LK: np.ndarray | None = None
  form: LabelForm = LabelForm()
  replicates: int = 0
  seed: int = 0

  def table(
    self, protocol: Protocol, thresholds: Sequence[str], bins: Iterable[str]
  ) -> dict[str, Measure]:
    """Returns the requested metrics of a protocol.

    Args:
      protocol: the conventions to follow.
      thresholds: suffixes of the metrics at thresholds: '' or '-tuned'.
      bins: names of the frequency bins of labels.

    Returns:
      Name of a metric, such as `P@5` -> measure.
    """
    points = MetricPoints(tuple(self.ks), tuple(thresholds), tuple(bins))
    printed = measures(protocol, points, self.form)
    return {
      name: measure
      for name, measure in printed.items()
      if not self.kinds or kind_of(name) in self.kinds
    }
