"""The losses of linear classifiers."""

import enum


class Loss(enum.Enum):
  """Of the margin m = y (w x + b), y = 1 or -1.

  SQUARED_HINGE: max(0, 1 - m)^2, of support vector machines; scores are
  margins. LOGISTIC: log(1 + exp(-m)); scores are logits.
  """

  SQUARED_HINGE = 'squared_hinge'
  LOGISTIC = 'logistic'
