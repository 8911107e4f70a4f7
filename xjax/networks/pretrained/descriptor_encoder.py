"""Computes embeddings of label descriptors from word vectors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import math

import numpy as np

from xjax.data.schema import Label
from xjax.data.text.word_vectors import WordVectors
from xjax.data.text.words import (
  FIRST_WORD_ID,
  Vocabulary,
  has_letters,
  split_words,
)
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights


def label_names(label: Label, alt: bool) -> list[str]:
  """Returns the name of a label, with `alt` all its names.

  Names without a letter, such as numbers, are left out.
  """
  names = (label.name, *label.alt) if alt else (label.name,)
  return list(filter(has_letters, names))


def descriptor_words(label: Label, config: DescriptorConfig) -> tuple[str, ...]:
  """Returns the words of a label's descriptor."""
  return tuple(
    word
    for name in label_names(label, config.alt)
    for word in split_words(name)[: config.max_words]
  )


def all_words(labels: Iterable[Label]) -> Iterator[str]:
  """Yields the words of all names of all labels, in the order of the labels."""
  for label in labels:
    for name in label_names(label, alt=True):
      yield from split_words(name)


@dataclasses.dataclass(frozen=True, eq=False)
class DescriptorEncoder:
  """Embeds a label as the weighted mean of its descriptor's word vectors.

  Word frequencies are counted over the labels of the run. A label that is added
  later therefore does not change the embeddings of other labels.
  """

  config: DescriptorConfig
  vocab: Vocabulary
  words: WordVectors
  label_counts: Counter  # word -> number of the run's labels with this word
  n_labels: int

  @classmethod
  def of(
    cls,
    labels: Sequence[Label],
    config: DescriptorConfig,
    vocab: Vocabulary,
    words: WordVectors,
  ) -> 'DescriptorEncoder':
    counts = Counter(
      word
      for label in labels
      for word in dict.fromkeys(descriptor_words(label, config))
    )
    return cls(config, vocab, words, counts, len(labels))

  def encode(self, labels: Sequence[Label]) -> np.ndarray:
    """Returns the embeddings of labels, float32 [labels, E].

    The embedding of a label is 0 if no word of its descriptor has a vector.
    """
    rows = [self._embedding(label) for label in labels]
    return np.asarray(rows, np.float32).reshape(len(labels), self.words.dim)

  def _embedding(self, label: Label) -> np.ndarray:
    words = [
      (self.vocab.index[word], self._weight(word))
      for word in descriptor_words(label, self.config)
      if self.vocab.index.get(word, -1) >= FIRST_WORD_ID
      and self.words.has_vector[self.vocab.index[word]]
    ]
    total = sum(weight for _, weight in words)
    if not total:
      return np.zeros(self.words.dim, np.float32)
    ids, weights = zip(*words)
    return np.asarray(weights) @ self.words.vectors[list(ids)] / total

  def _weight(self, word: str) -> float:
    match self.config.weights:
      case DescriptorWeights.UNIFORM:
        return 1.0
      case DescriptorWeights.IDF:
        count = self.label_counts[word]
        return math.log((self.n_labels + 1) / (count + 1)) + 1
