"""Ranks labels with a neural network on a mesh of devices."""

from collections.abc import Callable, Iterable
import dataclasses
import functools

from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from jaxtyping import Float32
import numpy as np

from xjax.core.config_part import kinds
from xjax.core.distributed import gather_rows
from xjax.core.mesh import BATCH, DATA, own_rows, put_batch, put_labels
from xjax.core.progress import progress
from xjax.core.ranking import Lists, Query
from xjax.core.types import AS_LOGITS, PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.models.contract import Config, Run
from xjax.models.explanations import BEYOND, LabelExplanations
from xjax.models.neural.added_labels import with_added_labels
from xjax.models.scorer import Scorer
from xjax.networks.batch import TokenBatch
from xjax.networks.heads.chunks import row_spec
from xjax.networks.heads.head import HeadConfig
from xjax.networks.topk import head_topk, restricted_topk
from xjax.train.batches.inputs import TokenReader
from xjax.train.state import StatePlan


class NeuralScorer(Scorer):
  """Ranks labels with a TextModel, whose programs run on a mesh.

  A program is compiled for each new shape of batches and each new length of
  lists. `params` are set before the first call, and may be replaced.
  """

  attends = True

  def __init__(
    self,
    run: Run,
    plan: StatePlan,
    mesh: jax.sharding.Mesh,  # (data, label)
    n_labels: int,  # of the model's head
    reader: TokenReader,  # makes batches
  ):
    self.run, self.plan, self.mesh = run, plan, mesh
    self.n_labels, self.reader = n_labels, reader
    self.params: nnx.State | None = None
    # Without arrays: only the structure of the model is asked for.
    self._model = nnx.merge(plan.graphdef, plan.abstract.params)
    recall, graphdef = run.config.eval.recall, plan.graphdef
    self.score_kind = run.config.train.loss.score_kind
    self.selected_by = 'exact' if recall == 1 else f'recall={float(recall)!r}'
    if self._model.head.shortlist_size:
      self.selected_by = f'shortlist={self._model.head.shortlist_size}'
    is_margin = self.score_kind is ScoreKind.MARGIN
    self.assigned_above = 0.0 if is_margin else None
    self._topk = topk_program(run.config, graphdef, mesh)
    self._attention = jax.jit(
      functools.partial(_attention, graphdef),
      out_shardings=NamedSharding(mesh, BATCH),
    )
    self._vectors = jax.jit(
      functools.partial(_vectors, graphdef),
      out_shardings=NamedSharding(mesh, BATCH),
    )

  @property
  def unexplained(self) -> str:
    return why_unexplained(self.run.config)

  @property
  def fixed_labels(self) -> str:
    return why_fixed(self.run.config)

  @property
  def ranks_unseen(self) -> bool:
    return self.run.config.model.head.describes

  @property
  def reads_vectors(self) -> bool:
    return self.run.config.data.tokens.dense

  def rank(self, documents: Documents, query: Query) -> Lists:
    documents = Documents.of(documents)
    if query.measured is None:
      documents = documents.without_gold()  # so batches of a shape are alike
    lists = Lists.none(query.n_lists, len(documents), query.k)
    # All processes have the same number of batches: a batch without own
    # documents is padding, since each step runs on all devices.
    rank = self.batch_ranker(documents, self._compiled(query))
    for batch in self.reader.batches(documents):
      lists.put(batch.doc_B, rank(batch))
      if query.on_block:
        query.on_block(int((batch.doc_B != PAD).sum()))
    return lists

  def batch_ranker(
    self, documents: Documents, query: Query
  ) -> Callable[[TokenBatch], Lists]:
    """Returns a function that ranks the labels of a batch.

    The filters of the query, which is for all the documents, are put on the
    devices only once. doc_B of a batch are rows of the documents. All processes
    must call the function, with batches of the same shape.
    """
    query = query.for_labels(self.n_labels)
    filters, on_devices = {'weights': None, 'allowed': None}, {}

    def put(array: np.ndarray) -> jax.Array:
      # The same array, cut to n_labels, may be several filters.
      key = array.__array_interface__['data'], array.strides, array.dtype
      if key not in on_devices:
        on_devices[key] = self._put(array)
      return on_devices[key]

    sigmoid, by_row = AS_LOGITS, None
    if query.weights is not None:
      filters['weights'] = put(query.weights.values)
      sigmoid = query.weights.sigmoid
    filters['slices'] = tuple(map(put, query.slices))
    # A filter for each document is put on the devices batch by batch, because
    # [N, L] would be too large.
    if query.allowed is not None and query.allowed.ndim == 2:
      by_row = query.allowed
    elif query.allowed is not None:
      filters['allowed'] = put(query.allowed)
    # Gold labels are counted with masks [L], not with a filter per document.
    shortlist = self._model.head.shortlist_size
    measures = shortlist and documents.gold is not None and by_row is None
    measured = query.measured if measures else None
    static = {'k': query.k, 'sigmoid': sigmoid, 'measured': measured}

    def rank(batch: TokenBatch) -> Lists:
      with jax.set_mesh(self.mesh):
        given = dict(filters)
        if by_row is not None:
          # doc_B is PAD in rows that only fill the batch; their lists are not
          # used.
          given['allowed'] = put_batch(by_row[batch.doc_B], self.mesh)
        batch = put_batch(batch, self.mesh)
        best = self._topk(self.params, batch, **static, **given)
      ids, scores, *kept = (own_rows(x, axis=1) for x in best)
      return Lists(ids, scores, self._kept(*kept) if kept else {})

    return rank

  def _kept(self, kept_MBS: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the gold labels that steps keep, from the labels up."""
    head = self._model.head
    levels = [f'level {r} recall@{n}' for r, n in enumerate(head.kept_clusters)]
    steps = [*levels, f'shortlist recall@{head.shortlist_size}'][::-1]
    # head.kept_gold counts the levels first and the shortlist last.
    parts = np.moveaxis(kept_MBS[:, :, ::-1], 2, 0)
    return dict(zip(steps, parts, strict=True))

  def _put(self, rows: np.ndarray) -> jax.Array:
    """Puts an array [L] on the mesh, divided over devices like label rows."""
    if rows.dtype != bool:
      rows = rows.astype(np.float32)
    # Masks and weights lie on the device that has the label's row, so top-k on
    # a device needs no communication for them.
    spec = row_spec(self.label_axes)
    return put_labels(rows, NamedSharding(self.mesh, spec))

  def _compiled(self, query: Query) -> Query:
    # A program is compiled for each length, so few lengths are used.
    return dataclasses.replace(query, k=self._length(query.k))

  def _length(self, k: int) -> int:
    size = self.run.config.eval.depth
    # Lengths are doubled, so that programs are compiled for few of them.
    while size < k:
      size *= 2
    # Lists may be longer than the number of labels that are scored.
    return max(k, min(size, self.n_labels))

  def explain(
    self, documents: Documents, ids_NK: np.ndarray, words: int, n_first: int = 0
  ) -> LabelExplanations:
    if self.unexplained:
      return super().explain(documents, ids_NK, words, n_first)
    documents = Documents.of(documents).without_gold()
    # No document has more than max_tokens words, so a larger number would waste
    # memory.
    words = min(words, self.reader.data.tokens.max_tokens)
    shape = (*ids_NK.shape, words + self.reader.vocab.n_special)
    at_NKW = np.full(shape, BEYOND, np.int32)
    weights_NKW = np.zeros(shape, np.float32)
    first = [np.zeros(0, np.float32)] * min(n_first, len(ids_NK))
    wider = self._length(ids_NK.shape[1]) - ids_NK.shape[1]
    padded_NK = np.pad(ids_NK, ((0, 0), (0, wider)), constant_values=PAD)
    batches = self.reader.batches(documents)
    with progress(batches, 'explaining', unit='batch') as shown:
      for batch in shown:
        alpha_BKT = self.attention(batch, padded_NK[batch.doc_B])
        alpha_BKT = alpha_BKT[:, : shape[1]]
        # Stable: of equal weights, the earlier place comes first.
        at_BKW = np.argsort(-alpha_BKT, axis=2, kind='stable')[:, :, : shape[2]]
        listed = at_BKW.shape[2]
        real_B = batch.doc_B != PAD
        rows = batch.doc_B[real_B]
        at_NKW[rows, :, :listed] = at_BKW[real_B]
        weights_NKW[rows, :, :listed] = np.take_along_axis(
          alpha_BKT, at_BKW, axis=2
        )[real_B]
        for row, alpha_KT in zip(rows.tolist(), alpha_BKT[real_B], strict=True):
          if row < len(first):
            first[row] = alpha_KT
    return LabelExplanations(
      documents, self.reader, at_NKW, weights_NKW, words, first
    )

  def attention(
    self, batch: TokenBatch, ids_BK: np.ndarray
  ) -> Float32[np.ndarray, 'B K T']:
    """Returns attention of labels (or PAD) to tokens, for own rows."""
    with jax.set_mesh(self.mesh):
      arguments = put_batch((batch, ids_BK), self.mesh)
      return own_rows(self._attention(self.params, *arguments))

  def with_labels(self, space: LabelSpace) -> 'NeuralScorer':
    if self.fixed_labels:
      return super().with_labels(space)
    plan, params = with_added_labels(
      self.params, self.n_labels, self.run, space, self.reader.vocab, self.mesh
    )
    n_labels = self.run.config.model.scored_labels(space)
    wider = NeuralScorer(self.run, plan, self.mesh, n_labels, self.reader)
    wider.params, wider.step = params, self.step
    return wider

  def warmup(self, query: Query, explain: bool = False) -> None:
    query = self._compiled(query)
    batches = self.reader.example_batches()
    with progress(batches, 'compiling', unit='batch') as shown:
      for batch in shown:
        rows = len(batch.doc_B)
        self.batch_ranker(Documents([''] * rows), query)(batch)
        if explain:
          self.attention(batch, np.full((rows, query.k), PAD, np.int32))

  @property
  def label_axes(self) -> tuple[str, ...]:
    return self._model.head.axes

  @property
  def vector_dim(self) -> int:
    return self._model.encoder.dim

  def vectors(self, documents: Documents) -> Float32[np.ndarray, 'N D']:
    """Returns one vector of each document (see TextModel.vectors)."""
    documents = Documents.of(documents).without_gold()
    vectors_ND = np.zeros((len(documents), self.vector_dim), np.float32)
    for batch in self.reader.batches(documents):
      # Every process gets the vectors of all documents, as with lists.
      rows, (vectors_1BD,) = gather_rows(
        batch.doc_B, self.batch_vectors(batch)[None]
      )
      real = rows != PAD
      vectors_ND[rows[real]] = vectors_1BD[0, real]
    return vectors_ND

  def batch_vectors(self, batch: TokenBatch) -> Float32[np.ndarray, 'B D']:
    with jax.set_mesh(self.mesh):
      batch = put_batch(batch, self.mesh)
      return own_rows(self._vectors(self.params, batch))

  def warmup_vectors(self) -> None:
    """Compiles the programs of `vectors` for all shapes of batches."""
    for batch in self.reader.example_batches():
      self.batch_vectors(batch)


def why_unexplained(config: Config) -> str:
  """Returns why words cannot explain the labels of a run; '' if they can."""
  head, tokens = config.model.head, config.data.tokens
  if not head.attends:
    able = _names(kind for kind in kinds(HeadConfig) if kind.attends)
    return (
      f'labels of the head {type(head).__name__} cannot be explained: they do '
      f'not attend to words; heads whose labels attend to words: {able}'
    )
  if tokens.dense:
    return 'labels cannot be explained: this run reads vectors, not words'
  if tokens.by_zone:
    return (
      'labels cannot be explained by words: the labels of this run attend to '
      'zones (data.tokens.by_zone)'
    )
  return ''


def why_fixed(config: Config) -> str:
  """Returns why a run cannot score new labels by name; '' if it can."""
  head = config.model.head
  if not head.describes:
    able = _names(kind for kind in kinds(HeadConfig) if kind.describes)
    return (
      f'the head {type(head).__name__} cannot score new labels: it does not '
      f'read label names; heads that read label names: {able}'
    )
  if config.model.shortlist.proposes:
    return (
      'new labels cannot be scored by name: this run ranks only labels that '
      'another model proposes, and that model does not know new labels'
    )
  if config.data.tokens.dense:
    return (
      'new labels cannot be scored by name: this run reads vectors from files, '
      'so the names of new labels have no vectors; use a run that reads text'
    )
  return ''


def _names(parts: Iterable[type]) -> str:
  return ', '.join(part.__name__ for part in parts)


def topk_program(
  config: Config, graphdef: nnx.GraphDef, mesh: jax.sharding.Mesh
) -> Callable:
  """Returns the program that ranks the labels of a batch (see _topk)."""
  # Lists [G, B, K] are divided like the rows of the batch, so each process
  # reads only its own rows.
  return jax.jit(
    functools.partial(_topk, graphdef, config.eval.recall),
    static_argnames=('k', 'sigmoid', 'measured'),
    out_shardings=NamedSharding(mesh, P(None, DATA)),
  )


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
  model = nnx.merge(graphdef, params)
  # ready() computes once what all lists and chunks of labels share.
  head, features = model.head.ready(), model.features(batch)
  topk = head_topk if head.shortlist_size is None else restricted_topk
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
  """Counts the gold labels that each step of the head's search keeps."""
  counts = []
  # A mask has the labels that are searched; None stands for all labels.
  for mask in masks:
    if mask is None:
      counts.append(head.kept_gold(features, gold_BP))
      continue
    # -inf excludes a label from the search of a slice.
    logs = jnp.where(mask, 0.0, -jnp.inf)
    known_BP = (gold_BP != PAD) & (gold_BP < len(mask))
    # PAD would index the last label, so it is replaced before it is an index.
    inside_BP = known_BP & mask[jnp.where(known_BP, gold_BP, 0)]
    cut_BP = jnp.where(inside_BP, gold_BP, PAD)
    narrowed = head.narrowed(features, logs)
    counts.append(head.kept_gold(narrowed, cut_BP))
  return jnp.stack(counts)


def _attention(graphdef, params, batch, ids_BK):
  return nnx.merge(graphdef, params).attention(batch, ids_BK)


def _vectors(graphdef, params, batch):
  return nnx.merge(graphdef, params).vectors(batch)
