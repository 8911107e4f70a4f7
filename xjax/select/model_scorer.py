"""A neural model as the scorer that evaluation and prediction know."""

from collections.abc import Sequence
import functools
from typing import Any

from flax import nnx
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np

from xjax.core.mesh import BATCH, DATA, own_rows, put_batch, put_labels
from xjax.core.types import AS_LOGITS, Batch, ScoreKind
from xjax.score.heads.contract import row_spec
from xjax.select.topk import head_topk


class ModelScorer:
  """Top-k of a TextModel on a mesh (a core.types.Scorer).

  Attributes:
    score_kind: of the head's scores: LOGIT or MARGIN.
    n_labels: labels the model scores; later ones are never selected.
    assigned_above: as of Predictions: 0 for margins, else None.
    recall: as given.
    selected_by: as of core.types.Scorer.
  """

  def __init__(
    self,
    graphdef: nnx.GraphDef,
    params: nnx.State,
    mesh: jax.sharding.Mesh,
    n_labels: int,
    score_kind: ScoreKind = ScoreKind.LOGIT,
    recall: float = 1.0,
  ):
    """Nothing is compiled before the first batch, then once per shape.

    Args:
      graphdef: of the TextModel, as `nnx.split` gives it.
      params: its parameters on the mesh; may be set anew between batches.
      mesh: the (data, label) mesh.
      n_labels: labels of the model's head.
      score_kind: what the loss has made of its scores.
      recall: of topk.head_topk; 1: exact.
    """
    self._graphdef = graphdef
    self.params = params
    self.mesh = mesh
    self.n_labels = n_labels
    self.score_kind = score_kind
    self.recall = recall
    self.selected_by = 'exact' if recall == 1 else f'recall={float(recall)!r}'
    self.assigned_above = 0.0 if score_kind is ScoreKind.MARGIN else None
    self._placed: dict[int, tuple[np.ndarray, jax.Array]] = {}
    self._topk = jax.jit(
      functools.partial(_topk, graphdef, recall),
      static_argnames=('k', 'sigmoid'),
      out_shardings=NamedSharding(mesh, P(None, DATA)),
    )
    self._attention = jax.jit(
      functools.partial(_attention, graphdef),
      out_shardings=NamedSharding(mesh, BATCH),
    )

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """As core.types.Scorer, for this process's rows.

    Args:
      batch: NumPy, this process's rows; all processes call with as many.
      k: length of the lists.
      weights, slices, allowed: NumPy; may be longer than n_labels, allowed_BL
        has this process's rows. The others go to the devices once, for as long
        as each call is given the same arrays: change no array between calls,
        make another.
      sigmoid: each other one is compiled for.

    Returns:
      ids_GBK, scores_GBK: NumPy, this process's rows.
    """
    filters = {'weights': weights, 'slices': tuple(slices)}
    if np.ndim(allowed) < 2:
      filters = self._put_rows(filters | {'allowed': allowed})
    else:
      own_BL = put_batch(allowed[:, : self.n_labels], self.mesh)
      filters = self._put_rows(filters) | {'allowed': own_BL}
    with jax.set_mesh(self.mesh):
      batch = put_batch(batch, self.mesh)
      best = self._topk(self.params, batch, k=k, sigmoid=sigmoid, **filters)
    ids_GBK, scores_GBK = (own_rows(x, axis=1) for x in best)
    return ids_GBK, scores_GBK

  def _put_rows(self, filters: dict[str, Any]) -> dict[str, Any]:
    """Arrays [L] on the mesh as label rows are; the last call's are there."""
    last, self._placed = self._placed, {}

    def put(given: np.ndarray) -> jax.Array:
      key = id(given)
      if key not in self._placed:
        # The array given is kept: no other one has its id meanwhile.
        self._placed[key] = last.get(key) or (given, self._put(given))
      return self._placed[key][1]

    return jax.tree.map(put, filters)

  def _put(self, given: np.ndarray) -> jax.Array:
    """Its first n_labels, bool or float32."""
    if len(given) < self.n_labels:
      raise ValueError(f'a filter has {len(given)} of {self.n_labels} labels')
    rows = given[: self.n_labels]
    if rows.dtype != bool:
      rows = rows.astype(np.float32)
    axes = nnx.merge(self._graphdef, self.params).head.axes
    return put_labels(rows, NamedSharding(self.mesh, row_spec(axes)))

  def attention(self, batch: Batch, ids_BK: np.ndarray) -> np.ndarray:
    """How much labels attend to each token of their documents.

    Args:
      batch: as of topk.
      ids_BK: int32, labels of this process's rows, PAD beyond a list.

    Returns:
      alpha_BKT: as heads.attention_weights; NumPy, this process's rows.
    """
    with jax.set_mesh(self.mesh):
      given = put_batch((batch, ids_BK), self.mesh)
      return own_rows(self._attention(self.params, *given))


def _topk(
  graphdef, recall, params, batch, *, k, weights, slices, allowed, sigmoid
):
  model = nnx.merge(graphdef, params)
  return head_topk(
    model.head,
    model.features(batch),
    k,
    weights=weights,
    slices=slices,
    allowed=allowed,
    sigmoid=sigmoid,
    recall=recall,
  )


def _attention(graphdef, params, batch, ids_BK):
  return nnx.merge(graphdef, params).attention(batch, ids_BK)
