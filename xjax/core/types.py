"""Defines the letters of array axes, and the types that all packages share.

Array names end in the letters of their axes; einsum strings use the same
letters:

  B  documents of a batch          L  labels
  T  tokens of a document          C  labels of one chunk
  D  features                      K  entries of a top-k list
  P  padded positives of a document
  S  tokens of a label descriptor  G  slices of the label space
  N  documents of a split          Z  zones of a document
  E  features of a descriptor      A  entries of a shortlist
  U  units of a layer: hidden units of a GRU or an MLP, filters of a convolution
  V  gates of a recurrent layer: three per unit of a GRU, four of an LSTM
  W  words that explain a label
  X  several axes flattened into one, such as B and T
  Y  distinct labels of the shortlists of a batch

The metrics also use these letters:

  J  cut-offs k                    M  sums over documents
  F  frequency bins of labels      H  labels that are counted one by one
  R  bootstrap replicates
  Q  sets of decisions: the first k labels, or the labels above a threshold

An axis without a letter is spelled out, as in `new_by_block`.
"""

from collections.abc import Sequence
import dataclasses
import enum
import typing
from typing import Protocol, runtime_checkable

import numpy as np

if typing.TYPE_CHECKING:
  import jax

PAD = -1  # fills padded ids: positives_BP, short top-k lists, doc_B
MOST_RANKS = 1_000_000  # the largest k; metrics have arrays of this size
AS_LOGITS = (1.0, 0.0)  # a and b of sigmoid(a z + b) if scores z are logits


@dataclasses.dataclass(frozen=True)
class Shortlist:
  """Holds the labels that each document of a batch is asked about.

  In training, all gold labels of a document should be among them
  (networks.heads.shortlist.lost_positives counts the others). core/mesh.py
  makes Shortlist a pytree of JAX.

  Attributes:
    ids_BA: int32 label indices in any order, and PAD in the other entries. A
      document has each label at most once.
    gold_BA: bool, True for gold labels. It is read only in training, and only
      where ids_BA is not PAD.
    weights_BA: float32, how much each entry counts in the loss. None if all
      entries count equally.
  """

  ids_BA: 'jax.Array'
  gold_BA: 'jax.Array'
  weights_BA: 'jax.Array | None' = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Batch:
  """Holds a padded batch of documents: NumPy on hosts, jax.Array on a mesh.

  If the zones of documents are kept separate (data.tokens.by_zone), tokens are
  [B, Z, T] and lengths [B, Z]. Empty zones of a document come last, with
  length 0. core/mesh.py makes Batch a pytree of JAX.

  Attributes:
    tokens_BT: int32 token ids, 0 beyond a document's length; None if documents
      are given as vectors (features_BTD).
    lengths_B: int32 number of tokens or features.
    positives_BP: int32 gold label indices, PAD beyond a document's labels.
    mask_B: bool, False for rows that only fill the batch.
    doc_B: int32 row of the document in its split, PAD for rows that only fill
      the batch.
    weights_BT: float32 weights of sparse features. None for other inputs.
    segments_BT: None if every document has its own row. If documents share
      rows, segments_BT and tokens_BT are int32 [rows, T]. segments_BT is 0 at
      padding, and 1, 2, ... for the first, second, ... document of a row.
    first_B: int32 index of each document's first token in the flattened token
      rows of the document's device. None if segments_BT is None.
    features_BTD: float32 vectors of an external encoder, 0 beyond a document's
      length. None for other inputs.
    shortlist: the labels that training scores; None means all labels.
    proposed: batches of the same documents for other models, whose doc_B are
      rows of this batch. Only hosts use them.
  """

  tokens_BT: 'jax.Array | None'
  lengths_B: 'jax.Array'
  positives_BP: 'jax.Array'
  mask_B: 'jax.Array'
  doc_B: 'jax.Array'
  weights_BT: 'jax.Array | None' = None
  segments_BT: 'jax.Array | None' = None
  first_B: 'jax.Array | None' = None
  features_BTD: 'jax.Array | None' = None
  shortlist: Shortlist | None = None
  proposed: 'tuple[Batch, ...]' = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Holds rows of integers of unequal length in one array.

  Attributes:
    indptr: int64 [N + 1], row i is values[indptr[i]:indptr[i + 1]].
    values: int32, all rows, concatenated.
  """

  indptr: np.ndarray
  values: np.ndarray

  @classmethod
  def of(cls, rows: Sequence[Sequence[int]]) -> 'Ragged':
    """Concatenates a sequence of integer rows."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    parts = [np.asarray(row, np.int32) for row in rows]
    return cls(indptr, np.concatenate([np.zeros(0, np.int32), *parts]))

  def __len__(self) -> int:
    return len(self.indptr) - 1

  def __getitem__(self, row: int) -> np.ndarray:
    return self.values[self.indptr[row] : self.indptr[row + 1]]

  @property
  def lengths(self) -> np.ndarray:
    """Returns the number of entries of each row, int64 [N]."""
    return np.diff(self.indptr)

  def keep(self, kept: np.ndarray) -> 'Ragged':
    """Returns the rows with only the values for which `kept` (bool) is True."""
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return Ragged(before[self.indptr], self.values[kept])

  def take(self, rows: np.ndarray) -> 'Ragged':
    """Returns the rows with the given numbers, in this order."""
    starts, lengths = self.indptr[:-1][rows], self.lengths[rows]
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    shift = np.repeat(starts - indptr[:-1], lengths)
    return Ragged(indptr, self.values[np.arange(indptr[-1]) + shift])

  def padded(self, rows: np.ndarray, width: int, fill: int) -> np.ndarray:
    """Returns the given rows as a padded array.

    Args:
      rows: integers; PAD stands for an empty row.
      width: number of columns.
      fill: the value of padding.

    Returns:
      int32 [len(rows), width].

    Raises:
      ValueError: a row is longer than `width`; nothing is truncated.
    """
    rows = np.asarray(rows)
    starts = np.where(rows == PAD, 0, self.indptr[rows])
    ends = np.where(rows == PAD, 0, self.indptr[rows + 1])
    if len(rows) and (ends - starts).max() > width:
      raise ValueError(f'a row has more than {width} entries')
    at = starts[:, None] + np.arange(width)
    inside = at < ends[:, None]
    out = np.full((len(rows), width), fill, np.int32)
    out[inside] = self.values[at[inside]]
    return out


class ScoreKind(enum.Enum):
  """Says what a scorer's scores mean.

  Labels are ranked by these scores, never by a sigmoid of them: a sigmoid
  rounds different high scores to 1.
  """

  LOGIT = 'logit'
  PROBABILITY = 'probability'
  MARGIN = 'margin'


@runtime_checkable
class Scorer(Protocol):
  """Describes a model's interface for evaluation, prediction and strategies.

  Attributes:
    score_kind: the meaning of the scores.
    n_labels: only labels with an index below this number are ranked.
    assigned_above: a label is assigned if its score is above this number. If
      this is None, a label is assigned if its probability is above 0.5 (margins
      have no probability).
    selected_by: how the best labels are searched for: `exact`, `beam=10`,
      `recall=0.95`, `shortlist=500`, `clusters=10`, `runs=3` or `proposers=3`.
  """

  score_kind: ScoreKind
  n_labels: int
  assigned_above: float | None
  selected_by: str

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: 'jax.Array | None' = None,
    slices: 'Sequence[jax.Array]' = (),
    allowed: 'jax.Array | None' = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> 'tuple[jax.Array, jax.Array]':
    """Returns each document's k best labels, among all labels and per slice.

    Args:
      batch: documents; padded rows get lists too, which the caller ignores.
      k: length of the lists.
      weights: float32 [L], non-negative label weights. If weights are given,
        labels are ranked by weight times probability; a label of weight 0 is
        never selected.
      slices: bool [L] masks. Each mask adds a list of the best labels among the
        labels of the mask.
      allowed: bool [L] or [B, L], labels that may be selected.
      sigmoid: (a, b) with a > 0. If weights are given, the probability of a
        score z is sigmoid(a z + b). If scores are probabilities, a and b are
        ignored.

    Returns:
      ids: int32 [G, B, K], G = 1 + len(slices). List 0 is over all labels. A
        list is sorted by descending score, then by ascending index. PAD fills a
        list with fewer than k labels.
      scores: float32 [G, B, K], -inf where ids are PAD. With weights, a score
        is weight times probability if score_kind is PROBABILITY, else the
        logarithm of this product.
    """
    ...
