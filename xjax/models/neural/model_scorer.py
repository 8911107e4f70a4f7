"""Defines the scorer of neural models, for evaluation and prediction."""

from collections.abc import Sequence
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from jaxtyping import Bool, Float, Float32, Int32
import numpy as np

from xjax.core.mesh import BATCH, DATA, own_rows, put_batch, put_labels
from xjax.core.types import AS_LOGITS, PAD, Batch, ScoreKind
from xjax.networks.heads.head import row_spec
from xjax.networks.topk import head_topk, narrowed_topk


class ModelScorer:
  """Ranks labels with a TextModel on a mesh (a core.types.Scorer).

  Attributes:
    score_kind: the kind of the head's scores, LOGIT or MARGIN.
    n_labels: number of labels that the model scores. All selected labels have
      an index below n_labels.
    assigned_above: 0 for margins, else None, as in core.types.Scorer.
    recall: as in topk.head_topk.
    shortlist: number of labels of a document that the head scores; None if it
      scores all labels.
    selected_by: as in core.types.Scorer.
  """

  def __init__(
    self,
    graphdef: nnx.GraphDef,
    params: nnx.State,
    mesh: jax.sharding.Mesh,
    n_labels: int,
    score_kind: ScoreKind = ScoreKind.LOGIT,
    recall: float = 1.0,
    shortlist: int | None = None,
  ):
    """Makes a scorer, which compiles a program for each new shape of batches.

    Args:
      graphdef: the TextModel without its parameters, as `nnx.split` returns it.
      params: the TextModel's parameters on the mesh. The attribute `params` may
        be replaced between batches.
      mesh: the (data, label) mesh.
      n_labels: number of labels of the model's head.
      score_kind: the kind of the scores, which depends on the training loss.
      recall: as in topk.head_topk, where 1 means exact lists.
      shortlist: the head's shortlist_size.
    """
    self._graphdef = graphdef
    self.params = params
    self.mesh = mesh
    self.n_labels = n_labels
    self.score_kind = score_kind
    self.recall = recall
    self.shortlist = shortlist
    self.selected_by = 'exact' if recall == 1 else f'recall={float(recall)!r}'
    if shortlist:
      self.selected_by = f'shortlist={shortlist}'
    self.assigned_above = 0.0 if score_kind is ScoreKind.MARGIN else None
    # Maps the id of a NumPy array to the array and its copy on the devices.
    self._on_devices: dict[int, tuple[np.ndarray, jax.Array]] = {}
    self._topk = jax.jit(
      functools.partial(_topk, graphdef, recall),
      static_argnames=('k', 'sigmoid', 'measured'),
      out_shardings=NamedSharding(mesh, P(None, DATA)),
    )
    self._attention = jax.jit(
      functools.partial(_attention, graphdef),
      out_shardings=NamedSharding(mesh, BATCH),
    )
    self._vectors = jax.jit(
      functools.partial(_vectors, graphdef),
      out_shardings=NamedSharding(mesh, BATCH),
    )

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: Float[np.ndarray, ' L_or_more'] | None = None,
    slices: Sequence[Bool[np.ndarray, ' L_or_more']] = (),
    allowed: Bool[np.ndarray, '*documents L_or_more'] | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[Int32[np.ndarray, 'G B K'], Float32[np.ndarray, 'G B K']]:
    """Returns the k best labels for this process's rows; see Scorer.topk.

    Args:
      batch: this process's rows, as NumPy arrays. All processes must call this
        function with the same number of rows.
      k: length of the lists.
      weights, slices, allowed: as in core.types.Scorer, but NumPy arrays. The
        arrays may be longer than n_labels. If `allowed` has two axes, it has
        the rows of this process. An array with one axis is transferred to the
        devices only once if every call gets the same array object. So never
        change an array between calls; make a new array instead.
      sigmoid: as in core.types.Scorer. Each new value compiles a new program.

    Returns:
      ids_GBK, scores_GBK: this process's rows, as NumPy arrays.
    """
    return self._ranked(batch, k, weights, slices, allowed, sigmoid)

  def measured_topk(
    self,
    batch: Batch,
    k: int,
    slices: Sequence[np.ndarray] = (),
    measured: int = 0,
    allowed: Bool[np.ndarray, ' L_or_more'] | None = None,
  ) -> tuple[np.ndarray, np.ndarray, Int32[np.ndarray, 'M B steps']]:
    """Returns the k best labels, and counts what the head's search keeps.

    Args:
      batch, k, slices: as in topk.
      measured: number of slices, the first ones, that are counted beside all
        labels.
      allowed: labels that may be selected. Other gold labels are not counted.

    Returns:
      ids_GBK, scores_GBK: as in topk.
      kept: numbers of gold labels that each step keeps (see Head.kept_gold), of
        all labels and then of the M - 1 measured slices.
    """
    filters = {'slices': slices, 'allowed': allowed}
    return self._ranked(batch, k, **filters, measured=measured)

  def _ranked(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
    measured: int | None = None,
  ) -> tuple[np.ndarray, ...]:
    """Returns the results of topk, or of measured_topk if `measured` is set."""
    filters = {'weights': weights, 'slices': tuple(slices)}
    if np.ndim(allowed) < 2:
      filters = self._put_rows(filters | {'allowed': allowed})
    else:
      allowed_BL = put_batch(allowed[:, : self.n_labels], self.mesh)
      filters = self._put_rows(filters) | {'allowed': allowed_BL}
    with jax.set_mesh(self.mesh):
      batch = put_batch(batch, self.mesh)
      more = {'k': k, 'sigmoid': sigmoid, 'measured': measured}
      best = self._topk(self.params, batch, **more, **filters)
    return tuple(own_rows(x, axis=1) for x in best)

  def _put_rows(self, filters: dict[str, Any]) -> dict[str, Any]:
    """Puts arrays [L] on the mesh, divided over devices like label rows.

    An array of the last call is not transferred again.
    """
    last, self._on_devices = self._on_devices, {}

    def put(array: np.ndarray) -> jax.Array:
      key = id(array)
      if key not in self._on_devices:
        # Keeping the NumPy array makes sure that no other array gets its id.
        self._on_devices[key] = last.get(key) or (array, self._put(array))
      return self._on_devices[key][1]

    return jax.tree.map(put, filters)

  def _put(self, array: np.ndarray) -> jax.Array:
    """Puts an array's first n_labels entries on the mesh.

    An array of another dtype than bool is converted to float32.
    """
    if len(array) < self.n_labels:
      raise ValueError(
        f'a filter has the length {len(array)}, which is less than the number '
        f'of labels, {self.n_labels}'
      )
    rows = array[: self.n_labels]
    if rows.dtype != bool:
      rows = rows.astype(np.float32)
    axes = nnx.merge(self._graphdef, self.params).head.axes
    return put_labels(rows, NamedSharding(self.mesh, row_spec(axes)))

  def attention(
    self, batch: Batch, ids_BK: Int32[np.ndarray, 'B K']
  ) -> Float32[np.ndarray, 'B K T']:
    """Returns how much each listed label attends to each token of a document.

    Args:
      batch: as in topk.
      ids_BK: labels of this process's rows, with PAD at the end of shorter
        lists.

    Returns:
      alpha_BKT: this process's rows, as a NumPy array (see
        heads.attention_weights).
    """
    with jax.set_mesh(self.mesh):
      arguments = put_batch((batch, ids_BK), self.mesh)
      return own_rows(self._attention(self.params, *arguments))

  @property
  def kept_clusters(self) -> tuple[int, ...]:
    """Returns how many clusters of a document each level of the head keeps."""
    return nnx.merge(self._graphdef, self.params).head.kept_clusters

  @property
  def vector_dim(self) -> int:
    """Returns the size D of the vectors that `vectors` returns."""
    return nnx.merge(self._graphdef, self.params).encoder.dim

  def vectors(self, batch: Batch) -> Float32[np.ndarray, 'B D']:
    """Returns one vector of each document (see TextModel.vectors).

    Args:
      batch: as in topk.

    Returns:
      document_BD: this process's rows, as a NumPy array.
    """
    with jax.set_mesh(self.mesh):
      batch = put_batch(batch, self.mesh)
      return own_rows(self._vectors(self.params, batch))


def _topk(
  graphdef,
  recall,
  params,
  batch,
  *,
  k,
  weights,
  slices,
  allowed,
  sigmoid,
  measured,
):
  """Computes the top-k lists of a batch; jax.jit compiles this function."""
  model = nnx.merge(graphdef, params)
  head, features = model.head.ready(), model.features(batch)
  topk = head_topk if head.shortlist_size is None else narrowed_topk
  best = topk(
    head,
    features,
    k,
    weights=weights,
    slices=slices,
    allowed=allowed,
    sigmoid=sigmoid,
    recall=recall,
  )
  if measured is None:
    return best
  masks = [None, *slices[:measured]]
  if allowed is not None:
    masks = [allowed if mask is None else mask & allowed for mask in masks]
  kept = _kept_gold(head, features, batch.positives_BP, masks)
  return *best, kept


def _kept_gold(head, features, gold_BP, masks):
  """Counts the gold labels that each step of the head's search keeps.

  A mask has the labels that are searched; None stands for all labels.
  """
  counts = []
  for mask in masks:
    if mask is None:
      counts.append(head.kept_gold(features, gold_BP))
      continue
    logs = jnp.where(mask, 0.0, -jnp.inf)
    known_BP = (gold_BP != PAD) & (gold_BP < len(mask))
    inside_BP = known_BP & mask[jnp.where(known_BP, gold_BP, 0)]
    cut_BP = jnp.where(inside_BP, gold_BP, PAD)
    narrowed = head.narrowed(features, logs)
    counts.append(head.kept_gold(narrowed, cut_BP))
  return jnp.stack(counts)


def _attention(graphdef, params, batch, ids_BK):
  """Computes attention weights of labels; jax.jit compiles this function."""
  return nnx.merge(graphdef, params).attention(batch, ids_BK)


def _vectors(graphdef, params, batch):
  """Computes the vectors of documents; jax.jit compiles this function."""
  return nnx.merge(graphdef, params).vectors(batch)
