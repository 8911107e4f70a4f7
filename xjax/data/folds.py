"""Divides training documents into folds, and makes the corpus of each fold.

Models that are trained on the corpus of a fold have not seen the documents of
the fold. They do not know some labels either, which stand for the labels that
no training document has.
"""

import dataclasses

import numpy as np

from xjax.core.rng import host_generator
from xjax.core.types import Ragged
from xjax.data.documents import Documents, SparseDocuments
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.labels import HOLD_OUT_RANGE, draw_labels
from xjax.data.schema import Corpus, Split, json_digest

_LEAST_HIDDEN = 0.02  # share of the labels that are hidden in any corpus


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
  """Holds a fold of the training documents, and the labels hidden from it."""

  number: int
  rows: np.ndarray  # int64, rows of the split train that are in the fold
  hidden: np.ndarray  # int64, labels that its models do not learn, ascending
  order: np.ndarray  # int64 [L], labels: trained, hidden, and the others

  def corpus(self, corpus: Corpus) -> Corpus:
    """Returns a corpus of the other documents, with hidden labels held out."""
    split, space = corpus.splits[TRAIN], corpus.label_space
    outside = np.ones(len(split), bool)
    outside[self.rows] = False
    kept = np.flatnonzero(outside)
    gold = self._gold(corpus, kept)
    counts = np.bincount(gold.values, minlength=len(space)).astype(np.int32)
    digest = json_digest(split.digest, kept.tolist(), self.hidden.tolist())
    part = select_documents(split, kept, gold)
    part = dataclasses.replace(part, digest=digest)
    fold_space = dataclasses.replace(
      space,
      labels=space.labels[self.order],
      train_counts=counts,
      n_train=len(kept),
      n_trained=space.n_trained - len(self.hidden),
      n_held_out=space.n_held_out + len(self.hidden),
    )
    fingerprint = json_digest(corpus.fingerprint, digest)
    return Corpus(fold_space, {TRAIN: part}, fingerprint)

  def _gold(self, corpus: Corpus, rows: np.ndarray) -> Ragged:
    """Returns trained gold labels of some documents, in the fold's numbers."""
    new = np.argsort(self.order).astype(np.int32)
    gold = corpus.trained_gold.take(rows)
    gold = Ragged(gold.indptr, new[gold.values]).ascending()
    n_trained = corpus.label_space.n_trained - len(self.hidden)
    return gold.keep(gold.values < n_trained)


def select_documents(split: Split, rows: np.ndarray, gold: Ragged) -> Split:
  """Returns documents of a split in the order of `rows`, with their gold."""
  documents = split.documents
  if not isinstance(documents, SparseDocuments):
    documents = Documents.of(documents).remembering()
  return split.part(rows, documents.part(rows), gold)


def make_folds(
  corpus: Corpus, n: int, share: float | None, seed: int
) -> list[Fold]:
  """Divides the split train into n folds of nearly equal size, at random.

  Documents with the same text are in one fold. Labels are hidden from each fold
  at random, as held-out labels are drawn (labels.draw_labels): rare and
  frequent labels with at most 200 training documents are drawn evenly.

  Args:
    share: share of the trained labels to hide, at most half of the labels with
      1 to 200 documents. With 0, this is the share of the labels that have no
      training document, but at least 2 %. With None, no label is hidden.
  """
  space = corpus.label_space
  counts = space.train_counts[: space.n_trained]
  groups = _text_groups(corpus.splits[TRAIN])
  order = host_generator(seed, 'folds').permutation(groups.max(initial=-1) + 1)
  fold_N = (order % n)[groups]
  if share == 0:
    share = max(_LEAST_HIDDEN, float((counts == 0).mean()))
  low, high = HOLD_OUT_RANGE
  candidates = int(((counts >= low) & (counts <= high)).sum())
  n_hidden = min(round((share or 0) * space.n_trained), candidates // 2)
  folds = []
  for number in range(n):
    rng = host_generator(seed, 'hidden', number)
    hidden = np.zeros(0, np.int64)
    if n_hidden:
      drawn = draw_labels(counts, n_hidden, (low, high), rng, 'hidden')
      hidden = np.sort(drawn)
    is_hidden = np.zeros(len(space), bool)
    is_hidden[hidden] = True
    at = np.arange(len(space))
    order = np.lexsort((at, is_hidden, at >= space.n_trained))
    folds.append(Fold(number, np.flatnonzero(fold_N == number), hidden, order))
  return folds


def n_distinct(split: Split) -> int:
  """Returns the number of documents of a split, counting equal texts once."""
  return int(_text_groups(split).max(initial=-1)) + 1


def _text_groups(split: Split) -> np.ndarray:
  """Returns a number for each document, equal for equal non-empty texts."""
  if split.text_digests is None:
    return np.arange(len(split))
  digests = split.text_digests
  keys = np.stack([digests, np.arange(len(split)) * (digests == 0)], axis=1)
  return np.unique(keys.astype(np.uint64), axis=0, return_inverse=True)[1]
