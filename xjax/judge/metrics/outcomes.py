"""What a system did with each of the documents that it is judged on."""

from collections.abc import Mapping
import dataclasses

import numpy as np

from xjax.core.types import Ragged
from xjax.judge.metrics.label_sums import LabelForm


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
  """Labels given to documents, E times.

  Attributes:
    docs: int [E], rows of documents.
    labels: int32 [E].
    hits: bool [E], whether the label is gold.
  """

  docs: np.ndarray
  labels: np.ndarray
  hits: np.ndarray

  def correct(self) -> 'Decisions':
    """Those that are right."""
    return Decisions(
      self.docs[self.hits], self.labels[self.hits], self.hits[self.hits]
    )

  def per_document(self, n_docs: int) -> np.ndarray:
    """float64 [n_docs], decisions of each."""
    return np.bincount(self.docs, minlength=n_docs).astype(np.float64)

  def none(self) -> 'Decisions':
    """No decision."""
    return Decisions(self.docs[:0], self.labels[:0], self.hits[:0])


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
  """What a system did with N documents.

  Attributes:
    terms: name -> float64 [N], what each document adds to the sum of that name.
    sets: what ends the names of a set's sums -> its decisions.
    gold: N rows of label indices.
    mask: bool [L], the labels of the slice.
    bins: name -> bool [L].
    fixed: name -> a sum that does not depend on the documents.
    form: of the sums over labels.
  """

  terms: Mapping[str, np.ndarray]
  sets: Mapping[str, Decisions]
  gold: Ragged
  mask: np.ndarray
  bins: Mapping[str, np.ndarray]
  fixed: Mapping[str, int | float]
  form: LabelForm

  def __len__(self) -> int:
    return len(self.gold)

  @property
  def golden(self) -> Decisions:
    """The gold labels."""
    docs = np.repeat(np.arange(len(self)), self.gold.lengths)
    return Decisions(docs, self.gold.values, np.ones(len(docs), bool))

  def up_to_largest(self, end: str) -> np.ndarray:
    """Labels up to the largest that is gold or in a set: int [N]."""
    upto_L, found_N = np.cumsum(self.mask), np.zeros(len(self), np.int64)
    for each in (self.sets[end], self.golden):
      np.maximum.at(found_N, each.docs, upto_L[each.labels])
    return found_N

  def none(self) -> 'Outcomes':
    """The same documents, when none of them counts."""
    return dataclasses.replace(
      self,
      terms={name: np.zeros_like(row) for name, row in self.terms.items()},
      sets={end: decisions.none() for end, decisions in self.sets.items()},
      gold=Ragged(np.zeros_like(self.gold.indptr), self.gold.values[:0]),
    )
