"""The sizes that a run's memory and time follow from."""

import dataclasses
import math

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.data.config import FeatureFilesConfig, SubwordsConfig, WordsConfig
from xjax.data.load import load_corpus
from xjax.data.schema import FREQUENT_FROM
from xjax.run.neural import begun_vocabulary
from xjax.run.neural_training import scored_labels
from xjax.score.encoders.han import HANConfig
from xjax.score.pretrained.architecture import (
  Activation,
  Architecture,
  architecture_of,
)
from xjax.train.initial.encoder import begun_encoder, planned_architecture
from xjax.train.inputs import Inputs

POSITIVES = 64  # places for gold labels, where the corpus is not read

# Devlin et al. 2019; of a folder that is not there.
BERT_BASE = Architecture(
  vocab_size=30_522,
  dim=768,
  layers=12,
  heads=12,
  inner=3072,
  positions=512,
  token_types=2,
  activation=Activation.GELU,
  norm_eps=1e-12,
  pad_id=0,
  position_offset=0,
)


@dataclasses.dataclass(frozen=True)
class BatchShape:
  """A batch over all devices; sizes as in core.types.Batch.

  Attributes:
    documents: of it.
    rows: of tokens; fewer than documents where these share rows.
    tokens: of a row, or of a zone.
    zones: of a document; 0: they are not kept apart.
    positives: places for gold labels.
  """

  documents: int
  rows: int
  tokens: int
  zones: int
  positives: int


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Of a run.

  Attributes:
    labels: that are scored.
    documents: of train.
    frequent: labels with so many documents that Storage.COMPENSATED keeps more
      of them.
    vocab_size: word ids; 0: there are none.
    architecture: of a pretrained encoder, or None.
    steps: batches of an epoch by shape.
    assumed: what was not known, for the reader.
  """

  labels: int
  documents: int
  frequent: int
  vocab_size: int
  architecture: Architecture | None
  steps: dict[BatchShape, int]
  assumed: tuple[str, ...] = ()

  @property
  def longest(self) -> BatchShape:
    """The largest batch."""
    return max(
      self.steps,
      key=lambda at: (at.rows * at.tokens * max(at.zones, 1), at.positives),
    )


def corpus_sizes(config: Config) -> Sizes:
  """Those of the config's corpus, which is read as a run reads it.

  Raises:
    ConfigError, DataError: as fit.
  """
  corpus = load_corpus(config.data, config.seed)
  train, space = corpus.split('train'), corpus.label_space
  architecture, vocab = None, None
  match config.data.tokens:
    case SubwordsConfig():
      vocab, sizes = begun_encoder(config, train)
      architecture = architecture_of(sizes, 'the encoder')
    case WordsConfig():
      vocab = begun_vocabulary(config, corpus)
  batches = Inputs(config, vocab).train_batches(train, space.n_trained)
  labels = scored_labels(config.model, space)
  return Sizes(
    labels=labels,
    documents=len(train),
    frequent=int((space.train_counts[:labels] >= FREQUENT_FROM).sum()),
    vocab_size=0 if vocab is None else len(vocab),
    architecture=architecture,
    steps={
      _shape(config, shape, batches.mean_length): steps
      for shape, steps in batches.steps_by_shape.items()
    },
  )


def _shape(
  config: Config, shape: tuple[int, ...], mean_length: float
) -> BatchShape:
  *zones, tokens, positives = shape
  rows = documents = config.train.batch_size
  if getattr(config.data.tokens, 'packed', False):
    rows = min(rows, math.ceil(rows * mean_length / tokens))
  return BatchShape(documents, rows, tokens, *(zones or [0]), positives)


def given_sizes(config: Config, labels: int, documents: int) -> Sizes:
  """Sizes by what is given, where the corpus is not at hand.

  Every document is as long as the config lets it be.

  Raises:
    ConfigError: the config's documents have zones, whose number is not known.
    DataError: the encoder's folder is named and is not there.
  """
  tokens = config.data.tokens
  if isinstance(config.model.encoder, HANConfig):
    raise ConfigError(
      '--plan_labels: how many zones documents have is known of the corpus '
      'alone; leave it out, and the corpus is read'
    )
  assumed = [
    f'every document has {tokens.max_tokens} tokens',
    f'{POSITIVES} places for gold labels',
  ]
  vocab_size, architecture = 0, None
  match tokens:
    case WordsConfig(max_words=vocab_size):
      assumed.append(f'{vocab_size:,} words')
    case SubwordsConfig():
      architecture = planned_architecture(config)
      if not config.model.encoder.folder:
        architecture = BERT_BASE
        assumed.append('the encoder has the sizes of BERT-base')
    case FeatureFilesConfig():
      pass
  batch = config.train.batch_size
  shape = BatchShape(batch, batch, tokens.max_tokens, 0, POSITIVES)
  return Sizes(
    labels=labels,
    documents=documents,
    # At most: no document is known to have more labels.
    frequent=min(labels, documents * POSITIVES // FREQUENT_FROM),
    vocab_size=vocab_size,
    architecture=architecture,
    steps={shape: math.ceil(documents / batch)},
    assumed=tuple(assumed),
  )


def check_sizes(config: Config, sizes: Sizes) -> None:
  """Refuses an encoder that cannot read so much.

  Raises:
    ConfigError: with the field.
  """
  longest = config.data.tokens.max_tokens
  if sizes.architecture and longest > sizes.architecture.max_tokens:
    raise ConfigError(
      f'config.data.tokens.max_tokens={longest}: the encoder reads at most '
      f'{sizes.architecture.max_tokens} tokens'
    )
