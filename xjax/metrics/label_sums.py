"""Sums over labels of what each label's counts say."""

from collections.abc import Mapping
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from xjax.metrics.coverage import (
  covered,
  covered_sample,
  covered_share,
  entropy_part,
)
from xjax.metrics.exact import exact
from xjax.metrics.f1 import f_beta, precision, recall

# By training documents, from and to (None: no end); the paper on binned
# macro-F1, section 4, begins at 1.
BINS = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, None))
# Sums that belong to the labels, whatever is decided.
LABELS, GOLD, GOLD_LABELS = 'labels', 'gold', 'labels with gold'
# And of a set of decisions: labels up to the largest that is gold or predicted.
UP_TO_LARGEST = 'labels up to largest'


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
    betas: of F_beta at a cut-off.
    alphas: recalls from which a label counts as covered, in (0, 1].
    draws: numbers of documents that coverage is expected on.
  """

  betas: tuple[float, ...] = (0.5, 2.0)
  alphas: tuple[float, ...] = (0.5,)
  draws: tuple[int, ...] = (1000,)


@partial(jax.jit, static_argnames='form')
def label_sums(
  correct_L: Int[Array, '*R L'],
  predicted_L: Int[Array, '*R L'],
  gold_L: Int[Array, '*R L'],
  bins_FL: Bool[Array, 'F L'],
  n_docs: Float[Array, ''],
  form: LabelForm,
) -> tuple[dict[str, Float[Array, '*R']], Float[Array, '*R F']]:
  """Sums over labels for one set of decisions.

  Args:
    correct_L: predicted and gold; leading axes are replicates.
    predicted_L: documents that the label is predicted for.
    gold_L: documents that have it.
    bins_FL: labels of each bin.
    n_docs: documents there are, those without gold as well.
    form: which sums.

  Returns:
    kind -> float64 sum: `correct`, `predicted`, `P`, `R`, `F1`, `gold-F1` (F1
    weighted by gold_L), `F<beta>`, `covered`, `covered[a=<alpha>]`,
    `covered[n=<drawn>]`, `correct-log`, of entropy_part, and `labels up to
    largest`; and the sums of F1 per bin.
  """
  real = jnp.float64
  correct_L, predicted_L, gold_L = (
    jnp.asarray(x).astype(real) for x in (correct_L, predicted_L, gold_L)
  )
  f1_L = f_beta(correct_L, predicted_L, gold_L)
  each = {
    'correct': correct_L,
    'predicted': predicted_L,
    'P': precision(correct_L, predicted_L),
    'R': recall(correct_L, gold_L),
    'F1': f1_L,
    'gold-F1': f1_L * gold_L,
    'covered': covered(correct_L),
    'correct-log': entropy_part(correct_L),
    UP_TO_LARGEST: _up_to_largest(predicted_L + gold_L),
  }
  for beta in form.betas:
    each[f'F{beta:g}'] = f_beta(correct_L, predicted_L, gold_L, beta)
  for alpha in form.alphas:
    each[f'covered[a={alpha:g}]'] = covered_share(correct_L, gold_L, alpha)
  for n in form.draws:
    each[f'covered[n={n}]'] = covered_sample(correct_L, n_docs, n)
  binned = [jnp.where(bins_FL[i], f1_L, 0).sum(-1) for i in range(len(bins_FL))]
  totals = {kind: values_L.sum(-1) for kind, values_L in each.items()}
  return totals, jnp.stack(binned, -1) if binned else jnp.zeros((0,))


def _up_to_largest(counts_L: Float[Array, '*R L']) -> Float[Array, '*R L']:
  """1 up to the last label that is counted, 0 after it."""
  indices = jnp.arange(1, counts_L.shape[-1] + 1, dtype=counts_L.dtype)
  largest = jnp.where(counts_L > 0, indices, 0).max(-1, keepdims=True)
  return (indices <= largest).astype(counts_L.dtype)


def named_sums(
  correct_L: Int[Array | np.ndarray, ' L'],
  predicted_L: Int[Array | np.ndarray, ' L'],
  gold_L: Int[Array | np.ndarray, ' L'],
  decisions: str,
  bins: Mapping[str, np.ndarray],
  n_docs: int,
  form: LabelForm,
) -> dict[str, float]:
  """The sums of one set of decisions by name.

  Args:
    correct_L: as for label_sums.
    predicted_L: the same.
    gold_L: the same.
    decisions: what ends the names: `F1@5`, and `F1@5[1-9]` for a bin.
    bins: bin name -> bool [L].
    n_docs: documents there are.
    form: which sums.
  """
  bins_FL = np.stack([*bins.values(), np.zeros(len(gold_L), bool)])
  with exact():
    totals, binned_F = label_sums(
      correct_L, predicted_L, gold_L, bins_FL, np.float64(n_docs), form
    )
    sums = {f'{kind}{decisions}': float(v) for kind, v in totals.items()}
    for name, value in zip(bins, np.asarray(binned_F).tolist()):
      sums[f'F1{decisions}[{name}]'] = value
  return sums
