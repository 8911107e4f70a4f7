"""Starts the vectors of labels from names, and trains them on the hierarchy.

This is for heads whose labels have vectors in the space of an encoder's pieces
(HeadConfig.pretraining; Jiang et al. 2022, "HBGL", Section 3.2).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools

from absl import logging
from flax import nnx
import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
import numpy as np
import optax

from xjax.core.distributed import is_host0
from xjax.core.progress import Progress
from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.networks.encoders.bert import STDDEV
from xjax.networks.encoders.encoder import EncoderInputs, Remat
from xjax.networks.heads.generation.hbgl import FirstVectors
from xjax.networks.heads.generation.label_levels import (
  LabelPretraining,
  Segment,
  Transform,
  make_segment,
  pretrained_nodes,
  pretraining_loss,
  segments_of,
)
from xjax.networks.pretrained.architecture import Architecture
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  language_transform,
)
from xjax.networks.text_model import TextModelConfig
from xjax.train.initial.warm_start import LoadedParameters
from xjax.train.parameters import PIECE_VECTORS, by_path, filled, replace_values
from xjax.train.state import TrainState

_ENCODER, _TRANSFORM = 'encoder/', 'head/transform/'
_KERNEL, _SPECIAL = 'head/kernel', 'head/special'
_MASKS = ('[MASK]', '<mask>')
_STREAM = 2**31 + 1  # of random keys; steps of training have smaller numbers


def start_label_vectors(
  state: TrainState,
  model: TextModelConfig,
  *,
  seed: int,
  hierarchy: Hierarchy,
  tokenizer: Subwords,
  architecture: Architecture,
  taken: LoadedParameters,
  check: Callable[[], None],
) -> TrainState:
  """Puts trained vectors of labels into the initial state.

  The transform of the head is that of the folder's language model, if it has
  one. [SEP] and [MASK] have word vectors. The vectors of labels start from
  their names, or at random, and are trained on the hierarchy alone: by each
  process on its first device, with the same result.

  What the state has from another run (`taken`) stays. The vectors of all other
  labels and concepts are trained together with copies of taken ones; if all are
  taken, nothing is trained. `check` is called after each step, and may raise an
  error to end the run. Do not use the head of `state` afterwards. A ConfigError
  says that model.head.pretraining.segment is too small.
  """
  params = by_path(state.params)
  n_labels, is_taken_L = hierarchy.n_labels, taken.label_L
  if is_taken_L is None:
    is_taken_L = np.zeros(n_labels, bool)
  if _SPECIAL not in taken.paths:
    _start_transform(params, model.encoder.folder)
    _start_special(params, tokenizer)
  kernel_LD = params[_KERNEL]
  rows_LD = np.zeros(kernel_LD.shape, np.float32)
  if not is_taken_L.all():
    nodes = pretrained_nodes(hierarchy)
    table = _first_table(params, model, seed, nodes, tokenizer, is_taken_L)
    if model.head.pretraining.steps:
      words = np.asarray(params[PIECE_VECTORS])
      special = np.asarray(params[_SPECIAL])
      table = pretrain(
        table,
        nodes,
        modules=_frozen_modules(params, model, architecture),
        special_2D=np.stack([words[tokenizer.before[0]], special[1]]),
        config=model.head.pretraining,
        seed=seed,
        check=check,
      )
    rows_LD[:n_labels] = table[:n_labels]
  # The rows of padding become 0.
  is_taken_L1 = np.pad(is_taken_L, (0, len(rows_LD) - n_labels))[:, None]
  params[_KERNEL] = replace_values(kernel_LD, rows_LD, ~is_taken_L1)
  return state.with_params(params)


def _first_table(
  params: dict[str, jax.Array],
  model: TextModelConfig,
  seed: int,
  nodes: Hierarchy,
  tokenizer: Subwords,
  is_taken_L: np.ndarray,
) -> np.ndarray:
  """Returns the vectors [V, D] of all nodes, labels first, before training."""
  words = np.asarray(params[PIECE_VECTORS])
  drawn = host_generator(seed, 'label_vectors')
  shape = len(nodes), words.shape[1]
  table = drawn.normal(scale=STDDEV, size=shape).astype(np.float32)
  if model.head.first_vectors is FirstVectors.NAMES:
    table = name_vectors(nodes.labels, tokenizer, words, table)
  if is_taken_L.any():
    kernel_LD = params[_KERNEL]
    # Label rows may be divided over the devices of several processes.
    taken_LD = multihost_utils.process_allgather(kernel_LD, tiled=True)
    rows = np.flatnonzero(is_taken_L)
    table[rows] = taken_LD[rows]
  return table


def name_vectors(
  labels: Sequence[Label],
  tokenizer: Subwords,
  words: np.ndarray,
  others: np.ndarray,
) -> np.ndarray:
  """Returns the sum of the piece vectors of each name, or a row of `others`."""
  vectors = others.copy()
  names = [label.name for label in labels]
  for row, pieces in enumerate(tokenizer.pieces_of(names)):
    if len(pieces):
      vectors[row] = words[pieces].sum(axis=0)
  return vectors


def pretrain(
  table: np.ndarray,
  hierarchy: Hierarchy,
  *,
  modules: tuple[nnx.Module, nnx.Module],
  special_2D: np.ndarray,
  config: LabelPretraining,
  seed: int,
  check: Callable[[], None] = lambda: None,
) -> np.ndarray:
  """Trains the vectors of nodes, `table` [V, D], on their hierarchy, with Adam.

  In each round, every segment has one step, in which only the vectors of the
  segment and their means of gradients change. A node in several segments has
  several steps in a round. So the bias correction of Adam counts the steps of
  each node. `modules` are the encoder and the transform. `special_2D` are the
  vectors of [CLS], which stands for the root, and of [MASK].
  """
  segments = segments_of(hierarchy, config.segment)
  size = max(map(len, segments))

  @functools.lru_cache(maxsize=64)
  def segment_at(number: int) -> Segment:
    return make_segment(hierarchy, segments[number], size)

  graphdef, weights = nnx.split(modules)
  key = jax.random.fold_in(jax.random.key(seed), _STREAM)
  masks = host_generator(seed, 'label_masks')
  mean, square = jnp.zeros_like(table), jnp.zeros_like(table)
  steps_V1 = jnp.zeros((len(table), 1), jnp.int32)
  # This makes a copy, because jnp.asarray could share the memory of `table`.
  arrays = jnp.array(table), mean, square, steps_V1
  total, losses = config.steps * len(segments), []
  with Progress('training the vectors of labels', total, unit='step') as bar:
    for i in range(total):
      rounds, number = divmod(i, len(segments))
      share = min(1.0, config.mask + config.growth * rounds / config.steps)
      masked_BX = masks.random((config.batch, size)) < share
      arrays, loss = _step(
        graphdef,
        config.rate,
        arrays,
        weights,
        special_2D,
        segment_at(number),
        masked_BX,
        jax.random.fold_in(key, i),
      )
      losses.append(float(loss))
      bar.update()
      check()
  if is_host0():
    logging.info(
      'vectors of %d labels and concepts: %d steps on the hierarchy, loss %.4f '
      'to %.4f',
      len(hierarchy),
      total,
      losses[0],
      losses[-1],
    )
  return np.asarray(arrays[0])


# The tables are large, so a step writes its results over them.
@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _step(
  graphdef: nnx.GraphDef,
  rate: float,
  arrays: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
  weights: nnx.State,
  special_2D: jax.Array,
  segment: Segment,
  masked_BX: jax.Array,
  key: jax.Array,
) -> tuple[tuple[jax.Array, ...], jax.Array]:
  """Takes a step of Adam; returns `arrays` after the step, and the loss."""
  # The donated arrays: vectors [V, D], the means of gradients and of squares,
  # and the steps [V, 1] that each node has taken.
  encoder, transform = nnx.merge(graphdef, weights)
  # A number beyond the table stands for no row.
  beyond = len(arrays[0])
  at_X = jnp.where(segment.nodes_X == PAD, beyond, segment.nodes_X)
  rows, mean, square, steps = (x.at[at_X].get(mode='clip') for x in arrays)
  loss, gradient = jax.value_and_grad(pretraining_loss)(
    rows,
    encoder,
    transform,
    special_2D,
    segment,
    masked_BX,
    encoder.seeds(nnx.Rngs(dropout=key)),
  )
  before = optax.ScaleByAdamState(steps, mean, square)
  update, after = optax.scale_by_adam().update(gradient, before)
  new = rows - rate * update, after.mu, after.nu, after.count
  arrays = tuple(x.at[at_X].set(y, mode='drop') for x, y in zip(arrays, new))
  return arrays, loss


def _start_transform(params: dict[str, jax.Array], folder: str) -> None:
  arrays = language_transform(ModelFolder.at(folder)) if folder else None
  for path, array in (arrays or {}).items():
    path = _TRANSFORM + path
    params[path] = replace_values(params[path], array)
  if arrays is None and is_host0():
    logging.info(
      '%s: no head of a masked language model, so the transform before the '
      'vectors of labels starts at random',
      folder or 'the encoder without a folder',
    )


def _start_special(params: dict[str, jax.Array], tokenizer: Subwords) -> None:
  """Puts the word vectors of [SEP] and [MASK], if any, into the parameters."""
  words = np.asarray(params[PIECE_VECTORS])
  mask = np.asarray(params[_SPECIAL])[1]
  for name in reversed(_MASKS):  # the first that the tokenizer has counts
    if name in tokenizer.pieces:
      mask = words[tokenizer.pieces.index(name)]
  special_2D = np.stack([words[tokenizer.after[0]], mask])
  params[_SPECIAL] = replace_values(params[_SPECIAL], special_2D)


def _frozen_modules(
  params: dict[str, jax.Array],
  model: TextModelConfig,
  architecture: Architecture,
) -> tuple[nnx.Module, nnx.Module]:
  """Returns copies of the encoder and of the transform, on one device."""
  # The backward pass computes layers again. Otherwise, this stage would need
  # more memory than a step of training.
  saving = dataclasses.replace(model.encoder, remat=Remat.EVERYTHING)

  def build() -> tuple[nnx.Module, nnx.Module]:
    rngs, inputs = nnx.Rngs(0), EncoderInputs(0, jnp.float32, architecture)
    encoder = saving.build(inputs, rngs)
    return encoder, Transform(encoder, rngs=rngs)

  encoder, transform = nnx.eval_shape(build)
  return (
    filled(encoder, params, _ENCODER),
    filled(transform, params, _TRANSFORM),
  )
