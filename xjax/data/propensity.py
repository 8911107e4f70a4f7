"""How much rarer labels count for in propensity-scored metrics and losses."""

import numpy as np

from xjax.core.errors import DataError


def propensity_weights(
  train_counts: np.ndarray, n_train: int, a: float = 0.55, b: float = 1.5
) -> np.ndarray:
  """Inverse propensities, the label weights of propensity-scored metrics.

  w_l = 1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A (Jain et al. 2016).

  Args:
    train_counts: int [L], training documents per label, n_l.
    n_train: training documents, N.
    a: A of the formula: 0.55, Amazon-670K and its kin 0.6, Wikipedia 0.5.
    b: B of the formula: 1.5, Amazon-670K and its kin 2.6, Wikipedia 0.4.

  Returns:
    float64 [L], at least 1, larger for rarer labels.

  Raises:
    DataError: fewer than 3 training documents, for which C is negative.
  """
  if n_train < 3:
    raise DataError(
      f'propensities need at least 3 training documents, not {n_train}'
    )
  c = (np.log(n_train) - 1) * (b + 1) ** a
  return 1 + c * (np.asarray(train_counts, np.float64) + b) ** -a
