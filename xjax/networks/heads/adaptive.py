"""Defines the adaptive head, whose rare labels have shorter rows (APLC).

See Ye et al., ICML 2020 (https://arxiv.org/abs/2007.02439), Sections 3.2 and
3.3.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
from typing import Any

from flax import nnx, struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32
import numpy as np

from xjax.core.config_part import AT_LEAST_0, field
from xjax.core.errors import ConfigError
from xjax.data.label_trees.label_tree import by_frequency
from xjax.losses.loss import LabelLoss, LabelWeights, Reduction
from xjax.networks.encoders.layers import LayerNorm, dense
from xjax.networks.heads.head import (
  Frozen,
  Head,
  HeadConfig,
  HeadInputs,
  chunk_field,
  label_rows,
  normal,
)
from xjax.networks.heads.ova import scores
from xjax.networks.heads.streaming import gold_of

_EPS = 1e-5  # of the layer norm


@dataclasses.dataclass
class AdaptiveConfig(HeadConfig):
  """Chooses adaptive clusters of labels by frequency (APLC, Ye et al. 2020).

  The head needs a pooling.
  """

  pooled = True
  row_biases = False
  trains_rows = False
  multiplies = True
  weighs_evenly = True

  chunk: int = chunk_field(8192)
  cutoffs: tuple[int, ...] = field(
    (),
    'Labels are sorted by falling frequency, and are cut after each of these '
    'numbers of labels. The first part is the head, and the other parts are '
    'tails. Rows of tail i have a width of D / 2^i. If empty, labels are cut '
    'into halves.',
  )
  last_width: int = field(
    0,
    'Width of the rows of the last tail. If 0, the width is D / 2^i, as for '
    'the other tails.',
    AT_LEAST_0,
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'Adaptive':
    return Adaptive(self, inputs, rngs=rngs)

  def check_labels(self, n_labels: int) -> None:
    self.starts(n_labels)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if any(a >= b for a, b in zip((0, *self.cutoffs), self.cutoffs)):
      yield f'{path}.cutoffs={self.cutoffs}: must ascend, from at least 1'

  def starts(self, n_labels: int) -> tuple[int, ...]:
    """Returns the labels before each part; a ConfigError if a part is empty."""
    cutoffs = self.cutoffs
    if cutoffs and cutoffs[-1] >= n_labels:
      raise ConfigError(
        f'config.model.head.cutoffs={cutoffs}: each number must be less than '
        f'the number of labels, {n_labels}; leave cutoffs empty to cut the '
        'labels into halves'
      )
    half = () if n_labels < 2 else (-(-n_labels // 2),)
    return (0, *(cutoffs or half))


@struct.dataclass
class AdaptiveFeatures:
  """Holds what the parts of an adaptive head read."""

  document_BD: jax.Array
  roots: jax.Array  # float32 [B, tails], the logit of each tail's root
  hidden: tuple[jax.Array, ...]  # for each tail, [B, width]


class Tail(nnx.Module):
  """Holds the labels of a tail, and a layer that reduces documents for them."""

  def __init__(self, labels: int, dim: int, width: int, *, rngs: nnx.Rngs):
    self.reduce = nnx.Param(normal(rngs, (dim, width), dim**-0.5))
    self.norm = LayerNorm(width, _EPS)
    self.rows = nnx.Param(normal(rngs, (labels, width), width**-0.5))

  def hidden(self, document_BD: Float[Array, 'B D']) -> Float[Array, 'B width']:
    """Returns ReLU(LayerNorm(x R))."""
    return jax.nn.relu(self.norm(dense(document_BD, self.reduce[...])))


class Adaptive(Head):
  """Scores frequent labels like OneVsAll, and rare labels in two steps.

  Labels are sorted by falling training frequency, and are cut into a head and
  tails. A label l of the head has the probability sigmoid(x . w_l). Tail i has
  a root r_i, and a hidden layer h_i = ReLU(LayerNorm(x R_i)) of width D / 2^i.
  A label l of this tail has the probability

    sigmoid(x . r_i) sigmoid(h_i . w_l)

  So rows of rare labels have fewer weights (Ye et al. 2020, Section 3.2).

  A label row has only the label's place in the order by frequency. The rows of
  a part are a shared parameter, so each device has all weights of this head.
  """

  def __init__(
    self, config: AdaptiveConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    n_labels, dim = inputs.n_labels, inputs.dim
    # The number of labels before each part.
    starts = config.starts(n_labels)
    self.starts = starts
    stops = (*starts[1:], n_labels)
    place = np.arange(n_labels)
    if inputs.counts_L is not None:
      place[by_frequency(inputs.counts_L)] = np.arange(n_labels)
    self.place = label_rows(place.astype(np.int32), Frozen)
    widths = [max(1, dim // 2**i) for i in range(1, len(starts))]
    if config.last_width and widths:
      widths[-1] = config.last_width
    stddev = dim**-0.5
    self.frequent = nnx.Param(normal(rngs, (stops[0], dim), stddev))
    self.roots = nnx.Param(normal(rngs, (len(widths), dim), stddev))
    self.tails = nnx.List(
      Tail(stop - start, dim, width, rngs=rngs)
      for start, stop, width in zip(starts[1:], stops[1:], widths)
    )

  def prepare(self, document_BD: Float[Array, 'B D']) -> AdaptiveFeatures:
    roots = self.roots.astype(document_BD.dtype)
    hidden = tuple(tail.hidden(document_BD) for tail in self.tails)
    return AdaptiveFeatures(document_BD, scores(document_BD, roots), hidden)

  def logits(
    self, features: AdaptiveFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    """Computes logits_BC of a chunk of labels, the logits of probabilities."""
    # Every part is computed for all labels of the chunk, which takes at most
    # twice the time of a head without parts.
    place_C = chunk['place']
    logits_BC = _scores_at(features.document_BD, self.frequent[...], place_C)
    for i, tail in enumerate(self.tails):
      at_C = place_C - self.starts[1 + i]
      below_BC = _scores_at(features.hidden[i], tail.rows[...], at_C)
      both_BC = logit_of_product(features.roots[:, i : i + 1], below_BC)
      logits_BC = jnp.where(at_C >= 0, both_BC, logits_BC)
    return logits_BC

  def loss(
    self,
    features: AdaptiveFeatures,
    positives_BP: Int32[Array, 'B P'],
    mask_B: Bool[Array, ' B'],
    loss: LabelLoss,
    weights: LabelWeights | None = None,
    rngs: nnx.Rngs | None = None,
  ) -> Float32[Array, '']:
    """Returns the loss of APLC, summed over documents (Ye et al., Section 3.3).

    The loss of a document is a sum or a mean (loss.reduction; the paper takes
    the mean) over these entries:

    - the labels of the head;
    - the labels of each tail in which the document has a gold label;
    - the roots of all other tails, which should be 0.

    A tail is computed only if a document of the batch has a gold label in it.
    """
    del weights, rngs
    gold_BP = gold_of(positives_BP, mask_B)
    scored_BP = (gold_BP >= 0) & (gold_BP < self.n_labels)
    place_BP = self.place[...][jnp.where(scored_BP, gold_BP, 0)]
    place_BP = jnp.where(scored_BP, place_BP, -1)
    frequent = self.frequent.astype(features.document_BD.dtype)
    logits_BC = scores(features.document_BD, frequent)
    sum_B = _sum_of_losses(loss, logits_BC, place_BP)
    count_B = jnp.full(len(sum_B), float(len(frequent)))
    for i, tail in enumerate(self.tails):
      at_BP = place_BP - self.starts[1 + i]
      has_gold_B = ((at_BP >= 0) & (at_BP < len(tail.rows))).any(axis=1)
      root_B1 = features.roots[:, i : i + 1]
      inside_B = lax.cond(
        has_gold_B.any(),
        functools.partial(_tail_losses, loss),
        lambda *_: jnp.zeros(mask_B.shape),
        *(root_B1, features.hidden[i], tail.rows[...], at_BP),
      )
      absent_B1, _ = loss(root_B1, jnp.zeros_like(root_B1, bool))
      sum_B += jnp.where(has_gold_B, inside_B, absent_B1[:, 0])
      count_B += jnp.where(has_gold_B, float(len(tail.rows)), 1.0)
    if loss.reduction is Reduction.MEAN_LABELS:
      sum_B = sum_B / count_B
    return jnp.where(mask_B, sum_B, 0.0).sum()


def _tail_losses(loss, root_B1, hidden, rows, at_BP) -> jax.Array:
  below_BC = scores(hidden, rows.astype(hidden.dtype))
  return _sum_of_losses(loss, logit_of_product(root_B1, below_BC), at_BP)


def _sum_of_losses(loss, logits_BC, gold_BP) -> jax.Array:
  """Returns each document's loss over a part; ignores gold places outside."""
  labels = logits_BC.shape[1]
  row_B1 = jnp.arange(len(logits_BC))[:, None]
  # A negative index would count from the end of the row.
  gold_BP = jnp.where(gold_BP < 0, labels, gold_BP)
  targets_BC = jnp.zeros(logits_BC.shape, bool)
  targets_BC = targets_BC.at[row_B1, gold_BP].set(True, mode='drop')
  loss_BC, _ = loss(logits_BC, targets_BC)
  return loss_BC.sum(axis=1)


def logit_of_product(
  a: Float32[Array, '*#axes'], b: Float32[Array, '*#axes']
) -> Float32[Array, '*_']:
  """Returns the logit of sigmoid(a) sigmoid(b)."""
  # The odds against the product are (1 + exp(-a)) (1 + exp(-b)) - 1, which is
  # the sum exp(-a) + exp(-b) + exp(-a - b). Its logarithm is computed without
  # overflow, and without a probability that would be rounded to 0 or 1.
  return -jnp.logaddexp(jnp.logaddexp(-a, -b), -a - b)


def _scores_at(features_BD, rows, at_C) -> jax.Array:
  """Returns the scores of some rows of a part; other places get any score."""
  rows_CD = rows[jnp.clip(at_C, 0, len(rows) - 1)]
  return scores(features_BD, rows_CD.astype(features_BD.dtype))
