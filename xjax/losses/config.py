"""Configs of losses and of how much each label counts in them."""

import dataclasses


@dataclasses.dataclass
class LossConfig:
  """What is minimised, of each document and label."""


@dataclasses.dataclass
class BCEConfig(LossConfig):
  """Binary cross entropy; scores are logits."""


@dataclasses.dataclass
class FocalConfig(LossConfig):
  """Focal loss (Lin et al. 2017); scores are logits.

  Probabilities are drawn towards 0.5 by it; ranking is not concerned, and
  eval.calibration sets them right.

  Attributes:
    gamma: how little certain decisions count; 0: as in binary cross entropy.
    alpha: weight of gold labels, with 1 - alpha of all others; 0: 1 for both.
  """

  gamma: float = 2.0
  alpha: float = 0.0


@dataclasses.dataclass
class SquaredHingeConfig(LossConfig):
  """Squared hinge of targets 1 and -1; scores are margins, above 0: assigned.

  What is shown as a probability is calibrated on dev, or else the margin.
  """


@dataclasses.dataclass
class SoftmaxConfig(LossConfig):
  """Softmax cross entropy with each gold label; scores are margins.

  Labels compete: a score tells little by itself, only beside the others of its
  document. What is shown as a probability is calibrated on dev, and of F1 the
  micro-F1-tuned counts. A head's
  products are computed twice for it. Of label weights those of gold labels
  count.

  Attributes:
    averaged: whether a document counts as one, however many gold labels.
  """

  averaged: bool = True


@dataclasses.dataclass
class LabelWeightsConfig:
  """How much each label counts in the loss, whichever loss it is."""


@dataclasses.dataclass
class EvenWeights(LabelWeightsConfig):
  """All labels alike."""


@dataclasses.dataclass
class ClassBalancedWeights(LabelWeightsConfig):
  """By the effective number of a label's documents (Cui et al. 2019).

  They weigh all terms of an example by its one gold class. For many labels, our
  reading: each label's own term, where it is not gold as well. Adam undoes what
  this does to parameters of one label alone.

  Attributes:
    beta: 0: all alike; towards 1: by the inverse of the frequency.
  """

  beta: float = 0.999


@dataclasses.dataclass
class PropensityWeights(LabelWeightsConfig):
  """Gold labels count 2 / p_l - 1, all others 1 (Qaraei et al. 2021).

  p_l is the propensity of Jain et al. (2016), with eval.propensity's A and B.
  """
