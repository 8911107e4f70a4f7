"""What a neural model is made of: embedding, encoder, head."""

import dataclasses


@dataclasses.dataclass
class EmbeddingConfig:
  """Trained word embeddings.

  Attributes:
    dim: size of a word vector.
    dropout: rate over whole channels of a document (spatial dropout).
    word_dropout: rate over whole words.
    init_scale: standard deviation of the first vectors' entries.
  """

  dim: int = 200
  dropout: float = 0.2
  word_dropout: float = 0.02
  init_scale: float = 0.1


@dataclasses.dataclass
class BiGRUConfig:
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
class LabelAttentionConfig:
  """Label-wise attention (LWAN) head.

  Attributes:
    chunk: labels scored at a time; bounds memory, never changes results.
  """

  chunk: int = 512


@dataclasses.dataclass
class NeuralModel:
  """embedding -> encoder -> head."""

  embedding: EmbeddingConfig = dataclasses.field(
    default_factory=EmbeddingConfig
  )
  encoder: BiGRUConfig = dataclasses.field(default_factory=BiGRUConfig)
  head: LabelAttentionConfig = dataclasses.field(
    default_factory=LabelAttentionConfig
  )
