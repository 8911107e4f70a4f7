"""Divides training documents into folds, and makes the corpus of each fold.

Models that are trained on the corpus of a fold have not seen the documents of
the fold. They do not know some labels either, which stand for the labels that
no training document has.
"""

import dataclasses
import hashlib
import json

import numpy as np

from xjax.core.rng import host_generator
from xjax.core.types import Ragged
from xjax.data.batches.shared import SharedDocuments
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.formats.draft import TRAIN
from xjax.data.labels import HOLD_OUT_RANGE, draw_labels
from xjax.data.schema import Corpus, LabelSpace, Split

_LEAST_HIDDEN = 0.02  # share of the labels that are hidden in any corpus


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
  """Holds a fold of the training documents, and the labels hidden from it.

  Attributes:
    number: int, from 0.
    rows: int64, rows of the split train that are in the fold.
    hidden: int64, labels that models of this fold do not learn, ascending.
    order: int64 [L], the labels of the corpus in the order of the fold's label
      space: trained, hidden, and the other labels.
  """

  number: int
  rows: np.ndarray
  hidden: np.ndarray
  order: np.ndarray

  def corpus(self, corpus: Corpus) -> Corpus:
    """Returns the corpus that models of this fold are trained on.

    It has only a split train, with the documents outside the fold. The hidden
    labels are held out: they follow the trained labels, and no document has
    them.

    Args:
      corpus: the corpus of the run.
    """
    split, space = corpus.splits[TRAIN], corpus.label_space
    outside = np.ones(len(split), bool)
    outside[self.rows] = False
    kept = np.flatnonzero(outside)
    gold = self._gold(corpus, kept)
    counts = np.bincount(gold.values, minlength=len(space)).astype(np.int32)
    digest = _digest(split.digest, kept.tolist(), self.hidden.tolist())
    part = Split(
      name=TRAIN,
      ids=[split.ids[row] for row in kept.tolist()],
      gold=gold,
      documents=part_of(split, kept),
      digest=digest,
      features=split.features
      and split.features.select(kept, [split.ids[row] for row in kept]),
    )
    fold_space = LabelSpace(
      labels=space.labels[self.order],
      train_counts=counts,
      n_train=len(kept),
      n_trained=space.n_trained - len(self.hidden),
      n_held_out=space.n_held_out + len(self.hidden),
      n_new=space.n_new,
    )
    fingerprint = _digest(corpus.fingerprint, digest)
    return Corpus(fold_space, {TRAIN: part}, fingerprint)

  def _gold(self, corpus: Corpus, rows: np.ndarray) -> Ragged:
    """Returns trained gold labels of some documents, in the fold's numbers."""
    new = np.empty(len(self.order), np.int32)
    new[self.order] = np.arange(len(self.order))
    gold = corpus.trained_gold
    rows_of = [new[gold[row]] for row in rows.tolist()]
    n_trained = corpus.label_space.n_trained - len(self.hidden)
    return Ragged.of([np.sort(x[x < n_trained]) for x in rows_of])


def part_of(
  split: Split, rows: np.ndarray
) -> SharedDocuments | SparseDocuments:
  """Returns some documents of a split, in the order of `rows`."""
  documents = split.documents
  if isinstance(documents, SparseDocuments):
    return documents.part(rows)
  if not isinstance(documents, SharedDocuments):
    documents = SharedDocuments(documents)
  return documents.part(rows)


def make_folds(
  corpus: Corpus, n: int, share: float, seed: int, field: str
) -> list[Fold]:
  """Divides the split train into n folds of nearly equal size, at random.

  Labels are hidden from each fold at random, as held-out labels are drawn
  (labels.draw_labels): rare and frequent labels with at most 200 training
  documents are drawn evenly.

  Args:
    corpus: the corpus.
    n: number of folds.
    share: share of the trained labels to hide. With 0, this is the share of
      the labels that have no training document, but at least 2 %.
    seed: decides all random choices.
    field: path of the config's field with `share`, for messages.

  Raises:
    ConfigError: there are not enough labels to hide.
  """
  space = corpus.label_space
  counts = space.train_counts[: space.n_trained]
  size = len(corpus.splits[TRAIN])
  fold_N = host_generator(seed, 'folds').permutation(size) % n
  share = share or max(_LEAST_HIDDEN, float((counts == 0).mean()))
  low, high = HOLD_OUT_RANGE
  candidates = int(((counts >= low) & (counts <= high)).sum())
  n_hidden = min(round(share * space.n_trained), candidates // 2)
  folds = []
  for number in range(n):
    rng = host_generator(seed, 'hidden', number)
    hidden = np.zeros(0, np.int64)
    if n_hidden:
      hidden = np.sort(draw_labels(counts, n_hidden, (low, high), rng, field))
    is_hidden = np.zeros(len(space), bool)
    is_hidden[hidden] = True
    at = np.arange(len(space))
    order = np.lexsort((at, is_hidden, at >= space.n_trained))
    folds.append(Fold(number, np.flatnonzero(fold_N == number), hidden, order))
  return folds


def _digest(*parts: object) -> str:
  """Returns the hex digest of JSON values."""
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
