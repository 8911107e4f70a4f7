"""What linear models minimise."""

import enum


class Loss(enum.Enum):
  """Loss of a document of margin m = y (w.x + b), y being 1 or -1.

  Attributes:
    SQUARED_HINGE: max(0, 1 - m) ** 2, an L2-loss SVM; scores are margins.
    LOGISTIC: log(1 + exp(-m)), logistic regression; scores are logits.
  """

  SQUARED_HINGE = 'squared_hinge'
  LOGISTIC = 'logistic'
