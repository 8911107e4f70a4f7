"""Defines the cascade, a head that goes down a tree of labels.

It is trained at once, over all levels (Jiang et al. 2021, "LightXML";
Kharbanda et al. 2022, "CascadeXML").
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import enum
from typing import Any

from flax import nnx, struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32

from xjax.core.config_part import field
from xjax.core.errors import ConfigError
from xjax.core.mesh import padded_labels
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.levels import (
  LabelLevels,
  LevelsConfig,
  expand,
  gold_at,
)
from xjax.losses.loss import LabelLoss, LabelWeights, Reduction
from xjax.networks.batch import Shortlist
from xjax.networks.heads.cascade_level import (
  ClusterLevel,
  LevelProjection,
  draw_rows,
  first_biases,
  joined_layers,
  largest,
)
from xjax.networks.heads.head import (
  Frozen,
  Head,
  HeadConfig,
  HeadInputs,
  chunk_field,
  label_rows,
  padded_row,
)
from xjax.networks.heads.ova import scores
from xjax.networks.heads.shortlist import shortlist_loss
from xjax.networks.heads.streaming import gold_of


class Chain(enum.Enum):
  """Says how the scores on the path to a label become the label's score."""

  PRODUCT = 'product'  # of all probabilities on the path (LightXML)
  # The probability of the label times that of its cluster (CascadeXML,
  # "weighted").
  PARENT = 'parent'
  # The label's own score. The clusters only choose the labels that are scored
  # (CascadeXML, "level").
  LAST = 'last'


@dataclasses.dataclass
class CascadeConfig(HeadConfig):
  """Chooses a tree of labels whose levels are trained at once.

  `hidden`, `dropout`, `weights` and `parts` have an entry for each level of
  clusters, from coarse to fine, and one for the labels; or a single entry for
  all of them. The head needs a pooling.
  """

  pooled = True
  row_biases = False
  multiplies = True
  chooses_labels = True

  chunk: int = chunk_field(8192)
  levels: LevelsConfig = field(LevelsConfig, 'The levels of clusters.')
  kept: tuple[int, ...] = field(
    (64,),
    'Number of clusters of each level whose children are scored, or a single '
    'number for all levels of clusters. In training, the clusters of gold '
    'labels are always among them.',
  )
  hidden: tuple[int, ...] = field(
    (0,),
    "Size of a linear layer between the document's vector and the rows of a "
    'level. 0 means no such layer.',
  )
  dropout: tuple[float, ...] = field(
    (0.1,), "Dropout rate of the document's vector."
  )
  weights: tuple[float, ...] = field((1.0,), 'Weight of the loss of a level.')
  parts: tuple[str, ...] = field(
    ('',),
    'Joined layers of the encoder (model.encoder.joined) that a level reads, '
    "counted from 0, such as '0+1' for the first two. Empty stands for all.",
  )
  chain: Chain = field(
    Chain.PRODUCT, 'How the score of a label depends on its clusters.'
  )

  def build(self, inputs: HeadInputs, rngs: nnx.Rngs) -> 'Cascade':
    return Cascade(self, inputs, rngs=rngs)

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    n = len(self.levels.sizes)
    if not n:
      yield f'{path}.levels.sizes=(): must have at least one number'
    for name in ('kept', 'hidden', 'dropout', 'weights', 'parts'):
      values, length = getattr(self, name), n + (name != 'kept')
      if len(values) not in (1, length):
        yield f'{path}.{name}={values}: must have 1 or {length} entries'
    bounds = {'kept': 1, 'hidden': 0, 'weights': 0, 'dropout': 0}
    for name, least in bounds.items():
      if min(getattr(self, name), default=least) < least:
        yield (f'{path}.{name}={getattr(self, name)}: must be at least {least}')
    if not all(0 <= rate < 1 for rate in self.dropout):
      yield f'{path}.dropout={self.dropout}: must be from 0 to below 1'
    joined = max(1, len(config.model.encoder.joined))
    for part in self.parts:
      layers = joined_layers(part)
      if not all(x.isdecimal() and int(x) < joined for x in layers):
        yield (
          f'{path}.parts={self.parts}: {part!r} must be numbers below {joined} '
          "(the number of config.model.encoder.joined), such as '0+1'"
        )

  def check_gold(
    self, levels: LabelLevels, gold: Ragged, ids: Sequence[str]
  ) -> None:
    """Checks that all clusters of gold labels can be kept in training."""
    for level, kept in enumerate(_each(self.kept, len(levels) - 1)):
      nodes, _ = levels.gold(level, gold)
      most = int(nodes.lengths.max(initial=0))
      if most > kept:
        raise ConfigError(
          f'config.model.head.kept={self.kept}: document '
          f'{ids[int(nodes.lengths.argmax())]!a} has gold labels in {most} '
          f'clusters of level {level}; set the number of this level to {most} '
          'or more'
        )


def _each(values: Sequence, n: int) -> tuple:
  """Returns n entries; a single entry stands for all of them."""
  return tuple(values) if len(values) == n else tuple(values) * n


@struct.dataclass
class CascadeFeatures:
  """Holds what the levels of a cascade read."""

  document_BX: jax.Array  # with the joined layers of the encoder
  last_BD: jax.Array  # what label rows read, without dropout
  # The log score of each cluster of the finest level, -inf for clusters whose
  # labels are not scored.
  cluster_logs: jax.Array  # float32 [B, clusters]
  kept: tuple[jax.Array, ...]  # for each level, bool [B, clusters]


class LabelRowsHead(Head):
  """Scores labels by the rows of another head, for the loss of that head."""

  def __init__(self, head: Head):
    self.n_labels, self.chunk = head.n_labels, head.chunk
    self.kernel, self.bias = head.kernel, head.bias

  def logits(
    self, features: jax.Array, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    return _label_logits(features, chunk)


class Cascade(Head):
  """Scores clusters of labels, and then the labels of the best clusters.

  In prediction, all clusters are scored. Level by level, the `kept` best
  clusters among the children of kept clusters stay. Labels below other clusters
  get the score -inf. If all clusters are kept, scores are exact.
  """

  def __init__(
    self, config: CascadeConfig, inputs: HeadInputs, *, rngs: nnx.Rngs
  ):
    self.n_labels, self.chunk = inputs.n_labels, config.chunk
    self.chain, levels = config.chain, inputs.levels
    n = len(levels) - 1
    self.kept = _each(config.kept, n)
    self.weights = _each(config.weights, n + 1)
    sizes = _each(config.parts, n + 1), _each(config.hidden, n + 1)
    readings = [
      LevelProjection(inputs.dim, inputs.joined, part, hidden, rate, rngs=rngs)
      for part, hidden, rate in zip(*sizes, _each(config.dropout, n + 1))
    ]
    *cluster_biases, bias_L = first_biases(levels, inputs.bias_L)
    # From coarse to fine.
    self.clusters = nnx.List(
      ClusterLevel(reading, levels, level, bias, rngs=rngs)
      for level, (reading, bias) in enumerate(zip(readings, cluster_biases))
    )
    self.reading = readings[-1]
    shape = padded_labels(self.n_labels), self.reading.dim
    self.kernel = label_rows(draw_rows(rngs, shape))
    self.bias = label_rows(padded_row(bias_L, shape[0]))
    self.parent = label_rows(levels.parents[-1], Frozen, PAD)

  @property
  def shortlist_size(self) -> int | None:
    """Returns the length of a shortlist; None if all labels are scored."""
    sizes = [level.parent.shape[0] for level in self.clusters]
    if all(k >= n for k, n in zip(self.kept, sizes)):
      return None
    most = self.clusters[-1].children.shape[1]
    return min(self.kept[-1], sizes[-1]) * most

  def prepare(self, document_BX: Float[Array, 'B X']) -> CascadeFeatures:
    """Computes the features of labels, and the scores of all clusters."""
    return self._features(document_BX, None)

  def narrowed(
    self, features: CascadeFeatures, logs: Float32[Array, '*documents L']
  ) -> CascadeFeatures:
    return self._features(features.document_BX, logs)

  def _features(self, document_BX, logs) -> CascadeFeatures:
    weights = []
    # A cluster has the largest weight of its labels.
    for level in reversed(self.clusters):
      logs = None if logs is None else level.best(logs)
      weights.append(logs)
    # The arrays of a level are [B, clusters].
    inside, path, each = True, 0.0, []
    for level, kept, weight in zip(self.clusters, self.kept, weights[::-1]):
      own = jax.nn.log_sigmoid(level.logits(level.reading(document_BX)))
      if level is not self.clusters[0]:
        above = level.parent[...]
        inside, path = inside[:, above], path[:, above]
      keys = own if weight is None else own + weight
      inside = largest(jnp.where(inside, keys, -jnp.inf), kept)
      path = path + own
      each.append(inside)
    chained = {
      Chain.PRODUCT: path,
      Chain.PARENT: own,
      Chain.LAST: jnp.zeros_like(own),
    }[self.chain]
    cluster_logs = jnp.where(inside, chained, -jnp.inf)
    last_BD = self.reading(document_BX)
    return CascadeFeatures(document_BX, last_BD, cluster_logs, tuple(each))

  def logits(
    self, features: CascadeFeatures, chunk: Mapping[str, jax.Array]
  ) -> Float32[Array, 'B C']:
    logits_BC = _label_logits(features.last_BD, chunk)
    logs_BC = features.cluster_logs[:, chunk['parent']]
    inside_BC = logs_BC != -jnp.inf
    if self.chain is Chain.LAST:
      return jnp.where(inside_BC, logits_BC, -jnp.inf)
    logs_BC = jnp.where(inside_BC, logs_BC, 0.0)
    # The logit of exp(log_BC). The minimum keeps the probability below 1.
    log_BC = jnp.minimum(logs_BC + jax.nn.log_sigmoid(logits_BC), -1e-30)
    both_BC = log_BC - jnp.log(-jnp.expm1(log_BC))
    return jnp.where(inside_BC, both_BC, -jnp.inf)

  def loss(
    self,
    features: CascadeFeatures,
    positives_BP: Int32[Array, 'B P'],
    mask_B: Bool[Array, ' B'],
    loss: LabelLoss,
    weights: LabelWeights | None = None,
    rngs: nnx.Rngs | None = None,
  ) -> Float32[Array, '']:
    """Returns the weighted sum of the losses of all levels over documents.

    The loss of a level is the sum or the mean (loss.reduction) over its
    candidates. They are the children of the kept clusters. The gold clusters
    are kept first, and then the clusters with the highest logits. The gradient
    does not flow through the choice.
    """
    gold = self._gold(gold_of(positives_BP, mask_B))
    document_BX, total, ids_BA = features.document_BX, jnp.float32(0), None
    for i, level in enumerate(self.clusters):
      x_BD = level.reading(document_BX, rngs)
      if ids_BA is None:
        logits_BA = level.logits(x_BD)
        every = jnp.arange(logits_BA.shape[1], dtype=jnp.int32)
        ids_BA = jnp.broadcast_to(every, logits_BA.shape)
      else:
        logits_BA = level.logits_at(x_BD, ids_BA)
      gold_BA = _is_in(ids_BA, gold[i])
      loss_B = _level_loss(loss, logits_BA, gold_BA, ids_BA != PAD)
      total += self.weights[i] * jnp.where(mask_B, loss_B, 0).sum()
      # CascadeXML (Section 3.3) adds 1 to the probability of a gold cluster
      # instead. In float32, the sum can equal the probability of another
      # cluster.
      keys_BA = jnp.where(gold_BA, jnp.inf, lax.stop_gradient(logits_BA))
      keys_BA = jnp.where(ids_BA == PAD, -jnp.inf, keys_BA)
      at_BK = lax.top_k(keys_BA, min(self.kept[i], keys_BA.shape[1]))[1]
      nodes_BK = jnp.take_along_axis(ids_BA, at_BK, axis=1)
      ids_BA = expand(level.children[...], nodes_BK)
    gold_BA = _is_in(ids_BA, gold[-1])
    shortlist = Shortlist(ids_BA, gold_BA)
    last_BD = self.reading(document_BX, rngs)
    rows = LabelRowsHead(self), last_BD, shortlist, mask_B
    return total + self.weights[-1] * shortlist_loss(*rows, loss, weights)

  def _gold(self, positives_BP: jax.Array) -> list[jax.Array]:
    """Returns the gold nodes of each level, and last the gold labels."""
    inside_BP = positives_BP < self.n_labels
    gold = [jnp.where(inside_BP, positives_BP, PAD)]
    # The coarsest level has no level above.
    parents = [level.parent[...] for level in self.clusters[1:]]
    for parent in [self.parent[...], *reversed(parents)]:
      gold.append(gold_at(parent, gold[-1]))
    return gold[::-1]

  @property
  def kept_clusters(self) -> tuple[int, ...]:
    """Returns how many clusters of a document each level keeps."""
    sizes = [level.parent.shape[0] for level in self.clusters]
    return tuple(map(min, self.kept, sizes))

  def kept_gold(
    self, features: CascadeFeatures, positives_BP: Int32[Array, 'B P']
  ) -> Int32[Array, 'B steps']:
    real_BP = (positives_BP != PAD) & (positives_BP < self.n_labels)
    nodes_BP = self.parent[...][jnp.where(real_BP, positives_BP, 0)]
    counts = []
    for level, kept in zip(reversed(self.clusters), reversed(features.kept)):
      inside_BP = jnp.take_along_axis(kept, nodes_BP, axis=1)
      counts.append((real_BP & inside_BP).sum(axis=1))
      nodes_BP = level.parent[...][nodes_BP]
    # The labels of the finest kept clusters are the shortlist.
    return jnp.stack([*counts[::-1], counts[0]], axis=1)


def _label_logits(
  x_BD: jax.Array, chunk: Mapping[str, jax.Array]
) -> Float32[Array, 'B C']:
  return scores(x_BD, chunk['kernel'].astype(x_BD.dtype)) + chunk['bias']


def _is_in(ids_BA: jax.Array, gold_BP: jax.Array) -> Bool[Array, 'B A']:
  same_BA = (ids_BA[:, :, None] == gold_BP[:, None, :]).any(axis=2)
  return same_BA & (ids_BA != PAD)


def _level_loss(loss, logits_BA, gold_BA, real_BA) -> Float32[Array, ' B']:
  loss_BA, _ = loss(logits_BA, gold_BA)
  sum_B = jnp.where(real_BA, loss_BA, 0).sum(axis=1)
  if loss.reduction is Reduction.SUM_LABELS:
    return sum_B
  return sum_B / jnp.maximum(real_BA.sum(axis=1), 1)
