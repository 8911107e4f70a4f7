"""The descriptors of a run's labels: made at its start, kept for new labels."""

from collections.abc import Mapping
import dataclasses
import os

from absl import logging
from flax import nnx
import jax
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import atomic_write, write_npz
from xjax.core.distributed import is_host0
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.score.encoders.bert import Bert, BertConfig
from xjax.score.heads.contract import DescriptorConfig
from xjax.score.pretrained.convert import parameter_shapes
from xjax.score.pretrained.name_embeddings import NameEncoder
from xjax.train.initial.words import piece_rows, replace_rows, word_rows
from xjax.train.parameters import (
  DESCRIPTORS,
  PIECE_VECTORS,
  WORD_VECTORS,
  by_path,
  from_paths,
  replace_values,
)
from xjax.train.state import TrainState
from xjax.train.workdir import Workdir

_ENCODER = 'encoder/'


def start_name_encoder(
  state: TrainState,
  workdir: Workdir,
  config: DescriptorConfig,
  describer: Workdir | None = None,
) -> NameEncoder:
  """What embeds the names of a new run's labels; its weights are saved.

  Args:
    state: fresh, with what is pretrained in it.
    workdir: of the run.
    config: which names.
    describer: a run that embedded names by other weights than those that it
      ended with: they are taken, with this run's own for the pieces that its
      tokenizer lacks.

  Raises:
    DataError: a file of the describer is damaged.
  """
  weights = {
    path: np.asarray(param)
    for path, param in by_path(state.params).items()
    if path.startswith(_ENCODER)
  }
  if describer is not None and describer.encoder_weights.exists():
    weights = _of_describer(weights, workdir, describer)
  if is_host0():
    write_npz(workdir.encoder_weights, weights)
  return _name_encoder(weights, workdir, config)


def saved_name_encoder(
  workdir: Workdir, config: DescriptorConfig
) -> NameEncoder:
  """What embedded the names of a run's labels.

  Raises:
    DataError: a file of features/ is absent or damaged, or of another encoder.
  """
  return _name_encoder(_saved_weights(workdir), workdir, config)


def _saved_weights(workdir: Workdir) -> dict[str, np.ndarray]:
  arrays = Arrays.read(workdir.encoder_weights)
  shapes = parameter_shapes(workdir.architecture())
  weights = {p: arrays.take(p, np.float32, s) for p, s in shapes.items()}
  arrays.finish()
  return weights


def _of_describer(
  weights: Mapping[str, np.ndarray], workdir: Workdir, describer: Workdir
) -> Mapping[str, np.ndarray]:
  """A describer's weights; a run's own where they are of another size."""
  theirs = _saved_weights(describer)
  words = weights[PIECE_VECTORS], theirs[PIECE_VECTORS]
  ours, there = workdir.subwords(), describer.subwords()
  if ours.digest != there.digest or words[0].shape != words[1].shape:
    theirs[PIECE_VECTORS] = replace_rows(
      words[0], piece_rows(ours, there), words[1]
    )
  if _shapes(weights) != _shapes(theirs):
    if is_host0():
      logging.warning(
        '%s: its encoder has other sizes: label names are embedded by the one '
        'that this run begins with',
        describer.path,
      )
    return weights
  return theirs


def _shapes(weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
  return {path: array.shape for path, array in weights.items()}


def _name_encoder(
  weights: Mapping[str, np.ndarray],
  workdir: Workdir,
  config: DescriptorConfig,
) -> NameEncoder:
  bert = nnx.eval_shape(
    lambda: Bert(workdir.architecture(), BertConfig(), rngs=nnx.Rngs(0))
  )
  graphdef, params = nnx.split(bert)
  mine = {path.removeprefix(_ENCODER): x for path, x in weights.items()}
  bert = nnx.merge(graphdef, from_paths(params, mine))
  return NameEncoder(config, workdir.subwords(), bert)


def descriptor_words(
  state: TrainState,
  vocab: Vocabulary,
  found: np.ndarray | None,
  describer: Workdir | None = None,
) -> WordVectors:
  """The word vectors that the descriptors of a new run are made of.

  Args:
    state: fresh, with what is pretrained in it.
    vocab: its words.
    found: bool [vocabulary], the pretrained words; None: nothing is, and all
      words' random vectors tell them apart.
    describer: a run whose descriptors were of other vectors than those that it
      ended with: words that it has are as its descriptors have them.

  Raises:
    DataError: a file of the describer is damaged.
  """
  if found is None:
    found = np.arange(len(vocab)) >= FIRST_WORD_ID
  vectors = np.asarray(by_path(state.params)[WORD_VECTORS])
  if describer is None or not describer.word_vectors.exists():
    return WordVectors(vectors, found)
  there = describer.vocabulary()
  theirs = load_words(describer.word_vectors, there)
  rows = word_rows(vocab, there)
  return WordVectors(
    replace_rows(vectors, rows, theirs.vectors),
    replace_rows(found, rows, theirs.found),
  )


def start_descriptors(state: TrainState, rows: np.ndarray) -> TrainState:
  """Puts the embeddings of the labels' descriptors in a fresh state.

  Args:
    state: fresh; its descriptors are used up.
    rows: float32 [L, E], of the head's labels in order.

  Returns:
    The state, sharded as before.
  """
  params = by_path(state.params)
  like: jax.Array = params[DESCRIPTORS]
  padded = np.zeros(like.shape, np.float32)
  padded[: len(rows)] = rows
  bare = int((~rows.any(axis=1)).sum())
  if bare and is_host0():
    logging.warning(
      '%d of %d labels have no word with a vector in their descriptors: what '
      'is known of them is their own rows, if the head has any',
      bare,
      len(rows),
    )
  everywhere = np.ones((1, 1), bool)
  params[DESCRIPTORS] = replace_values(like, everywhere, padded)
  return dataclasses.replace(state, params=from_paths(state.params, params))


def save_words(path: str | os.PathLike, words: WordVectors) -> None:
  """Writes the vectors that descriptors are made of, as .npz."""
  with atomic_write(path, 'wb') as file:
    np.savez(file, vectors=words.vectors, found=words.found)


def load_words(path: str | os.PathLike, vocab: Vocabulary) -> WordVectors:
  """Reads what save_words wrote.

  Raises:
    DataError: the file is absent, damaged, or of another vocabulary.
  """
  arrays = Arrays.read(path)
  words = WordVectors(
    vectors=arrays.take('vectors', np.float32, (len(vocab), None)),
    found=arrays.take('found', np.bool_, (len(vocab),)),
  )
  arrays.finish()
  return words
