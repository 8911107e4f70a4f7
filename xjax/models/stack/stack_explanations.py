"""Explains the labels of a stack by proposers, features and words."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.progress import Progress
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import read_zones
from xjax.data.schema import Document
from xjax.data.text.words import WordPlace, document_words
from xjax.models.explanations import (
  BEYOND,
  FeatureShares,
  LabelExplanations,
)
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.boosted import BoostedRanker
from xjax.models.stack.pair_features import NONE
from xjax.models.stack.stack_pairs import StackPairs


@dataclasses.dataclass(frozen=True)
class RunWords:
  """Reads the words of the zones that a run reads (explanations.WordReader)."""

  data: DataConfig

  def document(self, document: str | Document) -> Document:
    return read_zones(document, self.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    return document_words(self.document(document))


def feature_shares(
  pairs: StackPairs,
  ranker: BoostedRanker,
  documents: Documents,
  ids_NK: np.ndarray,  # PAD after the last label of a document
  block: int,
) -> FeatureShares:
  """Computes how much each feature adds to the scores of listed labels."""
  names = pairs.names
  values = np.full((*ids_NK.shape, len(names)), np.nan, np.float32)
  is_rank = np.array([name.endswith(':rank') for name in names])
  weights = np.zeros(values.shape, np.float32)
  base = 0.0
  with Progress('explaining', len(documents)) as shown:
    for rows, part in documents.blocks(block):
      ids_BK = ids_NK[rows]
      listed = document, _ = np.nonzero(ids_BK != PAD)
      keys = document * np.int64(pairs.n_labels) + ids_BK[listed]
      features = pairs.features_of(part, keys)
      shares = ranker.contributions(features)
      at = rows[document], listed[1]
      # Readers count the places of a list from 1.
      readable = np.where(is_rank, 1 - features, features)
      values[at] = np.where(features == NONE, np.nan, readable)
      weights[at] = shares[:, :-1]
      if len(shares):
        base = float(shares[0, -1])
      shown.update(len(rows))
  return FeatureShares(names, values, weights, base)


@dataclasses.dataclass(frozen=True, eq=False)
class StackWords:
  """Finds the words that explain labels, in the proposer that adds most."""

  members: Mapping[str, Scorer]  # by name, those whose labels words can explain
  shares: FeatureShares  # of all features
  reader: RunWords

  def explanations(
    self,
    documents: Documents,
    ids_NK: np.ndarray,
    words: int,
    n_first: int,
  ) -> LabelExplanations:
    places = [_places(self.reader.words(x)) for x in documents]
    at_NKW = np.full((*ids_NK.shape, words), BEYOND, np.int32)
    weights_NKW = np.zeros(at_NKW.shape, np.float32)
    first = [
      np.zeros((ids_NK.shape[1], len(numbers)), np.float32)
      for numbers in places[:n_first]
    ]
    chosen_NK = self._chosen() if self.members else None
    for number, member in enumerate(self.members.values()):
      # Each proposer explains only the labels to which it adds most.
      is_own = (chosen_NK == number) & (ids_NK < member.n_labels)
      own_NK = np.where(is_own, ids_NK, PAD)
      read = documents_for(member, documents)
      by_member = member.explain(read, own_NK, words, n_first)
      for row in np.flatnonzero((own_NK != PAD).any(axis=1)):
        # A proposer reads other zones, or fewer words. Its places become those
        # of all words of the document.
        number_of = _numbers(by_member, row, places[row])
        for column in np.flatnonzero(own_NK[row] != PAD):
          at = row, column
          listed = by_member.at_NKW[at], by_member.weights_NKW[at]
          at_W, weights_W = _known(*listed, number_of)
          at_NKW[at][: len(at_W)] = at_W
          weights_NKW[at][: len(at_W)] = weights_W
          if row < len(first):
            weights_T = by_member.first[row][column]
            every = np.arange(len(weights_T))
            at_T, weights_T = _known(every, weights_T, number_of)
            first[row][column][at_T] = weights_T
    return LabelExplanations(
      documents, self.reader, at_NKW, weights_NKW, words, first, self.shares
    )

  def _chosen(self) -> np.ndarray:
    """Returns the number of the proposer that adds most to each label."""
    totals = [
      self.shares.weights_NKF[:, :, self._columns(name)].sum(axis=2)
      for name in self.members
    ]
    return np.argmax(totals, axis=0)

  def _columns(self, proposer: str) -> list[int]:
    names = enumerate(self.shares.names)
    return [i for i, name in names if name.startswith(f'{proposer}:')]


def _places(words: Sequence[WordPlace]) -> dict[tuple[str, int], int]:
  return {(word.zone, word.start): at for at, word in enumerate(words)}


def _numbers(
  explained: LabelExplanations, row: int, numbers: Mapping[tuple[str, int], int]
) -> np.ndarray:
  """Returns the number of each word that a proposer reads, PAD if unknown."""
  _, words = explained.read(row)
  return np.array(
    [numbers.get((word.zone, word.start), PAD) for word in words], np.int64
  )


def _known(
  at_W: np.ndarray, weights_W: np.ndarray, number_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the numbers and weights of listed words that the document has."""
  inside = at_W < len(number_of)
  at_W, weights_W = number_of[at_W[inside]], weights_W[inside]
  return at_W[at_W != PAD], weights_W[at_W != PAD]
