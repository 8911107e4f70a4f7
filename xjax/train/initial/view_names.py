"""Gives the names of labels to the views that read a hierarchy of labels."""

import dataclasses

from absl import logging
import numpy as np

from xjax.core.distributed import is_host0
from xjax.core.types import PAD, Ragged
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Labels, LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.networks.views.taxonomy_parts import encoded_nodes
from xjax.train.parameters import (
  VIEW_NAMES,
  by_path,
  from_paths,
  replace_values,
)
from xjax.train.state import TrainState


def start_view_names(
  state: TrainState, space: LabelSpace, vocab: Vocabulary | Subwords | None
) -> TrainState:
  """Puts the words or pieces of the names of labels into the initial state.

  A state whose model has no views that read names stays as it is. Warns of
  names without words or pieces. Do not use the names of `state` afterwards.
  """
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
  params[VIEW_NAMES] = replace_values(like, first)
  return dataclasses.replace(state, params=from_paths(state.params, params))


def encoded_labels(space: LabelSpace) -> Labels:
  """Returns the labels and concepts that the views of a run read, in order.

  Models with such views score only the trained labels.
  """
  hierarchy = Hierarchy.of_space(space, space.n_trained)
  return hierarchy.labels[encoded_nodes(hierarchy)]


def _pieces(names: list[str], vocab: Vocabulary | Subwords) -> Ragged:
  """Returns the ids of each name, without special tokens or unknown words."""
  if isinstance(vocab, Subwords):
    return Ragged.of(vocab.pieces_of(names))
  ids = vocab.encode_all(names)
  return Ragged.of([row[row >= FIRST_WORD_ID] for row in ids])
