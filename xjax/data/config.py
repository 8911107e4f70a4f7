"""Where a corpus comes from and what models read of it."""

from collections.abc import Iterator
import dataclasses
import enum
from typing import Any, ClassVar, Self

from xjax.core.config_part import (
  AT_LEAST_0,
  AT_LEAST_1,
  SHARE,
  Bound,
  ConfigPart,
  at_most,
  field,
)


class OnError(enum.Enum):
  """What a fault in a user's file does."""

  RAISE = 'raise'
  SKIP = 'skip'


@dataclasses.dataclass
class TokensConfig(ConfigPart, abstract=True):
  """What a model reads of a document.

  Attributes:
    by_zone: whether zones are kept apart; a field where they can be.
    packed: whether documents share rows; a field where they can.
    dense: whether documents come as vectors of an outside encoder.
    sparse: whether documents come as rows of sparse features.
    pretrained: whether a pretrained encoder's tokenizer cuts documents.
  """

  by_zone = False
  packed = False
  dense: ClassVar[bool] = False
  sparse: ClassVar[bool] = False
  pretrained: ClassVar[bool] = False


@dataclasses.dataclass
class PaddedConfig(TokensConfig, abstract=True):
  """Tokens in their order, in rows that are padded to a few lengths."""

  max_tokens: int = field(
    512,
    "A document's first tokens, over its zones in order.",
    AT_LEAST_1,
    tiny=16,
  )
  buckets: tuple[int, ...] = field(
    (64, 128, 256, 512),
    'Static lengths, ascending, the last one max_tokens.',
    tiny=(8, 16),
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    buckets, where = self.buckets, f'{path}.buckets={self.buckets}'
    if not buckets or min(buckets) < 1 or list(buckets) != sorted(set(buckets)):
      yield f'{where}: must be ascending lengths'
    elif buckets[-1] != self.max_tokens:
      yield (
        f'{where}: the last one must be {path}.max_tokens={self.max_tokens}'
      )
    elif self.packed and len(buckets) > 1:
      yield (
        f'{where}: with {path}.packed=True all rows are of max_tokens: '
        f'{buckets[-1:]}'
      )


@dataclasses.dataclass
class WordsConfig(PaddedConfig):
  """Word tokens: lower case, digits -> D, vocabulary from train."""

  min_count: int = field(
    2,
    'Rarer words (in training tokens) become the unknown word.',
    AT_LEAST_1,
    tiny=1,
  )
  max_words: int = field(
    150_000,
    'Size limit of the vocabulary, most frequent first.',
    AT_LEAST_1,
    tiny=64,
  )
  by_zone: bool = field(
    False,
    'Whether zones are kept apart, for models that read them one by one; '
    'max_tokens and buckets are then those of a zone.',
  )


@dataclasses.dataclass
class SubwordsConfig(PaddedConfig):
  """Pieces of words, numbered by the tokenizer of a pretrained encoder.

  max_tokens counts the special tokens at a text's beginning and end as well.
  """

  pretrained = True

  max_tokens: int = field(
    512,
    "A document's first pieces, over its zones in order.",
    Bound(lambda n: n >= 3, 'at least 3: two are special tokens'),
    tiny=16,
  )
  packed: bool = field(
    False,
    'Whether the documents of a batch share rows of max_tokens, so that short '
    'ones cost the encoder what they have; buckets is (max_tokens,) then. '
    'Poolings and heads see max_tokens of every document, however short: it '
    'pays where the encoder is most of the work.',
  )

  def tiny(self) -> Self:
    small = super().tiny()
    return dataclasses.replace(small, buckets=(16,)) if self.packed else small


@dataclasses.dataclass
class FeatureFilesConfig(PaddedConfig):
  """Vectors that an outside encoder made, one per document or per token.

  Per split {split}.npy and {split}.ids.txt, of token states {split}.lengths.npy
  as well (feature_files.py). A document with one vector has one token.
  """

  dense = True

  max_tokens: int = 1
  buckets: tuple[int, ...] = (1,)
  dir: str = field(
    '',
    'Their folder; empty: data.dir. Those of the embedded corpus are made of '
    'its words, unless a folder is named.',
    may_change=True,
    tiny='',
  )

  def tiny(self) -> Self:
    sizes = (
      {'max_tokens': 16, 'buckets': (8, 16)} if self.max_tokens > 1 else {}
    )
    # In no file: the embedded corpus makes vectors of its words.
    return dataclasses.replace(self, dir='', **sizes)


@dataclasses.dataclass
class TfidfConfig(TokensConfig):
  """Sparse features of a text: its n-grams of words, weighted by TF-IDF.

  Words are in lower case, of two letters or digits at least.
  """

  min_ngram: int = field(
    1, 'The least and the most words of an n-gram.', AT_LEAST_1, tiny=at_most(3)
  )
  max_ngram: int = field(
    2, 'The least and the most words of an n-gram.', AT_LEAST_1, tiny=at_most(3)
  )
  max_features: int = field(
    200_000,
    'The n-grams that are most frequent in train, so many at most.',
    AT_LEAST_1,
    tiny=64,
  )
  min_count: int = field(
    2, 'N-grams in fewer documents of train are left out.', AT_LEAST_1, tiny=1
  )
  max_share: float = field(
    1.0,
    'Those in a larger share of them are left out as well; 1: none.',
    SHARE,
    tiny=1.0,
  )
  sublinear: bool = field(
    True, 'Whether an n-gram that is there n times counts 1 + log n.'
  )
  first_words: int = field(
    0,
    'Of a document, all that is read; 0: every word.',
    AT_LEAST_0,
    tiny=at_most(16),
  )

  def check(self, config: Any, path: str) -> Iterator[str]:
    if self.min_ngram > self.max_ngram:
      yield (
        f'{path}.min_ngram={self.min_ngram}: must be at most '
        f'{path}.max_ngram={self.max_ngram}'
      )


class Norm(enum.Enum):
  """How long a document's row of features is made."""

  NONE = 'none'
  L2 = 'l2'


@dataclasses.dataclass
class GivenFeaturesConfig(TokensConfig):
  """Sparse features as the files of XcFeaturesData have them."""

  sparse = True

  norm: Norm = field(
    Norm.NONE,
    'NONE: rows as they are; L2: of length 1, which linear models need, '
    'except rows of zeros.',
  )

  def tiny(self) -> TfidfConfig:
    # The embedded corpus is text.
    return TfidfConfig().tiny()
