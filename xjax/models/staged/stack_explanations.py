"""Explains the labels of a stack by proposers, features and words."""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.progress import progress
from xjax.core.types import PAD, Batch
from xjax.data.schema import Document
from xjax.models.explanations import (
  BEYOND,
  FeatureShares,
  LabelExplanations,
)
from xjax.models.predictor import Predictor
from xjax.models.staged.rankers.pair_features import NONE
from xjax.models.staged.stack_scorer import StackScorer


def feature_shares(
  scorer: StackScorer,
  batches: Sequence[Batch],
  ids_NK: np.ndarray,
  names: Sequence[str],
) -> FeatureShares:
  """Computes how much each feature adds to the scores of listed labels.

  Args:
    scorer: the scorer of the stack.
    batches: batches with every document once.
    ids_NK: int32, the labels of each document, PAD after the last label.
    names: names of the F features.
  """
  values = np.full((*ids_NK.shape, len(names)), np.nan, np.float32)
  is_rank = np.array([name.endswith(':rank') for name in names])
  weights = np.zeros(values.shape, np.float32)
  base = 0.0
  with progress(batches, 'explaining', unit='batch') as batches_left:
    for batch in batches_left:
      ids_BK = ids_NK[batch.doc_B]
      listed = document, _ = np.nonzero(ids_BK != PAD)
      keys = document * np.int64(scorer.n_labels) + ids_BK[listed]
      features = scorer.pairs.features_of(batch, keys)
      shares = scorer.ranker.contributions(features)
      rows = batch.doc_B[document], listed[1]
      # Readers count the places of a list from 1.
      shown = np.where(is_rank, 1 - features, features)
      values[rows] = np.where(features == NONE, np.nan, shown)
      weights[rows] = shares[:, :-1]
      if len(shares):
        base = float(shares[0, -1])
  return FeatureShares(names, values, weights, base)


@dataclasses.dataclass(frozen=True, eq=False)
class StackWords:
  """Finds the words that explain labels best, in the proposer that adds most.

  Attributes:
    members: the proposers whose labels words can explain, by name.
    shares: the shares of all features.
  """

  members: Mapping[str, Predictor]
  shares: FeatureShares

  def explanations(
    self,
    documents: Sequence[str | Document],
    places: Sequence[Mapping[tuple[str, int], int]],
    ids_NK: np.ndarray,
    words: int,
    n_first: int,
  ) -> LabelExplanations:
    """Returns the words and the features that explain the labels.

    Args:
      documents: N documents.
      places: for each document, (zone, start) of a word -> number of the word.
      ids_NK: int32, the labels of each document, PAD after the last label.
      words: int, how many words to list for each label.
      n_first: int. For the first n_first documents, the weights of all words
        are kept.
    """
    at_NKW = np.full((*ids_NK.shape, words), BEYOND, np.int32)
    weights_NKW = np.zeros(at_NKW.shape, np.float32)
    first = [
      np.zeros((ids_NK.shape[1], len(numbers)), np.float32)
      for numbers in places[:n_first]
    ]
    chosen_NK = self._chosen() if self.members else None
    for number, member in enumerate(self.members.values()):
      is_own = (chosen_NK == number) & (ids_NK < member.n_labels)
      own_NK = np.where(is_own, ids_NK, PAD)
      by_member = member.explanations(documents, own_NK, words, n_first)
      for row in np.flatnonzero((own_NK != PAD).any(axis=1)):
        number_of = _numbers(member, documents[row], places[row])
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
    return LabelExplanations(at_NKW, weights_NKW, words, first, self.shares)

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


def _numbers(
  member: Predictor,
  document: str | Document,
  numbers: Mapping[tuple[str, int], int],
) -> np.ndarray:
  """Returns the number of each word that a proposer reads, PAD if unknown."""
  words = member.inputs.words(document)
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
