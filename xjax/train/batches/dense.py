"""Makes batches of a few static shapes, with random access through grain.

Buckets are the lengths to which documents are padded. A document goes to the
smallest bucket that holds its tokens. All documents of a batch are in one
bucket, so jit traces one program per bucket. If zones are kept apart, the
length is that of the longest zone. If documents are packed (several documents
share a row), there is one bucket, and jit traces one program per number of
rows. The content of a batch depends only on seed and index, not on the number
of threads and processes.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import sys
import threading
import typing

import numpy as np

from xjax.core.errors import DataError
from xjax.core.mesh_config import WHOLE, ProcessShare
from xjax.core.rng import host_generator
from xjax.core.types import PAD, Ragged
from xjax.data.text.words import PAD_ID, UNKNOWN_ID
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.networks.batch import TokenBatch
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.batches.packing import Packing

if typing.TYPE_CHECKING:
  import grain

MIN_POSITIVES = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Zones:
  """Holds the token ids of N documents by zone; empty zones are left out."""

  values: np.ndarray  # int32, token ids of all documents, concatenated
  starts: np.ndarray  # int64 [zones], where each zone starts in values
  ends: np.ndarray  # int64 [zones], where it ends
  firsts: np.ndarray  # int64 [N + 1], where the zones of each document start

  @classmethod
  def of(cls, tokens: Ragged) -> 'Zones':
    """Splits each document at the PAD_ID between two zones."""
    # A zone starts at its document's start or after a PAD_ID, and ends before
    # the next one; after sorting, start i belongs to end i.
    between = np.flatnonzero(tokens.values == PAD_ID)
    full = tokens.lengths > 0
    starts = np.concatenate([tokens.indptr[:-1][full], between + 1])
    ends = np.concatenate([tokens.indptr[1:][full], between])
    starts.sort()
    ends.sort()
    firsts = np.searchsorted(starts, tokens.indptr)
    return cls(tokens.values, starts, ends, firsts)

  def __len__(self) -> int:
    return len(self.firsts) - 1

  @property
  def counts(self) -> np.ndarray:
    return np.diff(self.firsts)

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    longest = np.zeros(len(self), np.int64)
    documents = np.repeat(np.arange(len(self)), self.counts)
    np.maximum.at(longest, documents, self.ends - self.starts)
    return longest

  def padded(
    self, rows: np.ndarray, count: int, width: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens [B, Z, T], then PAD_ID, and lengths of zones [B, Z]."""
    firsts = np.where(rows == PAD, 0, self.firsts[rows])
    ends = np.where(rows == PAD, 0, self.firsts[rows + 1])
    zones_BZ = firsts[:, None] + np.arange(count)
    real_BZ = zones_BZ < ends[:, None]
    starts = self.starts[zones_BZ[real_BZ]]
    lengths_BZ = np.zeros(zones_BZ.shape, np.int32)
    lengths_BZ[real_BZ] = self.ends[zones_BZ[real_BZ]] - starts
    # One gather fills all documents: token t of a zone is values[start + t].
    # Places outside a zone are never read, so their start may be 0.
    at_BZ = np.zeros(zones_BZ.shape, np.int64)
    at_BZ[real_BZ] = starts
    steps_T = np.arange(width)
    inside = steps_T < lengths_BZ[..., None]
    tokens_BZT = np.full(inside.shape, PAD_ID, np.int32)
    tokens_BZT[inside] = self.values[(at_BZ[..., None] + steps_T)[inside]]
    return tokens_BZT, lengths_BZ


TokenRows = Ragged | Zones | FeatureRows  # tokens or vectors of N documents


@dataclasses.dataclass(eq=False)
class _Buckets:
  """Groups documents by length, and makes batches as NumPy arrays."""

  tokens: TokenRows
  gold: Ragged
  _: dataclasses.KW_ONLY
  batch_size: int  # documents per batch, over all processes
  buckets: Sequence[int]  # ascending; the last holds the longest document
  share: ProcessShare = WHOLE  # this process's share of the rows of a batch
  padding: int = PAD_ID  # the token id that fills rows after documents
  # Which documents share rows, all of the last bucket's length; None gives each
  # document its own row.
  packing: Packing | None = None

  def __post_init__(self) -> None:
    tokens, gold = self.tokens, self.gold
    widths = np.asarray(self.buckets, np.int64)
    if self.packing:
      widths = widths[-1:]
    self._own_rows = self.share.rows(self.batch_size)
    self._lengths_N = tokens.lengths.astype(np.int32)
    self._bucket_N = np.searchsorted(widths, self._lengths_N).astype(np.int16)
    if isinstance(tokens, Zones):
      self._most_zones = [
        int(tokens.counts[self._bucket_N == i].max(initial=1))
        for i in range(len(widths))
      ]
    self._shapes = [
      (int(width), _positives_width(gold.lengths[self._bucket_N == i]))
      for i, width in enumerate(widths)
    ]
    counts = np.bincount(self._bucket_N, minlength=len(self._shapes))
    self._batches = -(-counts // self.batch_size)  # per bucket

  @property
  def steps_by_shape(self) -> dict[tuple[int, ...], int]:
    """Returns batches per epoch by shape (T, P), or (zones Z, T, P)."""
    steps: dict[tuple[int, ...], int] = {}
    for bucket in np.flatnonzero(self._batches):
      shape = self._shapes[bucket]
      if isinstance(self.tokens, Zones):
        shape = (self._most_zones[bucket], *shape)
      steps[shape] = int(self._batches[bucket])
    return steps

  @property
  def mean_length(self) -> float:
    return float(self._lengths_N.mean())

  def _arrange(self, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of batches, PAD in empty places, and their buckets."""
    order = order[np.argsort(self._bucket_N[order], kind='stable')]
    counts = np.bincount(self._bucket_N, minlength=len(self._shapes))
    batches = self._batches
    rows = np.full((batches.sum(), self.batch_size), PAD, np.int32)
    # The batches of all buckets are concatenated. Each bucket fills its places
    # from the first one, so that only the end of its last batch is empty.
    place_N = np.arange(len(order))
    filled = np.cumsum(counts) - counts
    starts = (np.cumsum(batches) - batches) * self.batch_size
    place_N += np.repeat(starts - filled, counts)
    rows.reshape(-1)[place_N] = order
    return rows, np.repeat(np.arange(len(batches)), batches)

  def _batch(self, rows: np.ndarray, bucket: int) -> TokenBatch:
    if self.packing:
      inputs = self._pack(rows, self.packing)
    else:
      inputs = self._read(rows[self._own_rows], bucket)
    rows = rows[self._own_rows]
    return TokenBatch(
      **inputs,
      positives_BP=self.gold.padded(rows, self._shapes[bucket][1], PAD),
      mask_B=rows != PAD,
      doc_B=rows,
    )

  def _pack(self, rows: np.ndarray, packing: Packing) -> dict[str, np.ndarray]:
    lengths_B = np.where(rows != PAD, self._lengths_N[rows], 0)
    documents = [
      self.tokens[row] if row != PAD and self._lengths_N[row] else [UNKNOWN_ID]
      for row in rows[self._own_rows]
    ]
    lengths_B, width = np.maximum(lengths_B, 1), self._shapes[0][0]
    return packing.pack(documents, lengths_B, width, self.share, self.padding)

  def _read(
    self, rows: np.ndarray, bucket: int
  ) -> dict[str, np.ndarray | None]:
    width = self._shapes[bucket][0]
    lengths_B = np.where(rows != PAD, self._lengths_N[rows], 0)
    features_BTD = None
    if isinstance(self.tokens, FeatureRows):
      tokens_BT = None
      features_BTD = self.tokens.padded(rows, width)
    elif isinstance(self.tokens, Zones):
      most = self._most_zones[bucket]
      tokens_BT, lengths_B = self.tokens.padded(rows, most, width)
    else:
      tokens_BT = self.tokens.padded(rows, width, self.padding)
    # A softmax over no tokens would be NaN, so an empty row gets a token.
    first_length_B = lengths_B.reshape(len(rows), -1)[:, 0]
    if tokens_BT is not None:
      tokens_BT.reshape(len(rows), -1)[first_length_B == 0, 0] = UNKNOWN_ID
    np.maximum(first_length_B, 1, out=first_length_B)
    return {
      'tokens_BT': tokens_BT,
      'lengths_B': lengths_B,
      'features_BTD': features_BTD,
    }


def _positives_width(counts: np.ndarray) -> int:
  most = max(MIN_POSITIVES, int(counts.max(initial=0)))
  return 1 << (most - 1).bit_length()


@dataclasses.dataclass(eq=False, kw_only=True)
class TrainBatches(_Buckets):
  """Yields shuffled batches of a training split, without end.

  Element i is batch i mod steps_per_epoch of epoch i // steps_per_epoch. An
  epoch has every document exactly once. Only seed and epoch determine which
  documents share a batch, and the order of batches.

  Rows that only fill a bucket's last batch have mask False and doc PAD. Such a
  row, and a document without tokens, has one unknown token (the id 1) and the
  length 1, in the first zone if zones are kept apart. If documents are vectors,
  the row has one vector of zeros.

  Positives are never truncated: the width P is the smallest power of two, at
  least 4, that holds all positives of the bucket.
  """

  seed: int  # decides the order of documents and batches in each epoch
  workers: int = 2  # threads that prepare batches in advance; 0 means none
  shortlists: TrainShortlists | None = None  # None: all labels are scored

  def __post_init__(self) -> None:
    super().__post_init__()
    if not len(self.tokens):
      raise DataError('the training split has no documents')
    self.steps_per_epoch = int(self._batches.sum())
    # Threads read ahead into the next epoch, so two plans are kept.
    self._kept_plan = functools.lru_cache(maxsize=2)(self._plan)
    self._lock = threading.Lock()

  def __getitem__(self, index: int) -> TokenBatch:
    epoch, step = divmod(index, self.steps_per_epoch)
    with self._lock:  # so that no two threads make the same plan
      rows, buckets = self._kept_plan(epoch)
    batch = self._batch(rows[step], buckets[step])
    if self.shortlists is None:
      return batch
    # Random labels of a step depend only on the seed and the step.
    rng = host_generator(self.seed, 'shortlists', index)
    shortlist = self.shortlists.of(batch.doc_B, batch.positives_BP, rng)
    return dataclasses.replace(batch, shortlist=shortlist)

  def dataset(self) -> 'grain.IterDataset':
    """Returns endless batches; the state of an iterator is an index."""
    import grain

    options = grain.ReadOptions(
      num_threads=self.workers, prefetch_buffer_size=4 * self.workers
    )
    batches = grain.MapDataset.range(sys.maxsize).map(self.__getitem__)
    return batches.to_iter_dataset(options)

  def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = host_generator(self.seed, 'batches', epoch)
    rows, buckets = self._arrange(rng.permutation(len(self.tokens)))
    order = rng.permutation(len(rows))
    return rows[order], buckets[order]


class EvalBatches(_Buckets):
  """Yields all documents once, in batches sorted by bucket, then by row.

  All processes have the same number of batches, with the same shapes. Each
  process gets only the rows of its share. Rows without tokens are as in
  TrainBatches.
  """

  def __len__(self) -> int:
    return int(self._batches.sum())

  def __iter__(self) -> Iterator[TokenBatch]:
    rows, buckets = self._arrange(np.arange(len(self.tokens)))
    return map(self._batch, rows, buckets)
