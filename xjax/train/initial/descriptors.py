"""Embeds label descriptors, and gives views the names of labels."""

from collections.abc import Mapping
import os

from absl import logging
from flax import nnx
import jax.numpy as jnp
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import is_host0
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Labels, LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.networks.encoders.encoder import EncoderInputs
from xjax.networks.pretrained.convert import parameter_shapes
from xjax.networks.pretrained.text_encoder import NameEncoder
from xjax.networks.text_model import TextModelConfig
from xjax.networks.views.label_encoder import encoded_nodes
from xjax.train.initial.start_words import piece_rows, replace_rows, word_rows
from xjax.train.parameters import (
  CONCEPTS,
  DESCRIPTORS,
  PIECE_VECTORS,
  VIEW_NAMES,
  WORD_VECTORS,
  by_path,
  filled,
  replace_values,
)
from xjax.train.state import TrainState
from xjax.train.workdir import Workdir

_ENCODER = 'encoder/'


def start_name_encoder(
  state: TrainState,
  workdir: Workdir,
  config: TextModelConfig,
  descriptor_run: Workdir | None = None,
) -> NameEncoder:
  """Makes the encoder of label names for a new run, and saves its weights.

  `state` has the pretrained parameters. descriptor_run is the run whose head
  this run continues to train, if any. The encoder gets the weights with which
  that run has embedded label names, not its final weights. A piece that its
  tokenizer lacks keeps the vector of this run.
  """
  weights = {
    path: np.asarray(param)
    for path, param in by_path(state.params).items()
    if path.startswith(_ENCODER)
  }
  if descriptor_run is not None and descriptor_run.encoder_weights.exists():
    weights = _weights_from(descriptor_run, weights, workdir)
  if is_host0():
    with workdir.recording(workdir.encoder_weights):
      write_npz(workdir.encoder_weights, weights)
  return _name_encoder(weights, workdir, config)


def saved_name_encoder(
  workdir: Workdir, config: TextModelConfig
) -> NameEncoder:
  """Loads the encoder with which a run has embedded its label names."""
  return _name_encoder(_saved_weights(workdir), workdir, config)


def _saved_weights(workdir: Workdir) -> dict[str, np.ndarray]:
  arrays = Arrays.read(workdir.encoder_weights)
  shapes = parameter_shapes(workdir.architecture())
  weights = {p: arrays.take(p, np.float32, s) for p, s in shapes.items()}
  arrays.finish()
  workdir.check(workdir.encoder_weights)
  return weights


def _weights_from(
  descriptor_run: Workdir, weights: Mapping[str, np.ndarray], workdir: Workdir
) -> Mapping[str, np.ndarray]:
  """Returns another run's encoder weights, or this run's if sizes differ."""
  # The weights that embedded the descriptors, not those at the end of that run:
  # its head has learned what these descriptors mean.
  theirs = _saved_weights(descriptor_run)
  pieces = weights[PIECE_VECTORS], theirs[PIECE_VECTORS]
  tokenizers = workdir.subwords(), descriptor_run.subwords()
  same_tokenizer = tokenizers[0].digest == tokenizers[1].digest
  if not same_tokenizer or pieces[0].shape != pieces[1].shape:
    theirs[PIECE_VECTORS] = replace_rows(
      pieces[0], piece_rows(*tokenizers), pieces[1]
    )
  if _shapes(weights) != _shapes(theirs):
    if is_host0():
      logging.warning(
        'the encoder of %s has other sizes than the encoder of this run, so '
        'this run embeds label names with its own initial encoder',
        descriptor_run.path,
      )
    return weights
  return theirs


def _shapes(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  return {path: array.shape for path, array in weights.items()}


def _name_encoder(
  weights: Mapping[str, np.ndarray], workdir: Workdir, config: TextModelConfig
) -> NameEncoder:
  inputs = EncoderInputs(0, jnp.float32, workdir.architecture())
  encoder = nnx.eval_shape(lambda: config.encoder.build(inputs, nnx.Rngs(0)))
  encoder = filled(encoder, weights, _ENCODER)
  return NameEncoder(config.head.descriptor, workdir.subwords(), encoder)


def descriptor_word_vectors(
  state: TrainState,
  vocab: Vocabulary,
  has_vector: np.ndarray | None,
  descriptor_run: Workdir | None = None,
) -> WordVectors:
  """Returns the word vectors for the descriptors of a new run.

  `has_vector` is True for words with a pretrained vector. If it is None, all
  words are used, because random vectors also distinguish words. The words of
  `descriptor_run` get the vectors from which that run computed its descriptors,
  not its final vectors.
  """
  if has_vector is None:
    has_vector = np.arange(len(vocab)) >= FIRST_WORD_ID
  vectors = np.asarray(by_path(state.params)[WORD_VECTORS])
  if descriptor_run is None or not descriptor_run.word_vectors.exists():
    return WordVectors(vectors, has_vector)
  # As for encoders: the vectors that the other run computed descriptors from.
  their_vocab = descriptor_run.vocabulary()
  theirs = load_words(descriptor_run.word_vectors, their_vocab)
  rows = word_rows(vocab, their_vocab)
  return WordVectors(
    replace_rows(vectors, rows, theirs.vectors),
    replace_rows(has_vector, rows, theirs.has_vector),
  )


def start_descriptors(
  state: TrainState, rows: np.ndarray, others: np.ndarray | None = None
) -> TrainState:
  """Puts the embeddings of the labels' descriptors into the initial state.

  `rows` [L, E] are those of the labels of the head, in order. `others` [V - L,
  E] are those of the other nodes of the head's graph, ignored without a graph.
  Do not use the descriptors of `state` afterwards.
  """
  params, changed = by_path(state.params), {}
  for name, values in ((DESCRIPTORS, rows), (CONCEPTS, others)):
    if name in params and values is not None:
      padded = np.zeros(params[name].shape, np.float32)
      padded[: len(values)] = values
      changed[name] = replace_values(params[name], padded)
  bare = int((~rows.any(axis=1)).sum())
  if bare and is_host0():
    logging.warning(
      'the descriptors of %d of %d labels have no word with a vector; a head '
      'without label rows cannot recognise these labels',
      bare,
      len(rows),
    )
  return state.with_params(changed)


def save_words(path: str | os.PathLike, words: WordVectors) -> None:
  """Writes the word vectors of descriptors to an .npz file."""
  write_npz(path, {'vectors': words.vectors, 'found': words.has_vector})


def load_words(path: str | os.PathLike, vocab: Vocabulary) -> WordVectors:
  """Reads the word vectors of descriptors that save_words wrote."""
  arrays = Arrays.read(path)
  words = WordVectors(
    vectors=arrays.take('vectors', np.float32, (len(vocab), None)),
    has_vector=arrays.take('found', np.bool_, (len(vocab),)),
  )
  arrays.finish()
  return words


def start_view_names(
  state: TrainState, space: LabelSpace, vocab: Vocabulary | Subwords | None
) -> TrainState:
  """Puts the words of label names into the state of views that read them."""
  # Do not use the names of `state` afterwards. It warns of names without words.
  params = by_path(state.params)
  if VIEW_NAMES not in params:
    return state
  like = params[VIEW_NAMES]
  names = [label.name for label in encoded_labels(space)]
  pieces = _pieces(names, vocab)
  nameless = int((pieces.lengths == 0).sum())
  if nameless and is_host0():
    logging.warning(
      'the names of %d of %d labels and concepts have no word that the model '
      'reads, so the views know nothing of these labels but their parents',
      nameless,
      len(names),
    )
  lengths = np.minimum(pieces.lengths, like.shape[1])
  first = np.full(like.shape, PAD, np.int32)
  for row, length in enumerate(lengths):
    first[row, :length] = pieces[row][:length]
  return state.with_params({VIEW_NAMES: replace_values(like, first)})


def encoded_labels(space: LabelSpace) -> Labels:
  """Returns the labels and concepts that the views of a run read, in order."""
  hierarchy = Hierarchy.of_space(space, space.n_trained)
  return hierarchy.labels[encoded_nodes(hierarchy)]


def _pieces(names: list[str], vocab: Vocabulary | Subwords) -> Ragged:
  """Returns the ids of each name, without special tokens or unknown words."""
  if isinstance(vocab, Subwords):
    return Ragged.of(vocab.pieces_of(names))
  ids = vocab.encode_all(names)
  return Ragged.of([row[row >= FIRST_WORD_ID] for row in ids])
