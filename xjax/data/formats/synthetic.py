"""Generates the language, labels and documents of a synthetic corpus.

Each label belongs to a topic, and most labels of a document are from one topic.
Label frequencies fall with a power of the rank (Zipf-Mandelbrot), and some
labels are in no training document. Labels share nouns, so the nouns of an
unseen label can be learned from other labels. A text mentions its labels by
name, with words dropped or added, among stop words and noise words.
"""

from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np

from xjax.core.config_part import (
  AT_LEAST_0,
  AT_LEAST_1,
  AT_LEAST_2,
  SHARE,
  field,
)
from xjax.core.rng import host_generator
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.schema import Document, Label


@dataclasses.dataclass
class SyntheticData(DataConfig):
  """Configures the synthetic corpus, which is generated from a seed."""

  generated = True

  n_train: int = field(2000, 'Number of training documents.', AT_LEAST_1)
  n_dev: int = field(400, 'Number of dev documents.', AT_LEAST_0)
  n_test: int = field(400, 'Number of test documents.', AT_LEAST_0)
  n_labels: int = field(
    200, 'Number of labels; some are in no training document.', AT_LEAST_2
  )
  corpus_seed: int = field(
    0, 'The seed for words, labels and documents.', AT_LEAST_0
  )
  verbatim: float = field(
    0.8,
    'A document mentions a label by words of its name. Each word is kept with '
    'this probability, and dropped otherwise. With a smaller probability, '
    'labels are harder to find by their names.',
    SHARE,
  )

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return SourceCorpus.of('the synthetic corpus', *make_synthetic(self))


LABELS_PER_TOPIC = 16
NOUNS = 12  # nouns of a topic; they form 66 pairs, which are names of labels
TOPICAL = 8  # noise words of a topic
GENERAL = 150  # noise words that all topics share
STOPS = 40  # stop words
ZERO_SHARE = 8  # 1 of 8 labels occurs in no training document
ZERO_EVERY = 4  # 1 of 4 dev and test documents has one of these labels

_SYLLABLES = [c + v for c in 'bdfgklmnprstvz' for v in 'aeiou']


@dataclasses.dataclass(frozen=True, eq=False)
class _CorpusWords:
  stops: list[str]  # stop words, most frequent first
  general: list[str]  # noise words of all topics, most frequent first
  topical: list[list[str]]  # noise words of each topic
  nouns: list[list[str]]  # nouns of each topic, for names of labels
  roots: list[str]  # the name of each topic's root label
  synonyms: dict[str, str]  # noun -> its synonym, for some nouns


def make_synthetic(
  config: SyntheticData,
) -> tuple[tuple[Label, ...], dict[str, Sequence[Document]]]:
  """Generates the descriptors, and the documents of all splits that have any.

  A document has 3 to 6 labels, a title and a body, with 40 to 120 words in all.
  The training split does not depend on the sizes of dev and test.
  """
  sizes = {'train': config.n_train, 'dev': config.n_dev, 'test': config.n_test}
  rng = host_generator(config.corpus_seed, 'synthetic')
  n_topics = max(2, config.n_labels // LABELS_PER_TOPIC)
  starts = np.arange(n_topics + 1) * config.n_labels // n_topics
  language = _make_language(rng, n_topics)
  labels = _make_labels(rng, language, starts)
  rank_L = rng.permutation(config.n_labels)
  author = _DocumentGenerator(language, labels, starts, rank_L, config.verbatim)
  return labels, {
    name: author.documents(config.corpus_seed, name, n)
    for name, n in sizes.items()
    if n
  }


def _make_language(rng: np.random.Generator, n_topics: int) -> _CorpusWords:
  """Draws all words of the corpus; no word is drawn twice."""
  per_topic = 1 + TOPICAL + NOUNS + NOUNS // 2
  count = GENERAL + n_topics * per_topic
  shapes = (itertools.product(_SYLLABLES, repeat=n) for n in (2, 3, 4))
  most = max(len(_SYLLABLES) ** 2, 2 * count)
  candidates = [*itertools.islice(itertools.chain(*shapes), most)]
  order = rng.permutation(len(candidates))[:count]
  words = iter([''.join(candidates[i]) for i in order])

  def take(n: int) -> list[str]:
    return list(itertools.islice(words, n))

  nouns = [take(NOUNS) for _ in range(n_topics)]
  return _CorpusWords(
    # One syllable; all other words have more.
    stops=[_SYLLABLES[i] for i in rng.permutation(len(_SYLLABLES))[:STOPS]],
    general=take(GENERAL),
    topical=[take(TOPICAL) for _ in range(n_topics)],
    nouns=nouns,
    roots=take(n_topics),
    synonyms={noun: take(1)[0] for topic in nouns for noun in topic[::2]},
  )


def _make_labels(
  rng: np.random.Generator, language: _CorpusWords, starts: np.ndarray
) -> tuple[Label, ...]:
  """Makes the descriptors; topic i has the labels starts[i]:starts[i + 1]."""
  labels: list[Label] = []
  width = len(str(starts[-1] - 1))
  ids = [f'c{i:0{width}d}' for i in range(starts[-1])]
  for topic, (root, end) in enumerate(itertools.pairwise(starts)):
    labels.append(Label(ids[root], language.roots[topic]))
    pairs = list(itertools.combinations(language.nouns[topic], 2))
    for place in rng.permutation(len(pairs))[: end - root - 1]:
      words = pairs[place]
      siblings = [x for x in labels[root + 1 :] if words[0] in x.name.split()]
      parents = [ids[root]]
      if siblings and rng.random() < 0.5:
        parents = [siblings[0].id]
      if rng.random() < 0.1:
        # Also the root of the topic before; -2 is the root of the last topic.
        parents.append(ids[starts[topic - 1 if topic else -2]])
      alt = ' '.join(language.synonyms.get(word, word) for word in words)
      name = ' '.join(words)
      label = Label(
        id=ids[len(labels)],
        name=name,
        alt=(alt,) if alt != name else (),
        parents=tuple(parents),
      )
      labels.append(label)
  return tuple(labels)


class _DocumentGenerator:
  """Draws with integer weights: the same documents on all platforms."""

  def __init__(
    self,
    language: _CorpusWords,
    labels: Sequence[Label],
    starts: np.ndarray,
    rank_L: np.ndarray,
    verbatim: float,
  ) -> None:
    self._language = language
    self._verbatim = verbatim
    self._labels = labels
    self._starts = starts
    self._topic_L = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    names = {label.id: label.name.split() for label in labels}
    self._parent_words = [
      [word for parent in label.parents for word in names[parent]]
      for label in labels
    ]
    n_trained = len(labels) - len(labels) // ZERO_SHARE
    shift = max(4, len(labels) // 8)
    weights_L = np.maximum(1, 10**18 // (rank_L + shift) ** 3)
    weights_L[rank_L >= n_trained] = 0
    self._zero = np.flatnonzero(rank_L >= n_trained)
    # A random integer in [edges[i], edges[i + 1]) selects label i. The labels
    # of a topic have consecutive indices, so a topic has one interval.
    self._edges = np.concatenate([[0], np.cumsum(weights_L)])

  def documents(self, seed: int, split: str, n: int) -> tuple[Document, ...]:
    rng = host_generator(seed, 'synthetic', split)
    rows = []
    for i in range(n):
      zero = None
      if split != 'train' and i % ZERO_EVERY == 0 and len(self._zero):
        zero = int(self._zero[i // ZERO_EVERY % len(self._zero)])
      gold = self._gold(rng, zero)
      zones = self._zones(rng, gold)
      ids = tuple(sorted(self._labels[label].id for label in gold))
      rows.append(Document(f'{split}-{i:05d}', zones, ids))
    return tuple(rows)

  def _gold(self, rng: np.random.Generator, zero: int | None) -> list[int]:
    """Draws 3 to 6 labels for a document, or fewer if there are few labels.

    The topic of the first label, which is `zero` if given, is the document's.
    """
    total = self._edges[-1]
    first = zero
    if first is None:
      first = self._label_at(rng.integers(total))
    topic = self._topic_L[first]
    low, high = self._edges[self._starts[topic : topic + 2]]
    if low == high:  # all labels of the topic are zero-shot
      low, high = 0, total
    count = rng.integers(3, 7)
    # More than count, because a label may be drawn several times.
    near = rng.integers(low, high, 8 * count)
    far = rng.integers(total, size=8 * count)
    drawn = np.where(rng.random(8 * count) < 0.8, near, far)
    labels = dict.fromkeys([first, *map(self._label_at, drawn)])
    return list(labels)[:count]

  def _label_at(self, place: int) -> int:
    return int(np.searchsorted(self._edges, place, side='right')) - 1

  def _zones(self, rng: np.random.Generator, gold: list[int]) -> dict[str, str]:
    title = [self._mention(rng, x) for x in gold if rng.random() < 0.5]
    body = [
      self._mention(rng, x) for x in gold for _ in range(rng.integers(1, 3))
    ]
    title += [[word] for word in self._filler(rng, gold[0], 3)]
    mentioned = sum(map(len, title + body))
    n = max(0, int(rng.integers(40, 121)) - mentioned - 1)
    body += [[word] for word in self._filler(rng, gold[0], n)]
    year = str(rng.integers(1950, 2030))
    return {
      'title': _sentence([*_shuffle(rng, title), year]),
      'body': _sentences(_shuffle(rng, body)),
    }

  def _mention(self, rng: np.random.Generator, label: int) -> list[str]:
    """Draws the words with which a document mentions a label, in order."""
    descriptor, parents = self._labels[label], self._parent_words[label]
    name = descriptor.name
    if descriptor.alt and rng.random() < 0.3:
      name = descriptor.alt[0]
    words = [word for word in name.split() if rng.random() < self._verbatim]
    if parents and rng.random() < 0.25:
      words.insert(0, parents[rng.integers(len(parents))])
    return words

  def _filler(self, rng: np.random.Generator, label: int, n: int) -> list[str]:
    """Draws n stop words and noise words; some noise words are nouns."""
    language, topic = self._language, self._topic_L[label]
    other = rng.integers(len(language.nouns))
    choices = (
      (0.55, language.stops, _zipf(rng, STOPS, n)),
      (0.75, language.general, _zipf(rng, GENERAL, n)),
      (0.90, language.topical[topic], rng.integers(TOPICAL, size=n)),
      (0.96, language.nouns[topic], rng.integers(NOUNS, size=n)),
      (1.00, language.nouns[other], rng.integers(NOUNS, size=n)),
    )
    words = []
    for i, kind in enumerate(rng.random(n)):
      _, source, places = next(c for c in choices if kind < c[0])
      words.append(source[places[i]])
    return words


def _zipf(rng: np.random.Generator, ranks: int, n: int) -> np.ndarray:
  """Draws n ranks from 0; the weight of rank i is 1 / (i + 1)."""
  ends = np.cumsum(10**9 // np.arange(1, ranks + 1))
  return np.searchsorted(ends, rng.integers(ends[-1], size=n), side='right')


def _shuffle(rng: np.random.Generator, parts: list[list[str]]) -> list[str]:
  """Joins the parts in random order; the words of a part stay together."""
  return [word for i in rng.permutation(len(parts)) for word in parts[i]]


def _sentence(words: Sequence[str]) -> str:
  return ' '.join(words).capitalize()


def _sentences(words: Sequence[str]) -> str:
  return ' '.join(
    _sentence(words[i : i + 12]) + '.' for i in range(0, len(words), 12)
  )
