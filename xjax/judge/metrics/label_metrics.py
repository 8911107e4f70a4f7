"""Defines the metrics that are computed from counts per label.

They count every document, also without gold. In a label's terms, 0 / 0 is 0.
"""

import dataclasses

from jaxtyping import Float
import numpy as np

from xjax.judge.metrics.metric import (
  CORRECT,
  GOLD,
  PREDICTED,
  LabelCounts,
  LabelMetric,
  MetricSettings,
  Numbers,
  Protocol,
  Value,
)


def f_beta(
  labels: LabelCounts, beta: float = 1.0
) -> Float[np.ndarray, 'L ...']:
  """Computes (1 + beta^2) TP / (beta^2 gold + predicted); 0 / 0 counts as 0.

  With beta = 1, this is the F1 of "Re-evaluating Extreme Multi-label Text
  Classification Methods in Tail Label Prediction" (anonymous ACL submission),
  eq. 1; else the F of Schultheis et al. 2022, section 3.2.
  """
  square = beta * beta
  both_L = square * labels.gold_L + labels.predicted_L
  return (1 + square) * labels.correct_L / np.where(both_L > 0, both_L, 1)


class MicroF1AtThreshold(LabelMetric):
  """Computes the F1 of all decisions at a threshold, pooled over labels."""

  name = 'micro-F1'

  def sums(self) -> dict:
    return {}

  def over_name(self, end: str) -> str:
    return f'{CORRECT}{end}'

  def under_names(self, protocol: Protocol, end: str) -> tuple[str, ...]:
    return f'{PREDICTED}{end}', GOLD

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    return 2.0 * over / under


class MacroF1AtThreshold(LabelMetric):
  """Computes the mean of the labels' F1 for scores from a threshold on."""

  name = 'macro-F1'
  only_correct = True

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return f_beta(labels)


class WeightedF1(LabelMetric):
  """Weighs the labels' F1 at a threshold by their gold documents."""

  name = 'weighted-F1'
  only_correct = True

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return f_beta(labels) * labels.gold_L

  def under_names(self, protocol: Protocol, end: str) -> tuple[str, ...]:
    return (GOLD,)


class MicroF1(MicroF1AtThreshold):
  """Computes the pooled F1, where the first k labels are predicted."""

  name = 'micro-F1@k'


class _Macro(LabelMetric):
  """Computes a mean over the labels that a protocol includes (base class)."""

  only_correct = True

  def averaged_labels(self, protocol: Protocol) -> str:
    return protocol.macro_over


class MacroF1(_Macro):
  """Computes the mean of the labels' F1, where the first k are predicted."""

  name = 'macro-F1@k'
  is_binned = True
  over = MacroF1AtThreshold.over


class MacroPrecision(_Macro):
  """Computes the mean of TP / (TP + FP); it is 0 for never predicted labels."""

  name = 'macro-P@k'

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return labels.correct_L / np.maximum(labels.predicted_L, 1)


class MacroRecall(_Macro):
  """Computes the mean of TP / (TP + FN); it is 0 for never gold labels."""

  name = 'macro-R@k'
  ignores_wrong = True

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return labels.correct_L / np.maximum(labels.gold_L, 1)


class MacroFHalf(_Macro):
  """Computes the mean of the labels' F_0.5, which favours precision."""

  name = 'macro-F0.5@k'

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return f_beta(labels, 0.5)


class MacroFTwo(_Macro):
  """Computes the mean of the labels' F_2, which favours recall."""

  name = 'macro-F2@k'

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return f_beta(labels, 2.0)


class Coverage(LabelMetric):
  """The share of labels with a hit (Schultheis et al. 2022, eq. 13)."""

  name = 'coverage@k'
  only_correct = ignores_wrong = True

  def averaged_labels(self, protocol: Protocol) -> str:
    return protocol.coverage_over

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    return (labels.correct_L > 0).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class AlphaCoverage(LabelMetric):
  """Computes the share of labels whose recall is at least alpha, in [0, 1].

  This is eq. 28 of Schultheis et al. 2022. With alpha = 0, the recall must be
  above 0, as in Coverage.
  """

  alpha: float
  name = 'coverage[a]@k'
  only_correct = ignores_wrong = True

  @classmethod
  def variants(cls, settings: MetricSettings) -> tuple['AlphaCoverage', ...]:
    return tuple(map(cls, settings.alphas))

  @property
  def label(self) -> str:
    return f'coverage[a={self.alpha:g}]@k'

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    # Because of rounding, correct_L >= alpha * gold_L would be wrong: 51 / 75
    # and 0.68 are the same float, but 0.68 * 75 is more than 51.
    recall_L = labels.correct_L / np.maximum(labels.gold_L, 1)
    enough_L = (recall_L >= self.alpha) & (labels.correct_L > 0)
    return enough_L.astype(np.float64)


@dataclasses.dataclass(frozen=True)
class SampledCoverage(LabelMetric):
  """Computes the expected coverage of n' = n_drawn documents of n, drawn again.

  It is the mean over labels of 1 - (1 - c_l / n)^n', where c_l is the number of
  correct predictions of label l (Schultheis et al. 2022, eq. 24-25).
  """

  n_drawn: int
  name = 'coverage[n]@k'
  only_correct = ignores_wrong = True

  @classmethod
  def variants(cls, settings: MetricSettings) -> tuple['SampledCoverage', ...]:
    return tuple(map(cls, settings.draws))

  @property
  def label(self) -> str:
    return f'coverage[n={self.n_drawn}]@k'

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    share_L = np.minimum(labels.correct_L / max(labels.n_docs, 1), 1)
    # If a share is small, 1 - share is rounded, but log1p(-share) is accurate.
    return -np.expm1(self.n_drawn * np.log1p(-share_L))


class Entropy(LabelMetric):
  """Computes how evenly the correct predictions are spread over the labels.

  The entropy, in bits, is log2 C - (sum over labels of c log2 c) / C, where c
  is the number of correct predictions of a label, and C their sum (Schultheis
  et al. 2022, eq. 15-16).
  """

  name = 'entropy@k'
  is_share = False
  only_correct = ignores_wrong = True

  def over(self, labels: LabelCounts) -> Float[np.ndarray, 'L ...']:
    correct_L = labels.correct_L
    return correct_L * np.log2(np.maximum(correct_L, 1))

  def under_names(self, protocol: Protocol, end: str) -> tuple[str, ...]:
    return (f'{CORRECT}{end}',)

  def value(self, over: Numbers, under: Numbers, k: int) -> Value:
    # If only one label has correct predictions, rounding may make the entropy
    # slightly negative. Where no prediction is correct, `bits` is NaN, and the
    # entropy is defined as 0.
    bits = np.maximum(np.log2(under) - over / under, 0.0)
    return np.nan_to_num(bits, nan=0.0)
