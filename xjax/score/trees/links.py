"""From the score of a node to what it adds to the log score of a label."""

import enum


class Link(enum.Enum):
  """The log of a node's factor, of its classifier's score z.

  A label's score is the sum along its path. But for NONE it is at most 0 at
  each node, so that no label below a node has a better score than the node.

  NONE: z, of one-vs-all classifiers: a tree of one depth.
  SIGMOID: log sigmoid(z), of logistic loss: sums are log probabilities.
  L3_HINGE: -max(0, 1 - z)^3, of squared hinge (Yu et al. 2022, "PECOS", which
  ranks by the exponential of the sum).
  """

  NONE = 'none'
  SIGMOID = 'sigmoid'
  L3_HINGE = 'l3_hinge'
