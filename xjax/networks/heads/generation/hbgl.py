"""Defines HBGL, a head that generates the labels of a document by levels.

See Jiang et al., "Exploiting Global and Local Hierarchies for Hierarchical Text
Classification", EMNLP 2022. Facts that the paper leaves open are taken from the
authors' code.
"""

from collections.abc import Iterator
import dataclasses
import enum
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.config_part import AT_LEAST_1, RATE, field
from xjax.core.errors import ConfigError
from xjax.core.mesh import padded_labels
from xjax.core.numerics import product
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.losses.loss import LabelLoss, LabelWeights, Reduction
from xjax.networks.encoders.bert import STDDEV, BertConfig
from xjax.networks.encoders.prefix import Prefix
from xjax.networks.heads.adaptive import logit_of_product
from xjax.networks.heads.cascade import LabelRowsHead
from xjax.networks.heads.generation.emitting import EmittingHead, Ranking
from xjax.networks.heads.generation.label_levels import (
  LabelPretraining,
  Transform,
  generate,
  label_levels,
  pretrained_nodes,
  segments_of,
  taught_states,
)
from xjax.networks.heads.head import (
  Frozen,
  HeadConfig,
  HeadInputs,
  label_rows,
  normal,
  padded_row,
)
from xjax.networks.heads.ova import scores
from xjax.networks.heads.streaming import gold_of, head_loss
from xjax.networks.views.hierarchy_views import NoViews


class FirstVectors(enum.Enum):
  """Says how the vectors of labels start.

  NAMES: as the sum of the word vectors of the pieces of the label's name.
  RANDOM: at random.
  """

  NAMES = 'names'
  RANDOM = 'random'


@dataclasses.dataclass
class HBGLConfig(HeadConfig):
  """Chooses HBGL, which generates the labels of a document level by level.

  The head needs an encoder of the BERT family and no pooling (Jiang et al.
  2022).
  """

  row_biases = False
  reads_parents = True
  multiplies = True  # a label is emitted if its probability is above 0.5
  chooses_labels = True

  max_levels: int = field(
    8,
    'Largest number of levels that labels can have. The encoder must have '
    'positions for data.tokens.max_tokens + max_levels + 1 vectors.',
    AT_LEAST_1,
  )
  masked: float = field(
    0.5,
    'Probability that the vector of a level above is replaced by [MASK] in '
    'training.',
    RATE,
  )
  ranking: Ranking = field(
    Ranking.EMITTED, 'Which labels of a document are ranked.'
  )
  first_vectors: FirstVectors = field(
    FirstVectors.NAMES, 'How the vectors of labels start.'
  )
  priors: bool = field(
    True,
    'Whether the biases of labels start at the logits of their priors. If '
    "False, the biases start at 0, as in the authors' code.",
  )
  pretraining: LabelPretraining = field(
    LabelPretraining,
    'How the vectors of labels are trained before the documents are read.',
  )

  @property
  def appended(self) -> int:
    """Returns the number of levels, with the level of [SEP]."""
    return self.max_levels + 1

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'HBGL':
    return HBGL(self, inputs, rngs=rngs)

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    """Checks the number of levels, and that segments are large enough."""
    levels = 1 + int(label_levels(hierarchy).max(initial=0))
    if levels > self.max_levels:
      raise ConfigError(
        f'config.model.head.max_levels={self.max_levels}: the labels of this '
        f'corpus have {levels} levels; set it to {levels}, and '
        'config.data.tokens.max_tokens so that the encoder has positions for '
        f'{levels + 1} more vectors'
      )
    if self.pretraining.steps:
      segments_of(pretrained_nodes(hierarchy), self.pretraining.segment)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    needs = f'{path}=HBGLConfig(...) needs'
    encoder = config.model.encoder
    if not isinstance(encoder, BertConfig):
      yield f'config.model.encoder={type(encoder).__name__}(...): {needs} ' + (
        'BertConfig(), because it runs the layers of the encoder itself'
      )
    if encoder.joined:
      yield (
        f'config.model.encoder.joined={encoder.joined}: {needs} (), because it '
        'reads all layers'
      )
    if config.data.tokens.packed:
      yield (
        f'config.data.tokens.packed=True: {needs} False, because the levels '
        'follow the tokens of one document'
      )
    if not isinstance(config.model.views, NoViews):
      views = type(config.model.views).__name__
      yield (
        f'config.model.views={views}(...): {needs} NoViews(), because it has '
        'no vector of a document that views could be compared by'
      )


class HBGL(EmittingHead):
  """Generates the labels of a document, from the first level to the last.

  The vector of a level is the sum of the vectors of its labels. It follows the
  tokens of the document and the vectors of the levels above. At each level, a
  pseudo mask asks for the labels of the level: the encoder's state at the mask
  is transformed, and the product with the vector of a label, plus a bias, is
  the label's logit. The token [SEP] is scored in the same way. It says that the
  document has no further level.

  The level of a label is its place among the levels that have labels (see
  levels.label_levels). A level above a gold label may have none: its vector is
  0, and neither a label nor [SEP] is to be predicted there. [SEP] belongs to
  the level after the deepest gold label. A document without gold has [SEP] at
  the first level.

  With Ranking.FULL, generation goes on after [SEP] is emitted. The probability
  of a label after the end is multiplied by the probability that [SEP] is
  absent, so it is below 0.5.
  """

  reads_prefix = True

  def __init__(self, config: HBGLConfig, inputs: HeadInputs, *, rngs: nnx.Rngs):
    super().__init__(inputs.n_labels, config.chunk)
    self.ranking, self.masked = config.ranking, config.masked
    level_L = label_levels(inputs.hierarchy)
    self.n_levels = 1 + int(level_L.max(initial=0))
    rows = padded_labels(self.n_labels)
    self.kernel = label_rows(normal(rngs, (rows, inputs.dim), STDDEV))
    bias_L = inputs.bias_L if config.priors else None
    self.bias = label_rows(padded_row(bias_L, rows))
    # int32 [L], from 0, PAD for padding. It skips levels without labels.
    self.level = label_rows(level_L, Frozen, PAD)
    # The vectors of [SEP] and [MASK] start from the word vectors
    # (train/initial/label_vectors.py). In the authors' code, they stay equal to
    # those of the tokens in documents.
    self.special = nnx.Param(normal(rngs, (2, inputs.dim), STDDEV))
    self.end_bias = nnx.Param(jnp.zeros(1))  # of [SEP]
    self.transform = Transform(inputs.encoder, rngs=rngs)

  def prepare(self, prefix: Prefix) -> Float32[Array, 'B L_or_more']:
    """Generates the labels of documents, and returns the scores of all labels.

    A label is emitted if its probability is above 0.5 at its level, and if
    [SEP] was not emitted at this level or above. The labels that are emitted at
    a level are the input of the next level.
    """
    level_L = self.level[...]
    rows = len(level_L)

    def emit(
      level: jax.Array, state_BD: jax.Array, results: tuple
    ) -> tuple[jax.Array, tuple]:
      scores_BL, going_B, end_B = results
      h_BD = self.transform(state_BD)
      logits_BL = scores(h_BD, self.kernel.astype(h_BD.dtype)) + self.bias[...]
      end_here_B = self._end(h_BD)
      ends_B = going_B & (end_here_B > 0)
      end_B, going_B = jnp.where(ends_B, end_here_B, end_B), going_B & ~ends_B
      here_BL = (level_L == level) & (logits_BL > 0)
      going_B1, ranked_BL = going_B[:, None], here_BL & going_B[:, None]
      final_BL = logits_BL
      if self.ranking is Ranking.FULL:
        late_BL = logit_of_product(logits_BL, -end_B[:, None])
        final_BL = jnp.where(going_B1, logits_BL, late_BL)
        ranked_BL = jnp.broadcast_to(level_L == level, here_BL.shape)
      scores_BL = jnp.where(ranked_BL, final_BL, scores_BL)
      level_BD = product(here_BL.astype(jnp.float32), self.kernel[...], (1, 0))
      return level_BD, (scores_BL, going_B, end_B)

    batch = len(prefix.lengths_B)
    results = (
      jnp.full((batch, rows), -jnp.inf),
      jnp.ones(batch, bool),
      jnp.zeros(batch),
    )
    mask_D = self.special[1]
    return generate(prefix, self.n_levels, mask_D, emit, results)[0]

  def loss(
    self,
    features: Prefix,
    positives_BP: Int32[Array, 'B P'],
    mask_B: Bool[Array, ' B'],
    loss: LabelLoss,
    weights: LabelWeights | None = None,
    rngs: nnx.Rngs | None = None,
    replaced_BN: Bool[Array, 'B N'] | None = None,
  ) -> Float32[Array, '']:
    """Returns the loss of generation, summed over documents.

    At the pseudo masks of all levels down to that of [SEP], the loss is taken
    over [SEP] and all labels. The labels of other levels are not gold there.

    The loss of a document is the sum over its levels. If loss.reduction is
    MEAN_LABELS, it is divided by 1 + L. In the authors' code, it is divided by
    the number of levels of all documents of the batch too.

    Without rngs, there is no dropout and no replaced level. replaced_BN says
    which levels are replaced by [MASK]; by default, it is drawn from rngs.
    """
    n = self.n_levels
    gold_BP = gold_of(positives_BP, mask_B)
    gold_BP = jnp.where(gold_BP < self.n_labels, gold_BP, PAD)
    level_BP = jnp.where(gold_BP == PAD, PAD, self.level[...][gold_BP])
    at_BNP = level_BP[:, None, :] == jnp.arange(n + 1)[:, None]
    # PAD is -1, so without gold labels, [SEP] is at level 0.
    end_B = 1 + level_BP.max(axis=1, initial=PAD)  # the level of [SEP]
    # PAD reads row 0, but at_BNP is False there.
    rows_BPD = self.kernel[...][jnp.maximum(gold_BP, 0)]
    floats = at_BNP[:, :n].astype(jnp.float32)
    levels_BND = product(floats, rows_BPD, (2, 1), shared=1)
    if replaced_BN is None and rngs is not None:
      shape = len(mask_B), n
      replaced_BN = jax.random.bernoulli(rngs.dropout(), self.masked, shape)
    if replaced_BN is not None:
      mask = replaced_BN[:, :, None]
      levels_BND = jnp.where(mask, self.special[1], levels_BND)
    # No gradient flows into label vectors through the levels that are read, as
    # in the authors' code.
    levels_BND = jax.lax.stop_gradient(levels_BND)
    states = taught_states(features, levels_BND, self.special[1], rngs)
    h = self.transform(states)
    asked_BN = mask_B[:, None] & (jnp.arange(n + 1) <= end_B[:, None])
    total = _loss_of_end(loss, self._end(h), end_B, asked_BN)
    gold_BNP = jnp.where(at_BNP, gold_BP[:, None], PAD)
    total += head_loss(
      LabelRowsHead(self),
      h.reshape(-1, h.shape[-1]),
      gold_BNP.reshape(-1, gold_BP.shape[1]),
      asked_BN.reshape(-1),
      dataclasses.replace(loss, reduction=Reduction.SUM_LABELS),
      weights,
    )
    is_mean = loss.reduction is Reduction.MEAN_LABELS
    return total / (1 + self.n_labels) if is_mean else total

  def _end(self, h: Float[Array, '*axes D']) -> Float32[Array, '*axes']:
    wide = h.astype(jnp.float32) * self.special[0]
    return wide.sum(axis=-1) + self.end_bias[0]


def _loss_of_end(loss, logits_BN, end_B, asked_BN) -> jax.Array:
  is_end_BN = jnp.arange(logits_BN.shape[1]) == end_B[:, None]
  loss_BN, _ = loss(logits_BN, is_end_BN)
  return jnp.where(asked_BN, loss_BN, 0).sum()
