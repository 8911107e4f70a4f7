"""Where a corpus comes from and what models read of it."""

import dataclasses
import enum

# Marks a field that a resumed run may change; the change is printed.
MAY_CHANGE = {'may_change': True}


class OnError(enum.Enum):
  """What a fault in a user's file does."""

  RAISE = 'raise'
  SKIP = 'skip'


@dataclasses.dataclass
class TokensConfig:
  """What a model reads of a document."""


@dataclasses.dataclass
class PaddedConfig(TokensConfig):
  """Tokens in their order, in rows that are padded to a few lengths.

  Attributes:
    max_tokens: a document's first tokens, over its zones in order.
    buckets: static lengths, ascending, the last one max_tokens.
    by_zone: whether zones are kept apart; a field where they can be.
  """

  by_zone = False

  max_tokens: int = 512
  buckets: tuple[int, ...] = (64, 128, 256, 512)


@dataclasses.dataclass
class WordsConfig(PaddedConfig):
  """Word tokens: lower case, digits -> D, vocabulary from train.

  Attributes:
    min_count: rarer words (in training tokens) become the unknown word.
    max_words: size limit of the vocabulary, most frequent first.
    by_zone: whether zones are kept apart, for models that read them one by one;
      max_tokens and buckets are then those of a zone.
  """

  min_count: int = 2
  max_words: int = 150_000
  by_zone: bool = False


@dataclasses.dataclass
class SubwordsConfig(PaddedConfig):
  """Pieces of words, numbered by the tokenizer of a pretrained encoder.

  max_tokens counts the special tokens at a text's beginning and end as well.

  Attributes:
    packed: whether the documents of a batch share rows of max_tokens, so that
      short ones cost the encoder what they have; buckets is (max_tokens,) then.
      Poolings and heads see max_tokens of every document, however short: it
      pays where the encoder is most of the work.
  """

  packed: bool = False


@dataclasses.dataclass
class FeatureFilesConfig(PaddedConfig):
  """Vectors that an outside encoder made, one per document or per token.

  Per split {split}.npy and {split}.ids.txt, of token states {split}.lengths.npy
  as well (feature_files.py). A document with one vector has one token.

  Attributes:
    dir: their folder; empty: data.dir. Those of the embedded corpus are made of
      its words, unless a folder is named.
  """

  max_tokens: int = 1
  buckets: tuple[int, ...] = (1,)
  dir: str = dataclasses.field(default='', metadata=MAY_CHANGE)


@dataclasses.dataclass
class TfidfConfig(TokensConfig):
  """Sparse features of a text: its n-grams of words, weighted by TF-IDF.

  Words are in lower case, of two letters or digits at least.

  Attributes:
    min_ngram, max_ngram: the least and the most words of an n-gram.
    max_features: the n-grams that are most frequent in train, so many at most.
    min_count: n-grams in fewer documents of train are left out.
    max_share: those in a larger share of them are left out as well; 1: none.
    sublinear: whether an n-gram that is there n times counts 1 + log n.
    first_words: of a document, all that is read; 0: every word.
  """

  min_ngram: int = 1
  max_ngram: int = 2
  max_features: int = 200_000
  min_count: int = 2
  max_share: float = 1.0
  sublinear: bool = True
  first_words: int = 0


class Norm(enum.Enum):
  """How long a document's row of features is made."""

  NONE = 'none'
  L2 = 'l2'


@dataclasses.dataclass
class GivenFeaturesConfig(TokensConfig):
  """Sparse features as the files of XcFeaturesData have them.

  Attributes:
    norm: NONE: rows as they are; L2: of length 1, which linear models need,
      except rows of zeros.
  """

  norm: Norm = Norm.NONE


@dataclasses.dataclass
class DataConfig:
  """What all corpora share.

  Attributes:
    dir: the folder (or archive) of the user's files.
    cache_dir: where prepared data goes; empty: $XJAX_CACHE_DIR, else
      ~/.cache/xjax.
    zones: names of the zones to read, in this order; empty: all.
    labels: 'corpus' (what the splits use), 'all' (every descriptor; what the
      splits use where there are none), or a file with one label id per line.
    hold_out_labels: labels to hide from training, for zero-shot judging.
    on_error: raise a DataError, or skip the faulty line and count it.
    workers: threads that read batches ahead.
  """

  dir: str = dataclasses.field(default='', metadata=MAY_CHANGE)
  cache_dir: str = dataclasses.field(default='', metadata=MAY_CHANGE)
  zones: tuple[str, ...] = ()
  labels: str = 'corpus'
  hold_out_labels: int = 0
  on_error: OnError = OnError.RAISE
  workers: int = dataclasses.field(default=2, metadata=MAY_CHANGE)
  tokens: TokensConfig = dataclasses.field(default_factory=WordsConfig)


@dataclasses.dataclass
class SyntheticData(DataConfig):
  """The embedded corpus: made from a seed, nothing is read.

  Attributes:
    n_train, n_dev, n_test: documents.
    n_labels: labels, some of them in no training document.
    corpus_seed: decides language, labels and documents.
    verbatim: how often each word of a label's name is there where a document
      speaks of the label; the fewer, the less is found by the names alone.
  """

  n_train: int = 2000
  n_dev: int = 400
  n_test: int = 400
  n_labels: int = 200
  corpus_seed: int = 0
  verbatim: float = 0.8


@dataclasses.dataclass
class Eurlex57kData(DataConfig):
  """EURLEX57K: the official archive or a folder of JSON lines."""


@dataclasses.dataclass
class JsonlData(DataConfig):
  """Your own text: {split}.jsonl[.gz] and labels.jsonl[.gz] in dir."""


@dataclasses.dataclass
class XcRepoData(DataConfig):
  """A raw-text folder of the Extreme Classification Repository.

  trn.json, tst.json and dev.json, each perhaps gzipped, and lbl.json or Y.txt
  with the labels' names. A label's id is its column; all columns are labels,
  whether a split uses them or not, unless labels says otherwise.
  """

  labels: str = 'all'


@dataclasses.dataclass
class XcFeaturesData(DataConfig):
  """Feature files of the Extreme Classification Repository.

  train.txt, test.txt and dev.txt, each perhaps gzipped, and perhaps Y.txt with
  the labels' names, a line each. A document's id is its row, a label's id its
  column, both from 0. All columns are labels, as of XcRepoData. There is no
  text, so there are no zones.
  """

  labels: str = 'all'
  tokens: TokensConfig = dataclasses.field(default_factory=GivenFeaturesConfig)


class HtcLabels(enum.Enum):
  """Which labels of a taxonomy documents have."""

  ALL = 'all'
  LEAVES = 'leaves'


@dataclasses.dataclass
class HtcConfig:
  """A taxonomy, and what is made of it.

  Attributes:
    taxonomy: file in data.dir, `parent<TAB>child<TAB>child...` a line; empty:
      the one there that is called so.
    labels: all: those given and all above them; leaves: those given that have
      no label below them.
  """

  taxonomy: str = ''
  labels: HtcLabels = HtcLabels.ALL


@dataclasses.dataclass
class HtcData(DataConfig):
  """Hierarchical text classification: JSON lines and a taxonomy.

  Files like wos_train.json, wos_val.json and wos_test.json, each perhaps
  gzipped, of lines {"doc_token", "doc_label"}.
  """

  htc: HtcConfig = dataclasses.field(default_factory=HtcConfig)
