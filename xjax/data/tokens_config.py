"""Defines the configs of model inputs: tokens, sparse features or vectors."""

from collections.abc import Iterator
import dataclasses
import enum
import re
from typing import Any, ClassVar

from xjax.core.config_part import (
  AT_LEAST_0,
  AT_LEAST_1,
  SHARE,
  Bound,
  ConfigPart,
  field,
)


class OnError(enum.Enum):
  """Says whether a fault in a user's file raises an error or is skipped."""

  RAISE = 'raise'
  SKIP = 'skip'


@dataclasses.dataclass
class TokensConfig(ConfigPart, abstract=True):
  """Defines the form in which a model reads documents."""

  # Subclasses that can keep zones apart, or pack several documents into a row,
  # declare the config fields `by_zone` or `packed`.

  by_zone = False
  packed = False
  dense: ClassVar[bool] = False  # a document is vectors of an outside encoder
  sparse: ClassVar[bool] = False  # a document is a row of sparse features
  pretrained: ClassVar[bool] = False  # an encoder's tokenizer splits documents


@dataclasses.dataclass
class PaddedConfig(TokensConfig, abstract=True):
  """Gives a model a document's tokens in order, padded to a few lengths."""

  max_tokens: int = field(
    512,
    'The largest number of tokens that are read from the start of a document. '
    'The limit is for all zones together.',
    AT_LEAST_1,
  )
  buckets: tuple[int, ...] = field(
    (64, 128, 256, 512),
    'The lengths to which rows are padded, ascending. The last length is '
    'max_tokens.',
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    buckets, where = self.buckets, f'{path}.buckets={self.buckets}'
    if not buckets or min(buckets) < 1 or list(buckets) != sorted(set(buckets)):
      yield f'{where}: must be one or more ascending lengths, each at least 1'
    elif buckets[-1] != self.max_tokens:
      yield f'{where}: the last must be {path}.max_tokens={self.max_tokens}'
    elif self.packed and len(buckets) > 1:
      yield (
        f'{where}: must be {buckets[-1:]}, since with {path}.packed=True '
        'all rows have max_tokens tokens'
      )


@dataclasses.dataclass
class WordsConfig(PaddedConfig):
  """Gives a model words in lower case, with `D` in place of each digit."""

  min_count: int = field(
    2, 'Words that are rarer in training become the unknown word.', AT_LEAST_1
  )
  max_words: int = field(
    150_000,
    'The largest size of the vocabulary; the most frequent words are kept.',
    AT_LEAST_1,
  )
  by_zone: bool = field(
    False,
    'Whether zones are kept apart, for models that read zones one by one. If '
    'zones are kept apart, max_tokens and buckets apply to each zone.',
  )


@dataclasses.dataclass
class SubwordsConfig(PaddedConfig):
  """Gives a model the word pieces of a pretrained encoder's tokenizer.

  max_tokens includes the special tokens at the beginning and end of a text.
  """

  pretrained = True

  max_tokens: int = field(
    512,
    'The largest number of pieces that are read from the start of a document. '
    'The limit is for all zones together.',
    Bound(lambda n: n >= 3, 'at least 3, since two tokens are special'),
  )
  packed: bool = field(
    False,
    'Whether the documents of a batch share rows of max_tokens tokens. If so, '
    'buckets must be (max_tokens,). Sharing saves time if many documents are '
    'short and the encoder takes most of the time. It saves no time in '
    'poolings and heads: they process max_tokens positions for every document.',
  )


@dataclasses.dataclass
class FeatureFilesConfig(PaddedConfig):
  """Gives a model vectors that an outside encoder has saved in files.

  Each document has one vector, or one vector per token; a vector counts as a
  token. feature_files.py describes the files.
  """

  dense = True

  max_tokens: int = 1
  buckets: tuple[int, ...] = (1,)
  dir: str = field(
    '',
    'The folder of the vector files. If empty, data.dir is used. The synthetic '
    'corpus needs no folder: its vectors are computed from words.',
    may_change=True,
  )


@dataclasses.dataclass
class TextVectorsConfig(TokensConfig):
  """Gives a model one vector per text, from a pretrained encoder.

  The encoder is not trained. A vector is the mean of the encoder's last states,
  scaled to length 1. The encoder is copied to the workdir.
  """

  folder: str = field(
    '',
    "Folder of the encoder in Hugging Face's layout, with config.json, "
    'model.safetensors and the tokenizer; or the name of a model in the local '
    'Hugging Face cache. A run reads the folder only at its start. `xjax '
    'export` makes such a folder from a trained model. An empty value works '
    'only with SyntheticData; the encoder is then small and has fresh weights.',
    may_change=True,
  )
  max_tokens: int = field(
    128,
    'The largest number of pieces that are read from the start of a text, '
    'including special tokens.',
    Bound(lambda n: n >= 3, 'at least 3, since two tokens are special'),
  )


class Analyzer(enum.Enum):
  """Says of what n-grams consist."""

  AUTO = 'auto'  # WORDS, or CHARACTERS if most words lack spaces between them
  WORDS = 'words'
  CHARACTERS_IN_WORDS = 'characters_in_words'
  CHARACTERS = 'characters'  # across words


@dataclasses.dataclass
class NgramsConfig(TokensConfig, abstract=True):
  """Gives a model n-grams of lower-case words, or of characters."""

  min_ngram: int = field(
    1, 'The smallest number of words or characters in an n-gram.', AT_LEAST_1
  )
  max_ngram: int = field(
    0,
    'The largest number of words or characters in an n-gram. With 0, the '
    'training documents decide.',
    AT_LEAST_0,
  )
  max_features: int = field(
    200_000,
    'The largest number of n-grams. If there are more n-grams, the most '
    'frequent n-grams of the training split are kept.',
    AT_LEAST_1,
  )
  min_count: int = field(
    2, 'N-grams in fewer training documents than this are left out.', AT_LEAST_1
  )
  max_share: float = field(
    1.0,
    'N-grams in a larger share of training documents than this are left out.',
    SHARE,
  )
  sublinear: bool = field(
    True, 'Whether n occurrences of an n-gram count as 1 + log n, not as n.'
  )
  first_words: int = field(
    0,
    'The number of words that are read from the start of a document (of '
    'letters, with analyzer=CHARACTERS). With 0, all words are read.',
    AT_LEAST_0,
  )
  analyzer: Analyzer = field(
    Analyzer.AUTO,
    'The parts of n-grams: words, characters (letters with their marks), or '
    'characters within words. With AUTO, which only AutoTfidfConfig may have, '
    'they are words, or characters if most words of the training documents are '
    'in scripts without spaces, such as those of Chinese, Japanese and Thai.',
  )
  pattern: str = field(
    '',
    'A regular expression. Its matches, in the text in lower case, take the '
    'place of words, such as numbers of acts with `[0-9]+/[0-9]+`.',
  )

  @property
  def units(self) -> str:
    """Returns words for the n-grams, such as `1 to 2 words`."""
    parts = 'matches' if self.pattern else self.analyzer.value.replace('_', ' ')
    if self.max_ngram == 1:
      return f'single {parts}'
    return f'{self.min_ngram} to {self.max_ngram} {parts}'

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.min_ngram > self.max_ngram:
      yield (
        f'{path}.min_ngram={self.min_ngram}: must be at most '
        f'{path}.max_ngram={self.max_ngram}'
      )
    where = f'{path}.pattern={self.pattern!r}'
    if self.pattern and self.analyzer is not Analyzer.WORDS:
      yield f'{where}: needs {path}.analyzer=words'
    try:
      pattern = re.compile(self.pattern, re.ASCII)
    except (re.error, ValueError) as error:
      yield f'{where}: is no regular expression: {error}'
      return
    if pattern.groups:
      yield f'{where}: may have no groups; write (?:...) in place of (...)'
    elif self.pattern and pattern.match(''):
      yield f'{where}: matches an empty text; a match must have a character'


@dataclasses.dataclass
class TfidfConfig(NgramsConfig):
  """Gives a model the n-grams of a text, weighted by TF-IDF."""

  max_ngram: int = field(
    2,
    'The largest number of words, or of characters (4 is good), in an n-gram.',
    AT_LEAST_1,
  )
  analyzer: Analyzer = field(
    Analyzer.WORDS,
    'The parts of n-grams: words, characters (letters with their marks), or '
    'characters within words.',
    Bound(lambda x: x is not Analyzer.AUTO, 'words or characters'),
  )


_MOST_CHARACTERS = 4  # a word of Chinese has 1 to 4, of Thai some more


@dataclasses.dataclass
class AutoTfidfConfig(NgramsConfig):
  """Stands for the TfidfConfig of the model that is chosen for AutoModel."""

  def faults(self, config: Any, path: str) -> Iterator[str]:
    if self.max_ngram:
      yield from super().faults(config, path)

  def completed(
    self, max_ngram: int, analyzer: Analyzer = Analyzer.WORDS
  ) -> TfidfConfig:
    """Returns the complete config; the arguments replace what it leaves open.

    If it leaves max_ngram open, n-grams of characters have up to 4.
    """
    if self.analyzer is not Analyzer.AUTO:
      analyzer = self.analyzer
    if analyzer is not Analyzer.WORDS:
      max_ngram = _MOST_CHARACTERS
    largest = self.max_ngram or max(self.min_ngram, max_ngram)
    changed = {'max_ngram': largest, 'analyzer': analyzer}
    return TfidfConfig(**vars(self) | changed)


class Norm(enum.Enum):
  """Says whether every row of features is scaled to length 1."""

  NONE = 'none'
  L2 = 'l2'


@dataclasses.dataclass
class GivenFeaturesConfig(TokensConfig):
  """Gives a model the sparse features that XcFeaturesData reads from files."""

  sparse = True

  norm: Norm = field(
    Norm.NONE,
    'With NONE, rows stay as they are. With L2, all rows except rows of zeros '
    'are scaled to length 1. Linear models need rows of length 1.',
  )
