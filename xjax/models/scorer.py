"""Defines the contract of trained models: they rank labels for documents."""

import abc
from collections.abc import Callable

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.mesh_config import WHOLE, own_share
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import LabelSpace
from xjax.models.explanations import LabelExplanations


def cannot_add(kind: str) -> str:
  """Returns why a kind of model that learns from documents has fixed labels."""
  return (
    f'{kind} cannot score new labels: it can only learn a label from training '
    'documents of that label'
  )


class Scorer(abc.ABC):
  """Ranks labels for documents: a trained model.

  A class overrides the methods for what its kind of model can do, and sets the
  two reasons to ''. It owns what turns documents into features.
  """

  n_labels: int  # only labels with an index below this number are ranked
  score_kind: ScoreKind
  # A label with at least this score is assigned; None: with a probability of at
  # least 0.5 (margins have no probability).
  assigned_above: float | None = None
  # How the best labels are searched for: `exact`, `beam=10`, `recall=0.95`,
  # `shortlist=500`, `clusters=10`, `runs=3` or `proposers=3`.
  selected_by: str = 'exact'
  step: int = 0  # of the model's checkpoint; 0 for models without steps
  # Why words cannot explain labels, or new labels be scored; '' if they can.
  unexplained: str = 'labels of this kind of model cannot be explained by words'
  fixed_labels: str = cannot_add('this kind of model')
  attends: bool = False  # whether the weights of explaining words are attention
  reads_vectors: bool = False  # other models refuse documents with vectors

  @property
  def ranks_unseen(self) -> bool:
    """Returns whether it knows something of labels without training documents.

    If not, they come last, or are not listed, and have no figures.
    """
    return not self.fixed_labels

  @abc.abstractmethod
  def rank(self, documents: Documents, query: Query) -> Lists:
    """Returns the best labels of each document, among all labels and per slice.

    The documents are ranked block by block, so memory holds only the lists and
    a block. A label has one score for a document, whichever list it is in. With
    several processes, all of them call this method with the same arguments, and
    all get the lists of all documents.

    Raises:
      ConfigError: the model does not read such documents, or the lists do not
        fit into memory.
      DataError: a document has a fault.
    """

  def explain(
    self, documents: Documents, ids_NK: np.ndarray, words: int, n_first: int = 0
  ) -> LabelExplanations:
    """Finds the words that explain labels of documents.

    Args:
      documents: N documents.
      ids_NK: int32, the labels of each document, PAD after the last label.
      words: how many words to show for each label.
      n_first: the weights of all words are kept for this many first documents.
    """
    del documents, ids_NK, words, n_first
    raise ConfigError(self.unexplained)

  def with_labels(self, space: LabelSpace) -> 'Scorer':
    """Returns a scorer that also scores new labels, by their names.

    In `space`, the new labels follow those that the scorer knows.
    """
    del space
    raise ConfigError(self.fixed_labels)

  def warmup(self, query: Query, explain: bool = False) -> None:
    """Compiles all programs that later calls need.

    Later queries are as `query`, on documents of any number and length. With
    `explain`, the programs of `explain` are compiled too.
    """
    del explain
    self.rank(Documents(['']), query)

  @property
  def stages(self) -> 'dict[str, Scorer]':
    """Returns the models that this model uses, by the name of their stage."""
    return {}


def documents_for(scorer: Scorer, documents: Documents) -> Documents:
  """Returns documents, without their vectors if a model does not read them."""
  return documents if scorer.reads_vectors else documents.without_vectors()


def rank_blocks(
  documents: Documents,
  query: Query,
  size: int,  # documents of a block, over all processes
  rank: Callable[[Documents, Query], Lists],  # returns the lists of a block
) -> Lists:
  """Ranks documents block by block; several processes share each block."""
  lists = Lists.none(query.n_lists, len(documents), query.k, query.details)
  share = own_share()
  for rows, block in documents.blocks(size):
    if share == WHOLE:
      lists.put(rows, rank(block, query.for_rows(rows)))
    else:
      # Rows are dealt out in turn, so that shares differ by one row at most.
      own = np.arange(share.parts[0], len(rows), share.of)
      part = rank(block.part(own), query.for_rows(rows[own]))
      # put gathers the lists of all processes, which must have equal shapes.
      lists.put(*_of_length(rows[own], part, -(-len(rows) // share.of)))
    if query.on_block:
      query.on_block(len(rows))
  return lists


def _of_length(
  rows: np.ndarray, part: Lists, n: int
) -> tuple[np.ndarray, Lists]:
  """Adds rows and lists of no document, so that there are n of them."""
  more = n - len(rows)
  rows = np.append(rows, np.full(more, PAD, rows.dtype))
  arrays = part.ids_GNK, part.scores_GNK, *part.kept.values()
  ids, scores, *kept = (
    np.pad(x, [(0, 0), (0, more), *[(0, 0)] * (x.ndim - 2)]) for x in arrays
  )
  return rows, Lists(ids, scores, dict(zip(part.kept, kept)))
