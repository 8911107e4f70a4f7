"""What predictions are judged by."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np
import scipy.sparse

from xjax.metrics.label_sums import LabelForm
from xjax.metrics.protocols import XJAX, Protocol

# A and B of the propensity formula (Jain et al. 2016), but for Amazon-670K and
# its kin (0.6, 2.6) and Wikipedia (0.5, 0.4).
PROPENSITY = (0.55, 1.5)


@dataclasses.dataclass(frozen=True, eq=False)
class Criteria:
  """What predictions are judged by; the defaults suit most corpora.

  Attributes:
    ks: cut-offs.
    protocols: whose conventions; the first is the one that notes are about.
    propensity: A and B of the formula, for the weights of labels.
    weights_L: float64 [L], inverse propensities to use instead.
    slices: name -> bool [L], slices beside those of the predictions.
    vectors_LD: sparse label vectors of length 1, of which ILD is made; None:
      no ILD.
    ranks_LK: float64 [L, K], W of weighted@k; None: no such metric.
    form: which label metrics there are beside F1.
  """

  ks: Sequence[int] = (1, 3, 5, 10)
  protocols: Sequence[Protocol] = (XJAX,)
  propensity: tuple[float, float] = PROPENSITY
  weights_L: np.ndarray | None = None
  slices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  vectors_LD: scipy.sparse.csr_array | None = None
  ranks_LK: np.ndarray | None = None
  form: LabelForm = LabelForm()
