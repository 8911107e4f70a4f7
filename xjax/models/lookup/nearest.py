"""Finds the nearest of many dense vectors with the devices of a mesh."""

from collections.abc import Mapping

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from jaxtyping import Float32, Int, Int32
import numpy as np

from xjax.core.mesh import DATA, LABEL, own_rows, put_batch, put_labels
from xjax.models.lookup.neighbour_loops import LEAST
from xjax.models.lookup.neighbours import LoopRows, NearestDocuments
from xjax.networks.heads.head import Head
from xjax.networks.topk import head_topk

_SPARE = 32  # documents that devices propose beyond those that are listed
_BATCH = 256  # rows that are compared at a time, by one compiled program
_CHUNK = 8192
# Products on TPUs, which add up products of bfloat16 parts, are less accurate
# than sums of float32 products.
_INACCURACY = 4


class _Documents(Head):
  """Scores documents by the cosines of their vectors, as a head scores labels.

  In a list of the best labels, label i stands for document i.
  """

  def __init__(self, units_ND: np.ndarray, mesh: jax.sharding.Mesh, chunk: int):
    self.n_labels, self.chunk = len(units_ND), chunk
    spec = LABEL, None
    rows_LD = put_labels(units_ND, NamedSharding(mesh, P(*spec)))
    self.units_LD = nnx.Param(rows_LD, out_sharding=spec)

  def logits(
    self, features: jax.Array, chunk: Mapping[str, jax.Array]
  ) -> jax.Array:
    """Computes the cosines of a chunk of documents."""
    units_CD = chunk['units_LD']
    return jnp.matmul(features, units_CD.T, precision='highest')


class DeviceNeighbours:
  """Finds the nearest of N dense vectors with the devices of a mesh.

  The vectors are divided over the label axis of the mesh. Each shard compares
  its vectors chunk by chunk, and only the lists of shards are gathered
  (topk.head_topk). The devices propose somewhat more documents than are listed.
  The host computes the exact cosines of the proposed documents. If rounding
  errors may have hidden a document from a list, the host searches for that list
  again. So the results are those of NearestDocuments, on every mesh.
  """

  def __init__(
    self,
    documents: NearestDocuments,
    mesh: jax.sharding.Mesh,
    *,
    chunk: int = _CHUNK,
    spare: int = _SPARE,
  ):
    """Copies the vectors to the devices.

    Args:
      documents: the vectors, which the host keeps.
      mesh: the (data, label) mesh.
      chunk: number of vectors that a device compares at a time.
      spare: number of documents that devices propose beyond those listed.
    """
    if not documents.dense:
      raise ValueError('devices can only search among dense vectors')
    self._documents, self._mesh, self._spare = documents, mesh, spare
    units_ND = _units(documents.rows, documents.n_features)
    with jax.set_mesh(mesh):
      head = _Documents(units_ND, mesh, chunk)
      graphdef, self._params = nnx.split(head)

    def search(
      params: nnx.State, units_BD: jax.Array, k: int
    ) -> tuple[jax.Array, jax.Array]:
      ids, scores = head_topk(nnx.merge(graphdef, params), units_BD, k)
      return ids[0], scores[0]

    self._topk = jax.jit(
      search,
      static_argnames='k',
      out_shardings=NamedSharding(mesh, P(DATA)),
    )

  def nearest(
    self,
    rows: Float32[np.ndarray, 'B D'],
    k: int,
    exclude: Int[np.ndarray, ' B'] | None = None,
  ) -> tuple[Int32[np.ndarray, 'B K'], Float32[np.ndarray, 'B K']]:
    """Returns the k vectors with the largest cosines, for each row.

    If there are several processes, all must call this function with the same
    number of rows.

    Args:
      rows, k, exclude: as in NearestDocuments.nearest.

    Returns:
      ids, similarities: as in NearestDocuments.nearest.

    Raises:
      DataError: a value is not finite.
    """
    proposed, cosines = self._proposed(rows, k + self._spare)
    ids, sims = self._documents.nearest_of(rows, proposed, k, exclude)
    # The cosine of a document that is not proposed is at most the last proposed
    # cosine, plus the error. If not even k documents are proposed, the last
    # cosine is -inf.
    margins, _ = self._documents.error_bounds(LoopRows.of(rows))
    best_left = cosines[:, -1] + _INACCURACY * margins
    unsure = best_left >= np.maximum(sims[:, -1], LEAST)
    if unsure.any():
      own = None if exclude is None else exclude[unsure]
      again = self._documents.nearest(rows[unsure], k, own)
      ids[unsure], sims[unsure] = again
    return ids, sims

  def _proposed(
    self, rows: np.ndarray, k: int
  ) -> tuple[Int32[np.ndarray, 'B A'], Float32[np.ndarray, 'B A']]:
    """Returns the documents that devices propose, and their float32 cosines."""
    units = _units(LoopRows.of(rows), rows.shape[1])
    ids = np.empty((len(rows), k), np.int32)
    cosines = np.empty((len(rows), k), np.float32)
    with jax.set_mesh(self._mesh):
      for start in range(0, len(rows), _BATCH):
        batch = units[start : start + _BATCH]
        padding = [(0, _BATCH - len(batch)), (0, 0)]
        batch_BD = put_batch(np.pad(batch, padding), self._mesh)
        parts = self._topk(self._params, batch_BD, k=k)
        for whole, part in zip((ids, cosines), parts, strict=True):
          whole[start : start + _BATCH] = own_rows(part)[: len(batch)]
    return ids, cosines


def _units(rows: LoopRows, dim: int) -> Float32[np.ndarray, 'N D']:
  """Returns vectors divided by their lengths."""
  return rows.values.reshape(-1, dim) * rows.inverses[:, None]
