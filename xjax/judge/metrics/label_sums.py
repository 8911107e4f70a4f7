"""Sums over labels of what each label's counts say."""

from collections.abc import Mapping, Sequence
import dataclasses
from functools import partial

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from xjax.judge.metrics.exact import exact
from xjax.judge.metrics.labels import (
  covered,
  covered_sample,
  covered_share,
  entropy_part,
  f_beta,
  precision,
  recall,
)

# By training documents, from and to (None: no end); the paper on binned
# macro-F1, section 4, begins at 1.
BINS = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, None))
# Sums that belong to the labels, whatever is decided.
LABELS, GOLD, GOLD_LABELS = 'labels', 'gold', 'labels with gold'
# And of a set of decisions: labels up to the largest that is gold or predicted.
UP_TO_LARGEST = 'labels up to largest'
BETAS = (0.5, 2.0)  # of macro-F_beta
# How the sums begin that depend on what is correct, and not on what else is
# predicted.
OF_CORRECT = ('correct', 'label-R', 'covered')


def bin_name(low: int, high: int | None) -> str:
  """'1-9', '0' or '1000+'."""
  if high is None:
    return f'{low}+'
  return f'{low}-{high}' if low < high else f'{low}'


def in_bins(train_counts: np.ndarray) -> dict[str, np.ndarray]:
  """Bin name -> bool [L], labels by their number of training documents."""
  return {
    bin_name(low, high): (train_counts >= low)
    & (train_counts <= (np.inf if high is None else high))
    for low, high in BINS
  }


@dataclasses.dataclass(frozen=True)
class LabelForm:
  """Which label metrics there are beside F1.

  Attributes:
    alphas: recalls from which a label counts as covered, in [0, 1].
    draws: numbers of documents that coverage is expected on.
  """

  alphas: tuple[float, ...] = (0.5,)
  draws: tuple[int, ...] = (1000,)


@struct.dataclass
class LabelTable:
  """What sums over labels need to know of the labels.

  Attributes:
    upto_L: int64, how many labels of the slice there are up to each.
    bins_FL: bool, the labels of each frequency bin.
  """

  upto_L: jax.Array | np.ndarray
  bins_FL: jax.Array | np.ndarray

  @classmethod
  def of(cls, mask: np.ndarray, bins: Mapping[str, np.ndarray]) -> 'LabelTable':
    """Of a slice, bool [L], and its bins, each bool [L]."""
    none = np.zeros((0, len(mask)), bool)
    return cls(np.cumsum(mask), np.stack([*bins.values()]) if bins else none)

  def take(self, labels: np.ndarray) -> 'LabelTable':
    """The columns of these labels."""
    return LabelTable(self.upto_L[labels], self.bins_FL[:, labels])


@partial(jax.jit, static_argnames='form')
def label_sums(
  correct_L: Int[Array | np.ndarray, '*R L'],
  predicted_L: Int[Array | np.ndarray, '*R L'],
  gold_L: Int[Array | np.ndarray, '*R L'],
  table: LabelTable,
  n_docs: Float[Array, ''] | np.ndarray | np.floating,
  form: LabelForm,
) -> tuple[dict[str, Float[Array, '*R']], Float[Array, '*R F']]:
  """Sums over labels for one set of decisions.

  Labels that are neither predicted nor gold add nothing and may be left out.

  Args:
    correct_L: predicted and gold; leading axes are replicates.
    predicted_L: documents that the label is predicted for.
    gold_L: documents that have it.
    table: of these labels.
    n_docs: documents there are, those without gold as well.
    form: which sums.

  Returns:
    kind -> float64 sum: `correct`, `predicted`, `label-P`, `label-R`, `F1`,
    `gold-F1` (F1 weighted by gold_L), `F<beta>`, `covered`,
    `covered[a=<alpha>]`, `covered[n=<drawn>]`, `correct-log`, of entropy_part,
    and `labels up to largest`; and the sums of F1 per bin.
  """
  correct_L, predicted_L, gold_L = (
    jnp.asarray(x).astype(jnp.float64) for x in (correct_L, predicted_L, gold_L)
  )
  f1_L = f_beta(correct_L, predicted_L, gold_L)
  each = {
    'correct': correct_L,
    'predicted': predicted_L,
    'label-P': precision(correct_L, predicted_L),
    'label-R': recall(correct_L, gold_L),
    'F1': f1_L,
    'gold-F1': f1_L * gold_L,
    'covered': covered(correct_L),
    'correct-log': entropy_part(correct_L),
  }
  for beta in BETAS:
    each[f'F{beta:g}'] = f_beta(correct_L, predicted_L, gold_L, beta)
  for alpha in form.alphas:
    each[f'covered[a={alpha:g}]'] = covered_share(correct_L, gold_L, alpha)
  for n in form.draws:
    each[f'covered[n={n}]'] = covered_sample(correct_L, n_docs, n)
  totals = {kind: values_L.sum(-1) for kind, values_L in each.items()}
  seen_L = jnp.where(predicted_L + gold_L > 0, table.upto_L, 0)
  totals[UP_TO_LARGEST] = seen_L.max(-1, initial=0).astype(jnp.float64)
  binned = [jnp.where(bin_L, f1_L, 0).sum(-1) for bin_L in table.bins_FL]
  none = jnp.zeros((*f1_L.shape[:-1], 0))
  return totals, jnp.stack(binned, -1) if binned else none


def named_sums(
  correct_L: Int[Array | np.ndarray, ' L'],
  predicted_L: Int[Array | np.ndarray, ' L'],
  gold_L: Int[Array | np.ndarray, ' L'],
  decisions: str,
  bins: Sequence[str],
  table: LabelTable,
  n_docs: int,
  form: LabelForm,
) -> dict[str, float]:
  """The sums of one set of decisions by name.

  Args:
    correct_L: as for label_sums.
    predicted_L: the same.
    gold_L: the same.
    decisions: what ends the names: `F1@5`, and `F1@5[1-9]` for a bin.
    bins: names of the bins of the table.
    table: as for label_sums.
    n_docs: documents there are.
    form: which sums.
  """
  with exact():
    totals, binned_F = label_sums(
      correct_L, predicted_L, gold_L, table, np.float64(n_docs), form
    )
    sums = {f'{kind}{decisions}': float(v) for kind, v in totals.items()}
    for name, value in zip(bins, np.asarray(binned_F).tolist(), strict=True):
      sums[f'F1{decisions}[{name}]'] = value
  return sums
