"""Lists the models that a run trains, and computes the sizes of each."""

from collections.abc import Iterator
import dataclasses
import math

from xjax.core.errors import ConfigError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import FREQUENT_FROM, Corpus
from xjax.models.contract import Config
from xjax.models.neural.neural_model import first_vocabulary
from xjax.models.neural.neural_plan import check_hierarchy
from xjax.networks.pretrained.architecture import (
  Activation,
  Architecture,
  BertArchitecture,
  XLNetArchitecture,
  architecture_of,
)
from xjax.train.batches.inputs import TokenReader
from xjax.train.initial.pretrained_encoder import (
  first_encoder,
  planned_architecture,
)

POSITIVES = 64  # assumed gold labels per document if the corpus is not read
# If the corpus is not read and the config names no encoder folder, the encoder
# is assumed to have the sizes of BERT-base (Devlin et al. 2019) or XLNet-base
# (Yang et al. 2019).
BERT_BASE = BertArchitecture(
  30_522, 768, 12, 12, 3072, Activation.GELU, 1e-12, 0, 512, 2, 0
)
XLNET_BASE = XLNetArchitecture(
  32_000, 768, 12, 12, 3072, Activation.GELU, 1e-12, 5
)


@dataclasses.dataclass(frozen=True)
class BatchShape:
  """Holds the shape of a batch over all devices (see TokenBatch)."""

  documents: int
  rows: int  # rows of tokens; fewer than `documents` if documents share rows
  tokens: int  # tokens of a row, or of a zone
  zones: int  # zones of a document; 0 if zones are not kept separate
  positives: int  # padded gold labels per document
  listed: int = 0  # labels of a shortlist; 0 if all labels are scored

  @property
  def volume(self) -> int:
    """Returns the number of tokens of a batch, with padding."""
    return self.rows * self.tokens * max(self.zones, 1)


@dataclasses.dataclass(frozen=True)
class RunSizes:
  labels: int  # labels that are scored
  documents: int  # documents of the split train
  frequent: int  # labels whose weights get more bytes with Storage.COMPENSATED
  vocab_size: int  # number of word ids; 0 if the model reads no words
  architecture: Architecture | None  # sizes of the pretrained encoder, if any
  steps: dict[BatchShape, int]  # number of batches of an epoch, by shape
  assumed: tuple[str, ...] = ()  # assumptions that are shown to the user
  # The hierarchy of the labels; None if the model does not read parents.
  hierarchy: Hierarchy | None = dataclasses.field(default=None, repr=False)

  @property
  def longest(self) -> BatchShape:
    return max(self.steps, key=lambda shape: (shape.volume, shape.positives))


def corpus_sizes(
  config: Config, corpus: Corpus, clusters: int | None = None
) -> RunSizes:
  """Returns the sizes of a run on a corpus."""
  # `clusters` is the largest number of clusters that the model ranks, or None
  # for labels. A document may have fewer gold clusters than labels.
  train, space = corpus.split('train'), corpus.label_space
  hierarchy = None
  if config.model.reads_parents:
    check_hierarchy(config.model, space)
    hierarchy = config.model.hierarchy(space)
  architecture, vocab = None, None
  reads = config.data.tokens
  if reads.pretrained:
    vocab, encoder = first_encoder(config.model, config.data, train)
    architecture = architecture_of(encoder, 'the encoder')
  elif not reads.dense:
    vocab = first_vocabulary(config, corpus)
  documents = config.train.batch_size
  dim = config.model.embedding.dim if reads.dense else 0
  reader = TokenReader(config.data, vocab, dim, documents)
  batches = reader.train_batches(
    train,
    space.n_trained,
    batch_size=documents,
    seed=config.seed,
    accumulate=config.train.accumulate,
  )
  labels = config.model.scored_labels(space)
  labels = min(labels, clusters or labels)
  steps, listed = {}, _listed(config, labels)
  for (*zones, tokens, positives), count in batches.steps_by_shape.items():
    rows = documents
    if reads.packed:
      rows = min(rows, math.ceil(rows * batches.mean_length / tokens))
    zone = zones or [0]
    shape = BatchShape(documents, rows, tokens, *zone, positives, listed)
    steps[shape] = count
  frequent = int((space.train_counts[:labels] >= FREQUENT_FROM).sum())
  words = 0 if vocab is None else len(vocab)
  n = len(train)
  return RunSizes(
    labels, n, frequent, words, architecture, steps, hierarchy=hierarchy
  )


def assumed_sizes(
  config: Config, labels: int, documents: int, clusters: int | None = None
) -> RunSizes:
  """Returns sizes without a corpus; documents have the largest length."""
  # Zones and parents of labels, which are unknown, are a ConfigError.
  tokens, batch = config.data.tokens, config.train.batch_size
  labels = min(labels, clusters or labels)
  unknown = {
    'the number of zones per document': config.model.encoder.by_zone,
    'the parents of labels': config.model.reads_parents,
  }
  for what, needed in unknown.items():
    if needed:
      raise ConfigError(
        f'--plan_labels: only the corpus says {what}; leave out '
        '--plan_labels, so that the corpus is read'
      )
  assumed = [
    f'every document has {tokens.max_tokens} tokens',
    f'every document has {POSITIVES} places for gold labels',
  ]
  words, architecture = 0, None
  if tokens.pretrained:
    architecture = planned_architecture(config.model, config.data)
    if not config.model.encoder.folder:
      is_xlnet = config.model.encoder.architecture is XLNetArchitecture
      architecture = XLNET_BASE if is_xlnet else BERT_BASE
      name = 'XLNet' if is_xlnet else 'BERT'
      assumed.append(f'the encoder has the sizes of {name}-base')
  elif not tokens.dense:
    words = tokens.max_words
    assumed.append(f'the vocabulary has {words:,} words')
  listed, longest = _listed(config, labels), tokens.max_tokens
  shape = BatchShape(batch, batch, longest, 0, POSITIVES, listed)
  steps = {shape: math.ceil(documents / batch)}
  # This is an upper bound if documents have at most POSITIVES gold labels.
  frequent = min(labels, documents * POSITIVES // FREQUENT_FROM)
  return RunSizes(
    labels, documents, frequent, words, architecture, steps, tuple(assumed)
  )


def _listed(config: Config, labels: int) -> int:
  """Returns about how many labels are on a shortlist; 0 without shortlists."""
  shortlist = config.model.shortlist
  width = shortlist.width(labels)
  return width if shortlist.proposes and width < labels else 0


@dataclasses.dataclass(frozen=True)
class ModelToTrain:
  """Describes a model that a run trains: its own model, or that of a stage."""

  config: Config  # of the model's own run
  folder: str = ''  # in the run's workdir, such as stages/encoder
  clusters: int | None = None  # at most as many are ranked; None: labels

  @property
  def planned(self) -> bool:
    return self.config.model.has_steps

  def title(self, sizes: RunSizes | None = None) -> str:
    """Returns a line that says which model this is; no sizes if not planned."""
    name = f'{self.folder or "model of the run"}: '
    name += type(self.config.model).__name__
    if sizes is None:
      return f'{name}, which is trained on CPUs and not planned'
    what = 'labels' if self.clusters is None else 'clusters'
    listed, n = sizes.longest.listed, f'{sizes.labels:,}'
    if listed:
      return f'{name}, which scores about {listed:,} of {n} {what} per document'
    return f'{name}, which scores {n} {what}'

  def and_stages(self) -> Iterator['ModelToTrain']:
    for stage in self.config.model.trained_stages(self.config):
      model = ModelToTrain(
        stage.config,
        f'{self.folder}/stages/{stage.name}'.lstrip('/'),
        stage.clusters or self.clusters,
      )
      yield from model.and_stages()
    yield self


def trained_models(config: Config) -> list[ModelToTrain]:
  """Returns the models that a run trains, in order; a ConfigError if none."""
  models = list(ModelToTrain(config).and_stages())
  if not any(model.planned for model in models):
    raise ConfigError(
      '--plan: only neural models can be planned, and this run trains none; '
      f'this config has {type(config.model).__name__}'
    )
  return models
