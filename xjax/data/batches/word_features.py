"""Vectors made of words: the embedded corpus' stand-in for an encoder."""

from collections.abc import Iterable, Sequence
import functools

import numpy as np

from xjax.core.rng import host_generator
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.text.words import split_words


def word_features(
  ids: Sequence[str], texts: Iterable[str], dim: int, max_tokens: int
) -> FeatureRows:
  """Random vectors of words, the same wherever a word stands.

  Args:
    ids: N document ids.
    texts: of the documents.
    dim: size D of a vector; its entries are of about unit size.
    max_tokens: if 1, a document is one vector, the sum over its words divided
      by the root of their number, so that its entries are of unit size as
      well; else, it is those of its first words.

  Returns:
    N rows; a document without words has none.
  """
  vector = functools.cache(
    lambda word: host_generator(0, 'word_features', word).standard_normal(
      dim, np.float32
    )
  )
  found = []
  for text in texts:
    words = split_words(text)
    if max_tokens > 1:
      words = words[:max_tokens]
    states = np.array([vector(word) for word in words]).reshape(-1, dim)
    if max_tokens == 1 and len(words):
      states = states.sum(axis=0, keepdims=True) / len(words) ** 0.5
    found.append(states)
  return FeatureRows.joined('features made of words', ids, found, dim)
