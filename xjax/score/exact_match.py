"""Labels whose descriptors are found verbatim in a document.

Exact Match of Chalkidis et al. 2019, Section 4: nothing is learnt. Texts and
descriptors are compared word by word, in the words of data.text.words but with
digits as they are: case and punctuation do not matter, the ends of words do.
"""

from collections.abc import Sequence

import ahocorasick
import numpy as np
from scipy import sparse

from xjax.core.errors import DataError
from xjax.core.types import AS_LOGITS, PAD, Batch, Ragged, ScoreKind
from xjax.data.text.words import has_letters, split_words


class DescriptorMatcher:
  """Finds the names of labels in texts, all at once (Aho-Corasick).

  Every occurrence counts, also within a longer name. A label's score is n + w /
  (w + 1): it was found n times, and the longest of its names that were found
  has w words. So labels rank by occurrences, then by length.
  """

  def __init__(self, names: Sequence[Sequence[str]], max_words: int):
    """Prepares the automaton.

    Args:
      names: for each label those it may be found by. Names without a letter are
        left out: they are mere numbers, such as the ids of labels that have no
        name.
      max_words: a text's first words, in which names are looked for.

    Raises:
      DataError: no label has a name.
    """
    self._n_labels, self._max_words = len(names), max_words
    labels: dict[str, list[int]] = {}
    for label, of_label in enumerate(names):
      for text in dict.fromkeys(map(_spaced, of_label)):
        if has_letters(text):
          labels.setdefault(text, []).append(label)
    if not labels:
      raise DataError(
        'no label has a name that could be found in a text: exact match needs '
        'descriptors of labels'
      )
    self._automaton = ahocorasick.Automaton()
    for text, found in labels.items():
      # Spaces stand around each word of a name.
      self._automaton.add_word(text, (found, text.count(' ') - 1))
    self._automaton.make_automaton()

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """float32 [N, L]: the scores of the labels found in each text."""
    rows = [self._match(text) for text in texts]
    ids = Ragged.of([sorted(row) for row in rows])
    scores = (row[label] for row in rows for label in sorted(row))
    scores = np.fromiter(scores, np.float32, len(ids.values))
    shape = (len(texts), self._n_labels)
    return sparse.csr_array((scores, ids.values, ids.indptr), shape)

  def _match(self, text: str) -> dict[int, float]:
    """Label -> score."""
    counts: dict[int, int] = {}
    longest: dict[int, int] = {}
    spaced = _spaced(text, self._max_words)
    for _, (labels, length) in self._automaton.iter(spaced):
      for label in labels:
        counts[label] = counts.get(label, 0) + 1
        longest[label] = max(longest.get(label, 0), length)
    return {x: n + longest[x] / (longest[x] + 1) for x, n in counts.items()}


class MatchedLabels:
  """Selects among labels found before (a core.types.Scorer).

  Batches have the labels that were found in tokens_BT, ascending, and their
  scores in weights_BT. Others are never returned.

  Attributes:
    score_kind: MARGIN; all scores are positive.
    n_labels: labels that are looked for.
    assigned_above: 0; what is found is assigned.
    selected_by: `exact`.
  """

  score_kind = ScoreKind.MARGIN
  assigned_above = 0.0
  selected_by = 'exact'

  def __init__(self, n_labels: int):
    self.n_labels = n_labels

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
    sigmoid: tuple[float, float] = AS_LOGITS,
  ) -> tuple[np.ndarray, np.ndarray]:
    """As core.types.Scorer; equals select.topk.dense_topk on the matches.

    With weights, ranking is by log weight + log sigmoid(a score + b).
    """
    ids_BT, scores_BT = batch.tokens_BT, batch.weights_BT
    if weights is not None:
      with np.errstate(divide='ignore'):  # log 0: never selected
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


def _best(
  ids_BT: np.ndarray, scores_GBT: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """The k best labels; ids ascend, so that ties go to the lower one."""
  fill = [(0, 0), (0, 0), (0, max(0, k - ids_BT.shape[1]))]
  scores_GBT = np.pad(
    scores_GBT.astype(np.float32), fill, constant_values=-np.inf
  )
  ids_BT = np.pad(ids_BT, fill[1:], constant_values=PAD)
  order = np.argsort(-scores_GBT, axis=2, kind='stable')[..., :k]
  scores_GBK = np.take_along_axis(scores_GBT, order, axis=2)
  ids_GBK = np.take_along_axis(ids_BT[None], order, axis=2)
  return np.where(scores_GBK == -np.inf, PAD, ids_GBK), scores_GBK


def _spaced(text: str, most: int | None = None) -> str:
  """A text's first words, spaces around each: none is found within another."""
  return f' {" ".join(split_words(text, keep_digits=True)[:most])} '
