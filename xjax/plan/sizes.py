"""The sizes that a run's memory and time follow from."""

import dataclasses
import math

from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.data.load import load_corpus
from xjax.data.schema import FREQUENT_FROM
from xjax.run.neural import first_vocabulary
from xjax.run.neural_training import scored_labels
from xjax.score.pretrained.architecture import (
  Activation,
  Architecture,
  architecture_of,
)
from xjax.train.initial.encoder import first_encoder, planned_architecture
from xjax.train.inputs import Inputs

POSITIVES = 64  # places for gold labels, where the corpus is not read
# Devlin et al. 2019; of a folder that is not there.
BERT_BASE = Architecture(
  30_522, 768, 12, 12, 3072, 512, 2, Activation.GELU, 1e-12, 0, 0
)


@dataclasses.dataclass(frozen=True)
class BatchShape:
  """A batch over all devices; sizes as in core.types.Batch."""

  documents: int
  rows: int  # of tokens; fewer than documents where these share rows
  tokens: int  # of a row, or of a zone
  zones: int  # of a document; 0: they are not kept apart
  positives: int  # places for gold labels


@dataclasses.dataclass(frozen=True)
class Sizes:
  """The sizes of a run."""

  labels: int  # that are scored
  documents: int  # of train
  frequent: int  # labels of which Storage.COMPENSATED keeps more
  vocab_size: int  # word ids; 0: there are none
  architecture: Architecture | None  # of a pretrained encoder
  steps: dict[BatchShape, int]  # batches of an epoch by shape
  assumed: tuple[str, ...] = ()  # for the reader: what was not known

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
  reads = config.data.tokens
  if reads.pretrained:
    vocab, encoder = first_encoder(config, train)
    architecture = architecture_of(encoder, 'the encoder')
  elif not reads.dense:
    vocab = first_vocabulary(config, corpus)
  batches = Inputs(config, vocab).train_batches(train, space.n_trained)
  labels, documents = (
    scored_labels(config.model, space),
    config.train.batch_size,
  )
  steps = {}
  for (*zones, tokens, positives), count in batches.steps_by_shape.items():
    rows = documents
    if reads.packed:
      rows = min(rows, math.ceil(rows * batches.mean_length / tokens))
    shape = BatchShape(documents, rows, tokens, *(zones or [0]), positives)
    steps[shape] = count
  frequent = int((space.train_counts[:labels] >= FREQUENT_FROM).sum())
  words = 0 if vocab is None else len(vocab)
  return Sizes(labels, len(train), frequent, words, architecture, steps)


def given_sizes(config: Config, labels: int, documents: int) -> Sizes:
  """Sizes by what is given, where the corpus is not at hand.

  Every document is as long as the config lets it be.

  Raises:
    ConfigError: the config's documents have zones, whose number is not known.
    DataError: the encoder's folder is named and is not there.
  """
  tokens, batch = config.data.tokens, config.train.batch_size
  if config.model.encoder.by_zone:
    raise ConfigError(
      '--plan_labels: how many zones documents have is known of the corpus '
      'alone; leave it out, and the corpus is read'
    )
  assumed = [
    f'every document has {tokens.max_tokens} tokens',
    f'{POSITIVES} places for gold labels',
  ]
  words, architecture = 0, None
  if tokens.pretrained:
    architecture = planned_architecture(config)
    if not config.model.encoder.folder:
      architecture = BERT_BASE
      assumed.append('the encoder has the sizes of BERT-base')
  elif not tokens.dense:
    words = tokens.max_words
    assumed.append(f'{words:,} words')
  shape = BatchShape(batch, batch, tokens.max_tokens, 0, POSITIVES)
  steps = {shape: math.ceil(documents / batch)}
  # At most: no document is known to have more labels.
  frequent = min(labels, documents * POSITIVES // FREQUENT_FROM)
  return Sizes(
    labels, documents, frequent, words, architecture, steps, tuple(assumed)
  )
