"""Assigns the labels whose names occur verbatim in a document.

The method is Exact Match of Chalkidis et al. 2019, Section 4. It needs no
training. Texts and names are split into words (data.text.words, with digits
kept), and are compared word by word. Case and punctuation do not matter. A part
of a word does not match.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import ahocorasick
import numpy as np
from scipy import sparse

from xjax.core.config_part import field
from xjax.core.errors import DataError
from xjax.core.ranking import Lists, Query, lists_of
from xjax.core.types import Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import Corpus, Document, LabelSpace
from xjax.data.text.words import (
  TextFeatures,
  WordPlace,
  WordShares,
  document_words,
  has_letters,
  split_words,
)
from xjax.data.tokens_config import WordsConfig
from xjax.models.contract import Config, Model, Run
from xjax.models.features import FeatureScorer, Featuriser, TextFeaturiser


def check_letters(names: Iterable[Iterable[str]]) -> None:
  """Raises a DataError if no name of a label has a letter."""
  if not any(has_letters(name) for label in names for name in label):
    raise DataError(
      'no label has a name that contains a letter, but this model needs the '
      'names of labels'
    )


def automaton_of(values: Mapping[str, Any]) -> ahocorasick.Automaton:
  """Returns what finds texts in a text, with their values (Aho-Corasick)."""
  automaton = ahocorasick.Automaton()
  for text, value in values.items():
    automaton.add_word(text, value)
  automaton.make_automaton()
  return automaton


class DescriptorMatcher:
  """Finds the names of all labels in one pass over a text (Aho-Corasick).

  Every occurrence counts, also an occurrence inside a longer name. A label's
  score is n + w / (w + 1) if its names occur n times and the longest of these
  names has w words. So labels are ranked by n, and then by w.
  """

  def __init__(self, names: Sequence[Sequence[str]], max_words: int):
    """Builds an automaton. Names without a letter, such as ids, are ignored."""
    self.n_features, self._max_words = len(names), max_words
    # Labels may share a name, so a text has a list of labels.
    labels: dict[str, list[int]] = {}
    for label, label_names in enumerate(names):
      # dict.fromkeys drops names of a label that differ only in case or
      # punctuation, which would count twice.
      for text in dict.fromkeys(map(_spaced_words, label_names)):
        if has_letters(text):
          labels.setdefault(text, []).append(label)
    check_letters(names)
    # A name of n words has n + 1 spaces, because there is also a space before
    # the first word and after the last word.
    self._automaton = automaton_of(
      {text: (ids, text.count(' ') - 1) for text, ids in labels.items()}
    )

  def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the scores, float32 [N, L]; only matched labels have entries."""
    rows = [self._match(text) for text in texts]
    # Columns ascend, as callers of sparse rows expect.
    ids = Ragged.of([sorted(row) for row in rows])
    scores = (row[label] for row in rows for label in sorted(row))
    scores = np.fromiter(scores, np.float32, len(ids.values))
    shape = (len(texts), self.n_features)
    return sparse.csr_array((scores, ids.values, ids.indptr), shape)

  def words(self, document: Document) -> list[WordPlace]:
    return document_words(document)[: self._max_words]

  def word_shares(self, document: Document) -> WordShares:
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
    # The shape is given, because no occurrence would make an array of one axis.
    columns = np.array(occurrences, np.int64).reshape(-1, 3).T
    return WordShares.of(spaced.split(), tuple(columns), self([text]).data)

  def _match(self, text: str) -> dict[int, float]:
    counts: dict[int, int] = {}
    longest: dict[int, int] = {}
    spaced = _spaced_words(text, self._max_words)
    for _, (labels, length) in self._automaton.iter(spaced):
      for label in labels:
        counts[label] = counts.get(label, 0) + 1
        longest[label] = max(longest.get(label, 0), length)
    return {x: n + longest[x] / (longest[x] + 1) for x, n in counts.items()}


class LabelScoreScorer(FeatureScorer):
  """Ranks the labels to which a featuriser gives scores; lists no other labels.

  The features of a document are the scores of the labels, all above 0. With
  weights, labels are ranked by log weight + log sigmoid(a score + b).
  """

  score_kind = ScoreKind.MARGIN

  def __init__(self, featuriser: Featuriser, assigned_above: float, block: int):
    super().__init__(featuriser, block)
    self.n_labels, self.assigned_above = featuriser.n_features, assigned_above

  def rank_block(self, documents: Documents, query: Query) -> Lists:
    return lists_of(self.featuriser(documents), query)

  def feature_weights(
    self, features: np.ndarray, labels: np.ndarray
  ) -> np.ndarray:
    """Returns 1 where a feature is the label, else 0, as float64 [D, K]."""
    return (features[:, None] == labels).astype(np.float64)


class NameScorer(LabelScoreScorer):
  """Ranks the trained, held-out and new labels whose names are in a text."""

  fixed_labels = ''

  def __init__(
    self,
    space: LabelSpace,
    config: Config,  # its model has the field `alt`
    search: Callable[[Sequence[Sequence[str]]], TextFeatures],  # of names
    assigned_above: float = 0.0,
  ):
    names = names_of(space, config.model.alt)
    featuriser = TextFeaturiser(config.data, search(names))
    super().__init__(featuriser, assigned_above, config.eval.batch_size)
    self._config, self._search = config, search

  def with_labels(self, space: LabelSpace) -> 'NameScorer':
    return NameScorer(space, self._config, self._search, self.assigned_above)


def names_of(space: LabelSpace, alt: bool) -> list[tuple[str, ...]]:
  """Returns the names to search for, for each label inside a label space."""
  labels = space.labels[: space.n_inside]
  return [(label.name, *(label.alt if alt else ())) for label in labels]


@dataclasses.dataclass
class NamedModel(Model, abstract=True):
  """Scores the labels whose names are in a text; its kinds have `alt`."""

  reads = (WordsConfig,)

  def check(self, corpus: Corpus, run: Run) -> None:
    super().check(corpus, run)
    check_letters(names_of(corpus.label_space, self.alt))

  def reads_names(self, config: Config) -> bool:
    return True

  def size(self, run: Run) -> int:
    return run.folder.labels.stat().st_size


@dataclasses.dataclass
class ExactMatchModel(NamedModel):
  """Assigns the labels whose names are in the document, without training.

  The model reads the first data.tokens.max_tokens words of a document.
  """

  alt: bool = field(
    False, 'Whether to search for the alternative names of labels as well.'
  )

  def fit(self, corpus: Corpus, run: Run) -> None:
    """Does nothing: labels.jsonl has the names of the labels."""

  def open(self, run: Run) -> NameScorer:
    max_words = run.config.data.tokens.max_tokens
    search = functools.partial(DescriptorMatcher, max_words=max_words)
    return NameScorer(run.label_space(), run.config, search)


def _spaced_words(text: str, max_words: int | None = None) -> str:
  """Returns the first words of a text, with spaces around each word."""
  # The spaces ensure that no word matches a part of another word.
  return f' {" ".join(split_words(text, keep_digits=True)[:max_words])} '
