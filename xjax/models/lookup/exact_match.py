"""Assigns the labels whose names occur verbatim in a document.

The method is Exact Match of Chalkidis et al. 2019, Section 4. It needs no
training. Texts and names are split into words (data.text.words, with digits
kept), and are compared word by word. Case and punctuation do not matter. A part
of a word does not match.
"""

from collections.abc import Iterable, Sequence

import ahocorasick
import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import AS_LOGITS, PAD, Batch, Ragged, ScoreKind
from xjax.data.schema import Document
from xjax.data.text.word_shares import WordShares
from xjax.data.text.words import (
  WordPlace,
  document_words,
  has_letters,
  split_words,
)


def check_letters(names: Iterable[Iterable[str]]) -> None:
  """Checks that the names of labels can be searched for.

  Args:
    names: the names of each label.

  Raises:
    DataError: no name has a letter.
  """
  if not any(has_letters(name) for label in names for name in label):
    raise DataError(
      'no label has a name that contains a letter, but this model needs the '
      'names of labels'
    )


class DescriptorMatcher:
  """Finds the names of all labels in one pass over a text (Aho-Corasick).

  Every occurrence counts, also an occurrence inside a longer name. A label's
  score is n + w / (w + 1) if its names occur n times and the longest of these
  names has w words. So labels are ranked by the number of occurrences. Labels
  with equal numbers are ranked by w.
  """

  def __init__(self, names: Sequence[Sequence[str]], max_words: int):
    """Builds an automaton that searches for the names.

    Args:
      names: for each label, the names to search for. Names without a letter are
        ignored. Such names are numbers, for example the ids of labels that have
        no name.
      max_words: number of words to read from the start of each text.

    Raises:
      DataError: no label has a name with a letter.
    """
    self.n_features, self._max_words = len(names), max_words
    labels: dict[str, list[int]] = {}
    for label, label_names in enumerate(names):
      for text in dict.fromkeys(map(_spaced_words, label_names)):
        if has_letters(text):
          labels.setdefault(text, []).append(label)
    check_letters(names)
    self._automaton = ahocorasick.Automaton()
    for text, ids in labels.items():
      # A name of n words has n + 1 spaces, because there is also a space before
      # the first word and after the last word.
      self._automaton.add_word(text, (ids, text.count(' ') - 1))
    self._automaton.make_automaton()

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the scores of the labels whose names occur in each text.

    Args:
      texts: N texts.

    Returns:
      float32 [N, L]. Only labels that occur in the text have entries.
    """
    rows = [self._match(text) for text in texts]
    ids = Ragged.of([sorted(row) for row in rows])
    scores = (row[label] for row in rows for label in sorted(row))
    scores = np.fromiter(scores, np.float32, len(ids.values))
    shape = (len(texts), self.n_features)
    return sparse.csr_array((scores, ids.values, ids.indptr), shape)

  def words(self, document: Document) -> list[WordPlace]:
    """Returns the place of each word that is read, in reading order."""
    return document_words(document)[: self._max_words]

  def word_shares(self, document: Document) -> WordShares:
    """Divides the scores of matched labels among the words of their names."""
    text = document.text()
    spaced = _spaced_words(text, self._max_words)
    # A name ends at the space after its last word. Word j is before space
    # j + 1, since the first space is number 0.
    spaces = np.cumsum([char == ' ' for char in spaced]) - 1
    occurrences = [
      (spaces[end] - length, length, label)
      for end, (labels, length) in self._automaton.iter(spaced)
      for label in labels
    ]
    columns = np.array(occurrences, np.int64).reshape(-1, 3).T
    scores = self._match(text)
    return WordShares.of(
      spaced.split(),
      tuple(columns),
      lambda labels, _: np.array([scores[x] for x in labels.tolist()]),
    )

  def _match(self, text: str) -> dict[int, float]:
    """Returns the score of each label whose names occur in the text."""
    counts: dict[int, int] = {}
    longest: dict[int, int] = {}
    spaced = _spaced_words(text, self._max_words)
    for _, (labels, length) in self._automaton.iter(spaced):
      for label in labels:
        counts[label] = counts.get(label, 0) + 1
        longest[label] = max(longest.get(label, 0), length)
    return {x: n + longest[x] / (longest[x] + 1) for x, n in counts.items()}


class MatchedLabels:
  """Selects the best matched labels of each document (a core.types.Scorer).

  The matched labels are the labels that have scores before the selection, such
  as the labels that DescriptorMatcher found. In a batch, tokens_BT holds the
  indices of these labels in ascending order, and weights_BT holds the scores.
  No other labels are selected.

  Attributes:
    score_kind: MARGIN. All scores are positive.
    n_labels: number of labels, L.
    assigned_above: labels with larger scores are assigned.
    selected_by: `exact`.
  """

  score_kind = ScoreKind.MARGIN
  selected_by = 'exact'

  def __init__(self, n_labels: int, assigned_above: float = 0.0):
    self.n_labels, self.assigned_above = n_labels, assigned_above

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k best matched labels of each document (core.types.Scorer).

    The lists equal the lists that networks.topk.dense_topk returns for the
    matched labels. With weights, labels are ranked by
    log weight + log sigmoid(a score + b).
    """
    ids_BT, scores_BT = batch.tokens_BT, batch.weights_BT
    if weights is not None:
      # A label with weight 0 gets -inf, so that it is never selected.
      with np.errstate(divide='ignore'):
        logs_L = np.log(np.asarray(weights, np.float32))
      a, b = np.float32(sigmoid)
      scores_BT = logs_L[ids_BT] - np.logaddexp(
        np.float32(0), -a * scores_BT - b
      )
    listed_BT = np.arange(ids_BT.shape[1]) < batch.lengths_B[:, None]
    if allowed is not None:
      rows_L = np.broadcast_to(allowed, (len(ids_BT), np.shape(allowed)[-1]))
      listed_BT = listed_BT & np.take_along_axis(rows_L, ids_BT, axis=1)
    masks_GBT = np.stack([listed_BT, *(listed_BT & x[ids_BT] for x in slices)])
    return _best(ids_BT, np.where(masks_GBT, scores_BT, -np.inf), k)

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> np.ndarray:
    """Returns 1 where a feature is the label, else 0, as float64 [D, K].

    Args:
      features: int [D], matched labels.
      labels: int [K], labels or PAD.
    """
    return (features[:, None] == labels).astype(np.float64)


def _best(
  ids_BT: np.ndarray, scores_GBT: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the k best labels of each document and each slice.

  Args:
    ids_BT: labels of each document, in ascending order. If labels have equal
      scores, the lower label comes first in the result.
    scores_GBT: scores of the labels in each slice, and -inf for labels that
      must not be selected.
    k: length of the lists.

  Returns:
    ids_GBK and float32 scores_GBK, with PAD and -inf at the end of lists that
    have fewer than k labels.
  """
  fill = [(0, 0), (0, 0), (0, max(0, k - ids_BT.shape[1]))]
  scores_GBT = np.pad(
    scores_GBT.astype(np.float32), fill, constant_values=-np.inf
  )
  ids_BT = np.pad(ids_BT, fill[1:], constant_values=PAD)
  order = np.argsort(-scores_GBT, axis=2, kind='stable')[..., :k]
  scores_GBK = np.take_along_axis(scores_GBT, order, axis=2)
  ids_GBK = np.take_along_axis(ids_BT[None], order, axis=2)
  return np.where(scores_GBK == -np.inf, PAD, ids_GBK), scores_GBK


def _spaced_words(text: str, max_words: int | None = None) -> str:
  """Returns the first words of a text, with a space on both sides of each word.

  The spaces ensure that no word matches a part of another word.
  """
  return f' {" ".join(split_words(text, keep_digits=True)[:max_words])} '
