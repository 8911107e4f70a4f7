"""Holds documents as users have them: texts, sparse rows, or vectors."""

from collections.abc import Callable, Hashable, Iterator, Sequence
import dataclasses
import functools
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import Ragged
from xjax.data.schema import Document, Split
from xjax.data.vectors.feature_rows import FeatureRows

Show = Callable[[Document], Document]  # shows a document with fewer zones


@dataclasses.dataclass(frozen=True, eq=False)
class SparseDocuments(Sequence):
  """Holds documents of sparse features, not text; their ids are row numbers."""

  source: str  # name of the file, for messages
  rows: sparse.csr_array  # float32 [N, D], columns ascending in each row
  labels: Ragged | None = None  # label ids, as integers; None if unknown
  numbers: np.ndarray | None = None  # int [N], rows in the file; None: all

  def __len__(self) -> int:
    return self.rows.shape[0]

  def __getitem__(self, row: int) -> Document:
    row = range(len(self))[row]
    id_ = str(row if self.numbers is None else self.numbers[row])
    if self.labels is None:
      return Document(id_, {}, None)
    return Document(id_, {}, tuple(map(str, self.labels[row].tolist())))

  @property
  def ids(self) -> tuple[str, ...]:
    numbers = range(len(self)) if self.numbers is None else self.numbers
    return tuple(map(str, numbers))

  @property
  def n_features(self) -> int:
    return self.rows.shape[1]

  def part(self, rows: np.ndarray) -> 'SparseDocuments':
    labels = self.labels
    return SparseDocuments(
      self.source,
      self.rows[rows],
      None if labels is None else labels.take(rows),
      rows if self.numbers is None else self.numbers[rows],
    )

  def with_width(self, n_features: int) -> 'SparseDocuments':
    """Returns documents of n_features columns; a DataError for others."""
    if self.n_features == n_features:
      return self
    if self.rows.nnz and (largest := self.rows.indices.max()) >= n_features:
      raise DataError(
        f'{self.source}: feature {largest} is not in 0..{n_features - 1}, the '
        'features of the training split'
      )
    rows = self.rows
    parts = rows.data, rows.indices, rows.indptr
    shape = (len(self), n_features)
    return dataclasses.replace(self, rows=sparse.csr_array(parts, shape))


@dataclasses.dataclass(frozen=True, eq=False)
class Documents(Sequence):
  """Holds N documents, and remembers what featurisers made of them."""

  # Texts, documents with zones, or SparseDocuments, by random access.
  items: Sequence[str | Document]
  gold: Ragged | None = None  # None if they are not known
  vectors: FeatureRows | None = None  # from an outside encoder, if any
  # The split that has these documents, in this order, if there is one.
  split: Split | None = None
  rows: np.ndarray | None = None  # int [N], used rows of `items`; None: all
  # int [N], rows in the split; None for 0 to N - 1.
  numbers: np.ndarray | None = None
  # Functions that show a document in another way, with their keys.
  shown: tuple[tuple[Hashable, Show], ...] = ()
  # What featurisers made of all items, by key; None: nothing.
  memory: dict[Hashable, Any] | None = None

  @classmethod
  def of(
    cls,
    documents: 'Documents | Sequence[str | Document]',
    vectors: FeatureRows | None = None,
  ) -> 'Documents':
    """Wraps texts or documents; Documents stay as they are."""
    if not isinstance(documents, Documents):
      return cls(documents, vectors=vectors)
    if vectors is None:
      return documents
    return dataclasses.replace(documents, vectors=vectors)

  @classmethod
  def of_split(cls, split: Split) -> 'Documents':
    return dataclasses.replace(
      cls.of(split.documents),
      gold=split.gold,
      vectors=split.features,
      split=split,
      numbers=None,
    )

  def __len__(self) -> int:
    return len(self.items) if self.rows is None else len(self.rows)

  def __getitem__(self, row: int) -> str | Document:
    row = range(len(self))[row]
    document = self.items[row if self.rows is None else int(self.rows[row])]
    for _, show in self.shown:
      document = show(document)
    return document

  @functools.cached_property
  def sparse(self) -> SparseDocuments | None:
    """Returns the documents if they have features instead of text."""
    if not isinstance(self.items, SparseDocuments):
      return None
    return self.items if self.rows is None else self.items.part(self.rows)

  def part(self, rows: np.ndarray) -> 'Documents':
    rows = np.asarray(rows, np.int64)
    gold, vectors = self.gold, self.vectors
    if vectors is not None:
      ids = [vectors.ids[row] for row in rows.tolist()]
      vectors = vectors.select(rows, ids)
    return dataclasses.replace(
      self,
      gold=None if gold is None else gold.take(rows),
      vectors=vectors,
      split=None,
      rows=rows if self.rows is None else self.rows[rows],
      numbers=rows if self.numbers is None else self.numbers[rows],
    )

  def without_gold(self) -> 'Documents':
    return dataclasses.replace(self, gold=None)

  def without_vectors(self) -> 'Documents':
    """Returns the documents for models that do not read their vectors."""
    if self.vectors is None:
      return self
    return dataclasses.replace(self, vectors=None)

  def remembering(self) -> 'Documents':
    """Returns documents that remember what featurisers make of all items."""
    if self.memory is not None:
      return self
    return dataclasses.replace(self, memory={})

  def blocks(self, size: int) -> 'Iterator[tuple[np.ndarray, Documents]]':
    """Yields the rows, int [n], and the documents of blocks."""
    # Each document of a block is read once, for all scorers that share it.
    for start in range(0, len(self), size):
      rows = np.arange(start, min(start + size, len(self)))
      block = self.part(rows)
      if block.memory is None:
        items = block.sparse
        if items is None:
          items = [block[row] for row in range(len(block))]
        block = dataclasses.replace(
          block, items=items, rows=None, shown=(), memory={}
        )
      yield rows, block

  def seen_as(self, show: Show, key: Hashable) -> 'Documents':
    """Returns the documents as `show` shows them; a key names a function."""
    shown = *self.shown, (key, show)
    return dataclasses.replace(self, shown=shown, split=None)

  def view(self, key: Hashable, compute: 'Callable[[Documents], Any]') -> Any:
    """Returns what a featuriser makes of the documents, a row for each."""
    # Documents that remember compute it once per key, for all items.
    if self.memory is None:
      return compute(self)
    key = tuple(name for name, _ in self.shown), key
    if key not in self.memory:
      whole = dataclasses.replace(
        self, rows=None, numbers=None, gold=None, vectors=None
      )
      self.memory[key] = compute(whole)
    made = self.memory[key]
    return made if self.rows is None else made[self.rows]
