"""What a model is made of: of neural ones embedding, encoder, pooling, head."""

import dataclasses
import enum

from xjax.data.config import MAY_CHANGE
from xjax.score.heads.storage import Storage
from xjax.score.trees.clusters import ClusterTree
from xjax.score.trees.contract import TreeConfig


@dataclasses.dataclass
class InputConfig:
  """How a batch's documents become vectors."""


@dataclasses.dataclass
class EmbeddingConfig(InputConfig):
  """Word embeddings, trained or pretrained.

  Attributes:
    dim: size of a word vector.
    dropout: rate over whole channels of a document (spatial dropout).
    word_dropout: rate over whole words.
    init_scale: standard deviation of the first vectors' entries, of words that
      have no pretrained vector.
    vectors: file of pretrained vectors, of size dim, that words begin with
      (word2vec text or binary, or GloVe); empty: none.
    frozen: whether the vectors stay as they begin.
  """

  dim: int = 200
  dropout: float = 0.2
  word_dropout: float = 0.02
  init_scale: float = 0.1
  vectors: str = dataclasses.field(default='', metadata=MAY_CHANGE)
  frozen: bool = False


@dataclasses.dataclass
class FeaturesConfig(InputConfig):
  """Vectors that an outside encoder made; needs FeatureFilesConfig as data's.

  Attributes:
    dim: size of a vector, as in the files.
    dropout: rate over whole channels of a document.
  """

  dim: int = 768
  dropout: float = 0.0


@dataclasses.dataclass
class NoEmbedding(InputConfig):
  """They do not: the encoder reads token ids."""


@dataclasses.dataclass
class EncoderConfig:
  """What makes vectors in context of a document's vectors."""


@dataclasses.dataclass
class NoEncoder(EncoderConfig):
  """None: vectors stay as they are."""


@dataclasses.dataclass
class BiGRUConfig(EncoderConfig):
  """Bidirectional GRU.

  Attributes:
    units: per direction.
    layers: stacked; from the second on with a residual connection.
    dropout: rate over the inputs of each layer from the second on, and over
      the output.
  """

  units: int = 300
  layers: int = 1
  dropout: float = 0.2


@dataclasses.dataclass
class CNNConfig(EncoderConfig):
  """One convolution over time.

  Attributes:
    filters: size of the output.
    width: tokens that a filter sees.
    dropout: rate over the output.
  """

  filters: int = 200
  width: int = 3
  dropout: float = 0.1


@dataclasses.dataclass
class HANConfig(EncoderConfig):
  """Hierarchical attention: words make zones, zones make the document.

  Needs data.tokens.by_zone. Zones are the tokens of the pooling and the head.

  Attributes:
    units: per direction, over a zone's words.
    layers: over words, as of BiGRUConfig.
    zone_units: per direction, over a document's zones.
    dropout: rate, as of BiGRUConfig, over words and over zones.
  """

  units: int = 300
  layers: int = 1
  zone_units: int = 300
  dropout: float = 0.3


@dataclasses.dataclass
class BertConfig(EncoderConfig):
  """A pretrained transformer of the BERT family, fine-tuned.

  Needs SubwordsConfig as data's, and NoEmbedding.

  Attributes:
    folder: in Hugging Face's layout, with config.json, model.safetensors and
      the tokenizer; or the name of a model in the local Hugging Face cache. It
      is read when a run begins, never after; of several hosts each reads it, so
      each needs it, at this path. Empty: a small encoder with fresh weights
      that reads the words of train, with SyntheticData alone.
    dropout: rate over the embeddings and over what each part of a layer adds.
    attention_dropout: rate over attention's weights; at 0, and with
      train.compute_dtype=bfloat16, GPUs use a flash kernel.
    remat: whether layers are computed again for gradients: less memory, more
      time, the same result.
    spare_rows: whether the word table of the folder may end in any number of
      rows that its tokenizer has no ids for. Else it may where it is rounded up
      to a multiple of 8, 16, 32, 64 or 128, and a table of any other size is
      taken for that of another model.
  """

  folder: str = dataclasses.field(default='', metadata=MAY_CHANGE)
  dropout: float = 0.1
  attention_dropout: float = 0.1
  remat: bool = dataclasses.field(default=False, metadata=MAY_CHANGE)
  spare_rows: bool = dataclasses.field(default=False, metadata=MAY_CHANGE)


@dataclasses.dataclass
class PoolingConfig:
  """What makes one vector of a document's vectors."""


@dataclasses.dataclass
class NoPooling(PoolingConfig):
  """None: the head reads tokens."""


@dataclasses.dataclass
class MeanConfig(PoolingConfig):
  """The mean over tokens; of a document of one vector, that vector."""


@dataclasses.dataclass
class SelfAttentionConfig(PoolingConfig):
  """A sum weighted by attention that all labels share."""


@dataclasses.dataclass
class ClsConfig(PoolingConfig):
  """The first token's vector, [CLS].

  Attributes:
    dropout: rate over it.
    pooler: whether a dense layer with tanh, pretrained where the folder has
      one, comes before.
  """

  dropout: float = 0.1
  pooler: bool = False


@dataclasses.dataclass
class HeadConfig:
  """What scores labels.

  Attributes:
    attends: whether labels attend to tokens, so that it can say why.
    describes: whether labels are known by descriptors, so that more can be
      added by name.
    chunk: labels scored at a time; bounds memory, never changes results.
  """

  attends = False
  describes = False

  chunk: int = 512


@dataclasses.dataclass
class LabelAttentionConfig(HeadConfig):
  """Label-wise attention (LWAN) head."""

  attends = True


@dataclasses.dataclass
class OneVsAllConfig(HeadConfig):
  """A dense layer on a document's one vector; needs a pooling.

  Attributes:
    storage: what a weight is stored as; but for FLOAT32 it needs label rows
      that training changes by themselves, train.rows.
    bottleneck: size that a dense layer before it makes of the vector; 0: none.
  """

  chunk: int = 8192
  storage: Storage = Storage.FLOAT32
  bottleneck: int = 0


class DescriptorWeights(enum.Enum):
  """What the words of descriptors count."""

  UNIFORM = 'uniform'
  IDF = 'idf'


@dataclasses.dataclass
class DescriptorConfig:
  """How a label's descriptor becomes a vector: a mean of word vectors.

  Attributes:
    alt: whether the words of alternative names count as well.
    weights: uniform (Chalkidis et al. 2019: the centroid), or by the inverse
      frequency of a word in the descriptors of all labels.
    max_words: of each name, its first ones; with BertConfig its first pieces,
      which with the special tokens around them must not be more than the
      encoder reads.
  """

  alt: bool = False
  weights: DescriptorWeights = DescriptorWeights.UNIFORM
  max_words: int = 15


@dataclasses.dataclass
class DescriptorHeadConfig(HeadConfig):
  """A head that knows labels by their descriptors.

  Attributes:
    descriptor: how these become vectors.
  """

  attends = True
  describes = True

  descriptor: DescriptorConfig = dataclasses.field(
    default_factory=DescriptorConfig
  )


@dataclasses.dataclass
class ZeroShotConfig(DescriptorHeadConfig):
  """Label attention by descriptors alone (ZERO-BIGRU-LWAN)."""


@dataclasses.dataclass
class UnifiedConfig(DescriptorHeadConfig):
  """Label attention by rows of a label's own and by its descriptor.

  Attributes:
    row_dropout: share of the labels that go without their rows in a step.
    hidden_labels: rare labels that are seen in no other way than to learn how
      scores of unseen labels compare with those of seen ones.
    aligned: whether descriptors and tokens are of one space from the start, as
      one pretrained encoder makes them: labels then begin with their
      descriptors as queries and outputs, and not with random maps of them.
  """

  row_dropout: float = 0.3
  hidden_labels: int = 50
  aligned: bool = False


@dataclasses.dataclass
class ModelConfig:
  """What ranks labels."""


@dataclasses.dataclass
class NeuralModel(ModelConfig):
  """embedding -> encoder -> pooling -> head."""

  embedding: InputConfig = dataclasses.field(default_factory=EmbeddingConfig)
  encoder: EncoderConfig = dataclasses.field(default_factory=BiGRUConfig)
  pooling: PoolingConfig = dataclasses.field(default_factory=NoPooling)
  head: HeadConfig = dataclasses.field(default_factory=LabelAttentionConfig)


@dataclasses.dataclass
class ExactMatchModel(ModelConfig):
  """Labels whose names are found in the document; nothing is learnt.

  It reads the first data.tokens.max_tokens words.

  Attributes:
    alt: whether a label is found by its alternative names as well.
  """

  alt: bool = False


@dataclasses.dataclass
class LinearModel(ModelConfig):
  """One weight vector per label over sparse features of documents."""


@dataclasses.dataclass
class TreeModel(ModelConfig):
  """Linear classifiers at the nodes of a label tree.

  With the logistic loss a probabilistic label tree (Jasinska et al. 2016), with
  the squared hinge XR-Linear (Yu et al. 2022, "PECOS").

  Attributes:
    tree: over the labels.
    n_trees: of an ensemble; each has a seed of its own.
    beam: nodes of a depth that are opened for a document, unless exact.
    exact: whether instead every node is opened that may have one of the best
      labels below it; of ensembles, one of the best of each tree.
  """

  tree: TreeConfig = dataclasses.field(default_factory=ClusterTree)
  n_trees: int = 1
  beam: int = dataclasses.field(default=10, metadata=MAY_CHANGE)
  exact: bool = dataclasses.field(default=False, metadata=MAY_CHANGE)
