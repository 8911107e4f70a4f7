"""Trains word vectors with gensim's word2vec."""

from collections.abc import Iterator
import dataclasses
import os
import pathlib

from xjax.core.errors import ConfigError, DataError, optional
from xjax.core.progress import progress
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import load_corpus
from xjax.data.schema import Split
from xjax.data.text.word_vectors import write_word_vectors
from xjax.data.text.words import split_words

_PIECE = 10_000  # gensim reads at most this many words of a text


@dataclasses.dataclass(frozen=True)
class WordTraining:
  dim: int = 200  # size of a vector
  window: int = 5  # largest number of neighbours of a word on each side
  epochs: int = 5
  min_count: int = 2  # words that are rarer get no vector
  # A word predicts each of its neighbours, which is better for rare words. If
  # False, the mean of the neighbours predicts the word (CBOW), which is a few
  # times faster.
  skipgram: bool = True
  seed: int = 0


def train_word_vectors(
  data: DataConfig,
  training: WordTraining,
  output: str | os.PathLike,
  workers: int,
) -> int:
  """Trains word vectors on the train split; returns the number of words.

  The method is word2vec (Mikolov et al. 2013) with negative sampling. Training
  reads the same zones and words as models do. Documents are not cut.

  The output, a new file in word2vec's binary format, is written at the end.
  With one worker, repeated calls give the same result, bit for bit.

  Raises:
    UserError: gensim is not installed.
    ConfigError: the output exists.
    DataError: the corpus has a fault, or no word is frequent enough.
  """
  optional('gensim', 'training word vectors', 'vectors')
  from gensim.models import Word2Vec

  path = pathlib.Path(os.path.expanduser(output))
  if path.exists():
    raise ConfigError(f'{path}: exists; choose another output, or remove it')
  split = load_corpus(data, training.seed, splits=('train',)).split('train')
  model = Word2Vec(
    vector_size=training.dim,
    window=training.window,
    min_count=training.min_count,
    sg=int(training.skipgram),
    negative=5,
    sample=1e-3,
    workers=workers,
    seed=training.seed,
  )
  texts = _WordLists(split)
  model.build_vocab(texts)
  if not model.wv:
    raise DataError(
      'no word is frequent enough in the documents of train '
      f'(--min_count={training.min_count}); set a smaller --min_count, or use '
      'documents with more words'
    )
  examples = model.corpus_count
  model.train(texts, total_examples=examples, epochs=training.epochs)
  write_word_vectors(path, tuple(model.wv.index_to_key), model.wv.vectors)
  return len(model.wv)


@dataclasses.dataclass
class _WordLists:
  """Yields the words of documents, in pieces that gensim does not cut."""

  split: Split

  def __iter__(self) -> Iterator[list[str]]:
    with progress(range(len(self.split)), 'words of train') as rows:
      for row in rows:
        words = split_words(self.split.documents[row].text())
        for start in range(0, len(words), _PIECE):
          yield words[start : start + _PIECE]
