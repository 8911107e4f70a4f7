"""Computes the features of documents once for several models."""

from collections.abc import Callable, Hashable, Sequence
import dataclasses

import numpy as np
from scipy import sparse

from xjax.data.schema import Document


@dataclasses.dataclass(frozen=True, eq=False)
class SharedDocuments(Sequence):
  """Holds documents, and the sparse features that models computed for them.

  Parts of the documents share their features too.

  Attributes:
    documents: all documents by random access.
    rows: int [n], rows of `documents` that this object has; None for all rows.
    view: function that returns a document as models see it; None for no change.
    view_key: names the view.
    known: (view, key of the features) -> features of all documents.
  """

  documents: Sequence[str | Document]
  rows: np.ndarray | None = None
  view: Callable[[Document], Document] | None = None
  view_key: Hashable = ()
  known: dict[Hashable, sparse.csr_array] = dataclasses.field(
    default_factory=dict
  )

  def __len__(self) -> int:
    return len(self.documents) if self.rows is None else len(self.rows)

  def __getitem__(self, row: int) -> str | Document:
    row = range(len(self))[row]
    document = self.documents[row if self.rows is None else self.rows[row]]
    return document if self.view is None else self.view(document)

  def part(self, rows: np.ndarray) -> 'SharedDocuments':
    """Returns some of the documents, in the order of `rows`."""
    rows = np.asarray(rows)
    if self.rows is not None:
      rows = self.rows[rows]
    return dataclasses.replace(self, rows=rows)

  def seen_as(
    self, view: Callable[[Document], Document], key: Hashable
  ) -> 'SharedDocuments':
    """Returns the documents as a function shows them.

    Args:
      view: returns a document with only some zones, for example.
      key: names the view. Equal keys stand for equal functions.
    """
    key = (*self.view_key, key) if self.view else (key,)
    before = self.view
    both = view if before is None else lambda document: view(before(document))
    return dataclasses.replace(self, view=both, view_key=key)

  def features(
    self,
    key: Hashable,
    compute: Callable[[Sequence[str | Document]], sparse.csr_array],
  ) -> sparse.csr_array:
    """Returns the features of the documents, float32 [n, D].

    The features of all documents are computed at the first call.

    Args:
      key: names the features.
      compute: returns the features of documents.
    """
    key = self.view_key, key
    if key not in self.known:
      self.known[key] = compute(dataclasses.replace(self, rows=None))
    features = self.known[key]
    return features if self.rows is None else features[self.rows]
