"""What predictions are judged by."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

import numpy as np
import scipy.sparse

from xjax.judge.metrics.contract import (
  At,
  LabelForm,
  Measure,
  Protocol,
  kind_of,
  measures,
)
from xjax.judge.metrics.protocols import XJAX

# A and B of the propensity formula (Jain et al. 2016), but for Amazon-670K and
# its kin (0.6, 2.6) and Wikipedia (0.5, 0.4).
PROPENSITY = (0.55, 1.5)


@dataclasses.dataclass(frozen=True, eq=False)
class Criteria:
  """What predictions are judged by; the defaults suit most corpora.

  Attributes:
    ks: cut-offs.
    kinds: metrics to print, as `P@k` for every cut-off; empty: all there are.
    protocols: whose conventions; the first is the one that notes are about.
    propensity: A and B of the formula, for the weights of labels.
    weights_L: float64 [L], inverse propensities to use instead.
    slices: name -> bool [L], slices beside those of the predictions.
    vectors_LD: sparse label vectors of length 1, of which ILD is made; None:
      no ILD.
    ranks_LK: float64 [L, K], W of weighted@k; None: no such metric.
    form: the parameters of metrics of labels.
    replicates: of the bootstrap that intervals come from; 0: no intervals.
    seed: of its draws.
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
    """The metrics asked for, of those that a protocol prints."""
    at = At(tuple(self.ks), tuple(thresholds), tuple(bins))
    every = measures(protocol, at, self.form)
    return {
      name: measure
      for name, measure in every.items()
      if not self.kinds or kind_of(name) in self.kinds
    }
