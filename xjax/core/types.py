"""Axis letters and the types that every room shares.

Array names end in their axes, and einsum strings use the same letters:

  B  documents of a batch          L  labels
  T  tokens of a document          C  labels of one chunk
  D  features                      K  entries of a top-k list
  P  padded positives of a document
  S  tokens of a label descriptor  G  slices of the label space
  N  documents of a split          Z  zones of a document
  E  features of a descriptor      A  entries of a shortlist
  U  units of a layer: hidden units of a GRU, filters of a convolution
  V  gates of a GRU, three a unit
  W  words that explain a label
  X  several axes laid end to end, such as B and T

and in judging:

  J  cut-offs k                    Q  sets of decisions: the first k labels, or
  M  sums over documents              those above a threshold
  F  frequency bins of labels      H  labels that are counted one by one
  R  replicates

An axis without a letter is spelled out, as in `new_by_block`.
"""

from collections.abc import Sequence
import dataclasses
import enum
from typing import Protocol, runtime_checkable

from flax import struct
import jax
import numpy as np

PAD = -1  # fills padded ids: positives_BP, short top-k lists, doc_B
AS_LOGITS = (1.0, 0.0)  # a and b of a sigmoid of scores as they are


@struct.dataclass
class Batch:
  """A padded batch of documents; NumPy on the host, jax.Array on a mesh.

  Where zones are kept apart (data.tokens.by_zone), tokens are [B, Z, T] and
  lengths [B, Z]; a document's zones without any token come last, of length 0.

  Attributes:
    tokens_BT: int32 token ids, 0 beyond a document's length; None where
      documents come as features.
    lengths_B: int32 number of tokens, or of features.
    positives_BP: int32 gold label indices, PAD beyond a document's labels.
    mask_B: bool, False for rows that only fill the batch.
    doc_B: int32 row of the document in its split, PAD for filling rows.
    weights_BT: float32 weights of sparse features, or None.
    segments_BT: where documents share rows, int32 [rows, T] as tokens_BT is:
      0 at padding, then 1, 2, ... by document of a row; or None.
    first_B: with segments, int32 place of a document's first token in the rows
      of its device laid end to end; or None.
    features_BTD: float32 vectors of an outside encoder, 0 beyond a document's
      length, or None.
  """

  tokens_BT: jax.Array | None
  lengths_B: jax.Array
  positives_BP: jax.Array
  mask_B: jax.Array
  doc_B: jax.Array
  weights_BT: jax.Array | None = None
  segments_BT: jax.Array | None = None
  first_B: jax.Array | None = None
  features_BTD: jax.Array | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
  """Rows of unequal length, end to end (CSR without values).

  Attributes:
    indptr: int64 [N + 1], row i is values[indptr[i]:indptr[i + 1]].
    values: int32, all rows one after the other.
  """

  indptr: np.ndarray
  values: np.ndarray

  @classmethod
  def of(cls, rows: Sequence[Sequence[int]]) -> 'Ragged':
    """Joins a sequence of integer rows."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    values = np.fromiter((v for row in rows for v in row), np.int32, indptr[-1])
    return cls(indptr, values)

  def __len__(self) -> int:
    return len(self.indptr) - 1

  def __getitem__(self, row: int) -> np.ndarray:
    return self.values[self.indptr[row] : self.indptr[row + 1]]

  @property
  def lengths(self) -> np.ndarray:
    """int64 [N] entries per row."""
    return np.diff(self.indptr)

  def keep(self, kept: np.ndarray) -> 'Ragged':
    """The rows without the values where kept, bool [values], is False."""
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return Ragged(before[self.indptr], self.values[kept])

  def padded(self, rows: np.ndarray, width: int, fill: int) -> np.ndarray:
    """int32 [len(rows), width] of the given rows; a PAD row is all fill.

    A row longer than width raises ValueError: nothing is truncated.
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
  """What a scorer's scores are; ranking is on them, never on sigmoids."""

  LOGIT = 'logit'
  PROBABILITY = 'probability'
  MARGIN = 'margin'


@runtime_checkable
class Scorer(Protocol):
  """All that evaluation, prediction and strategies know of a model.

  Attributes:
    score_kind: what its scores are.
    n_labels: it ranks the labels below this index, no others.
    assigned_above: the score above which it assigns labels itself; None:
      probability 0.5, where its scores tell.
    selected_by: how it searches the best labels: `exact`, `beam=10`,
      `recall=0.95` or `shortlist=500`.
  """

  score_kind: ScoreKind
  n_labels: int
  assigned_above: float | None
  selected_by: str

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: jax.Array | None = None,
    slices: Sequence[jax.Array] = (),
    allowed: jax.Array | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[jax.Array, jax.Array]:
    """The k best labels of each document, over all labels and per slice.

    Args:
      batch: documents; padded rows get lists too, to be ignored.
      k: length of the lists.
      weights: float32 [L], non-negative label weights. Ranking is by weight
        times probability; a label of weight 0 is never selected.
      slices: bool [L] masks, a further list each, of their labels alone.
      allowed: bool [L] or [B, L], labels that may be selected.
      sigmoid: a > 0 and b. With weights, the probability of a margin z is
        sigmoid(a z + b). Probabilities take no notice of it.

    Returns:
      ids: int32 [G, B, K], G = 1 + len(slices), row 0 over all labels; by
        score descending then index ascending; PAD where labels run out.
      scores: float32 [G, B, K], -inf where ids are PAD. With weights they are
        what is ranked by: weight times probability where score_kind is that,
        else the logarithm of it.
    """
    ...
