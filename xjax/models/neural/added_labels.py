"""Adds labels to a trained model that knows labels by their descriptors."""

from collections.abc import Mapping, Sequence
import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from xjax.core.errors import DataError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import Vocabulary
from xjax.models.contract import Run
from xjax.models.neural.neural_plan import plan_neural
from xjax.networks.heads.chunks import on_labels
from xjax.networks.label_graph import edges_with
from xjax.networks.pretrained.descriptor_encoder import DescriptorEncoder
from xjax.train.initial.descriptors import load_words, saved_name_encoder
from xjax.train.parameters import (
  CHILDREN,
  DESCRIPTORS,
  PARENTS,
  by_path,
  from_paths,
)
from xjax.train.state import StatePlan


def embed_descriptors(
  labels: Sequence[Label], run: Run, vocab: Vocabulary | Subwords
) -> np.ndarray:
  """Embeds the descriptors of new labels, float32 [len(labels), E]."""
  config, folder = run.config, run.folder
  descriptor = config.model.head.descriptor
  if config.data.tokens.pretrained:
    encoder = saved_name_encoder(folder, config.model)
  else:
    words = load_words(folder.word_vectors, vocab)
    folder.check(folder.word_vectors)
    # The weights of words are computed only from the labels of the run, and not
    # from labels that were added earlier.
    space = run.label_space()
    run_labels = space.labels[: config.model.scored_labels(space)]
    encoder = DescriptorEncoder.of(run_labels, descriptor, vocab, words)
  rows = encoder.encode(labels)
  # A row of zeros would give the label one score for all documents.
  bare = [labels[i].name for i in np.flatnonzero(~rows.any(axis=1))]
  if bare:
    raise DataError(
      'this run has no vector for any word of these labels: '
      f'{", ".join(map(ascii, bare))}; describe the labels in words of the '
      "run's corpus"
    )
  return rows


def with_added_labels(
  params: nnx.State,
  before: int,  # number of labels that the model scores
  run: Run,
  space: LabelSpace,  # the new labels follow the `before` labels
  vocab: Vocabulary | Subwords,
  mesh: jax.sharding.Mesh,
) -> tuple[StatePlan, nnx.State]:
  """Returns a model that also scores new labels by their descriptors.

  The new labels get the embeddings of their descriptors. All other parameters
  of the new labels are zeros. In a graph of labels, new labels read their
  parents, but no other label reads a new label, so no other score changes.
  """
  model, folder = run.config.model, run.folder
  rows = embed_descriptors(space.labels[before : space.n_inside], run, vocab)
  edges: dict[str, np.ndarray] = {}
  if model.reads_parents:
    edges = _wider_edges(space, model.hierarchy(run.label_space()))
  architecture = folder.architecture()
  plan = plan_neural(run.config, space, len(vocab), mesh, architecture)
  # The plan of the wider model says which parameters have a row per label, and
  # how these are sharded.
  own, like = by_path(params), by_path(plan.abstract.params)
  like = {n: leaf for n, leaf in like.items() if on_labels(leaf.sharding.spec)}
  # Within jit with the shardings of the plan, so that no device holds all rows.
  wider = jax.jit(
    functools.partial(_wider, before, like),
    out_shardings={name: leaf.sharding for name, leaf in like.items()},
  )({name: own[name] for name in like}, rows)
  for name in edges.keys() & own.keys():
    values = edges[name]
    wider[name] = jax.make_array_from_callback(
      # Edges are put on the devices as before: each process copies only its own
      # part.
      values.shape,
      own[name].sharding,
      values.__getitem__,
    )
  return plan, from_paths(plan.abstract.params, own | wider)


def _wider_edges(
  space: LabelSpace, hierarchy: Hierarchy
) -> dict[str, np.ndarray]:
  """Returns the edges of a graph of old and new labels, by path."""
  added = space.labels[hierarchy.n_labels : space.n_inside]
  known = {*hierarchy.ids, *added.ids}
  for label in added:
    for parent in label.parents:
      if parent not in known:
        raise DataError(
          f'new label {label.id!a} has the unknown parent {parent!a}; a parent '
          "must be the id of one of the run's labels or concepts, or of another"
          ' new label'
        )
  return dict(zip((PARENTS, CHILDREN), edges_with(hierarchy, added)))


def _wider(
  before: int,  # number of labels that have rows already
  like: Mapping[str, jax.ShapeDtypeStruct],  # by path, with the new rows
  params: Mapping[str, jax.Array],
  rows: jax.Array,
) -> dict[str, jax.Array]:
  """Adds `rows` to DESCRIPTORS, and zeros to all that has a row per label."""
  wider = {
    name: jnp.zeros(leaf.shape, leaf.dtype)
    .at[:before]
    .set(params[name][:before])
    for name, leaf in like.items()
  }
  last = before + len(rows)
  wider[DESCRIPTORS] = wider[DESCRIPTORS].at[before:last].set(rows)
  return wider
