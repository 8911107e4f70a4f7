"""Refuses documents that a model cannot read, naming the field."""

from collections.abc import Iterator

from xjax.config.run import Config
from xjax.data.config import (
  DataConfig,
  FeatureFilesConfig,
  GivenFeaturesConfig,
  OnError,
  PaddedConfig,
  SubwordsConfig,
  TfidfConfig,
  TokensConfig,
  WordsConfig,
  XcFeaturesData,
)
from xjax.score.config import (
  BertConfig,
  ClsConfig,
  DescriptorConfig,
  DescriptorWeights,
  ExactMatchModel,
  FeaturesConfig,
  HANConfig,
  LinearModel,
  ModelConfig,
  NeuralModel,
  NoEmbedding,
  NoEncoder,
  TreeModel,
)

# What each kind of model can read.
READS: dict[type[ModelConfig], tuple[type[TokensConfig], ...]] = {
  NeuralModel: (WordsConfig, SubwordsConfig, FeatureFilesConfig),
  ExactMatchModel: (WordsConfig,),
  LinearModel: (TfidfConfig, GivenFeaturesConfig),
  TreeModel: (TfidfConfig, GivenFeaturesConfig),
}


def input_faults(config: Config) -> Iterator[str]:
  """What is wrong with config.data, and with it for config.model."""
  data = config.data
  yield from _data_faults(data)
  given = isinstance(data.tokens, GivenFeaturesConfig)
  kinds = READS[type(config.model)]
  if given != isinstance(data, XcFeaturesData):
    yield (
      f'config.data.tokens={type(data.tokens).__name__}(...): '
      'GivenFeaturesConfig(...) goes with config.data=XcFeaturesData(...), and '
      'each with nothing else'
    )
  elif not isinstance(data.tokens, kinds):
    yield (
      f'config.data.tokens={type(data.tokens).__name__}(...): '
      f'{type(config.model).__name__}(...) reads '
      + ' or '.join(f'{kind.__name__}(...)' for kind in kinds)
    )
  elif isinstance(config.model, NeuralModel):
    yield from _neural_faults(config)
  elif getattr(data.tokens, 'by_zone', False):
    yield 'config.data.tokens.by_zone=True: this model reads zones as one text'


def _data_faults(data: DataConfig) -> Iterator[str]:
  match data.tokens:
    case PaddedConfig() as tokens:
      yield from _bucket_faults(tokens)
    case TfidfConfig(min_ngram=least, max_ngram=most) if least > most:
      yield (
        f'config.data.tokens.min_ngram={least}: must be at most '
        f'config.data.tokens.max_ngram={most}'
      )
  if len(set(data.zones)) != len(data.zones):
    yield f'config.data.zones={data.zones}: a zone is named twice'
  if not data.labels:
    yield "config.data.labels='': must be corpus, all, or a file"
  if isinstance(data, XcFeaturesData):
    if data.zones:
      yield (
        f'config.data.zones={data.zones}: files of features have no zones: ()'
      )
    if data.on_error is not OnError.RAISE:
      yield (
        f'config.data.on_error={data.on_error}: a document is its row, so no '
        'row can be left out: OnError.RAISE'
      )


def _bucket_faults(tokens: PaddedConfig) -> Iterator[str]:
  buckets = tokens.buckets
  if not buckets or min(buckets) < 1 or list(buckets) != sorted(set(buckets)):
    yield f'config.data.tokens.buckets={buckets}: must be ascending lengths'
  elif buckets[-1] != tokens.max_tokens:
    yield (
      f'config.data.tokens.buckets={buckets}: the last one must be '
      f'config.data.tokens.max_tokens={tokens.max_tokens}'
    )
  elif getattr(tokens, 'packed', False) and len(buckets) > 1:
    yield (
      f'config.data.tokens.buckets={buckets}: with '
      'config.data.tokens.packed=True all rows are of max_tokens: '
      f'{buckets[-1:]}'
    )


def _neural_faults(config: Config) -> Iterator[str]:
  """Tokens and the parts that read them."""
  tokens = config.data.tokens
  by_zone = isinstance(tokens, WordsConfig) and tokens.by_zone
  if by_zone != isinstance(config.model.encoder, HANConfig):
    yield (
      f'config.data.tokens.by_zone={by_zone}: must be True with '
      'config.model.encoder=HANConfig(...), and False with any other'
    )
  from_files = isinstance(tokens, FeatureFilesConfig)
  if from_files != isinstance(config.model.embedding, FeaturesConfig):
    yield (
      f'config.model.embedding={type(config.model.embedding).__name__}(...): '
      'FeaturesConfig(...) goes with config.data.tokens=FeatureFilesConfig(...)'
      ', and each with nothing else'
    )
  yield from _subword_faults(config)
  head = config.model.head
  if getattr(head, 'aligned', False) and not _of_one_space(config.model):
    yield (
      'config.model.head.aligned=True: descriptors and tokens are of one space '
      'with BertConfig(...), or FeaturesConfig(...) and NoEncoder()'
    )
  if from_files and head.describes and head.descriptor != DescriptorConfig():
    yield (
      f'config.model.head.descriptor={head.descriptor}: labels have vectors of '
      'the outside encoder here, and no words are read: DescriptorConfig()'
    )


def _of_one_space(model: NeuralModel) -> bool:
  """Whether the encoder's output is where descriptors are from."""
  match model.embedding, model.encoder:
    case (NoEmbedding(), BertConfig()) | (FeaturesConfig(), NoEncoder()):
      return True
  return False


def _subword_faults(config: Config) -> Iterator[str]:
  """Encoders of the BERT family, and what belongs to them."""
  model, tokens = config.model, config.data.tokens
  pretrained = isinstance(model.encoder, BertConfig)
  theirs = {
    'config.data.tokens': (tokens, SubwordsConfig),
    'config.model.embedding': (model.embedding, NoEmbedding),
  }
  for field, (found, kind) in theirs.items():
    if isinstance(found, kind) != pretrained:
      yield (
        f'{field}={type(found).__name__}(...): {kind.__name__}(...) goes with '
        'config.model.encoder=BertConfig(...), and each with nothing else'
      )
  if isinstance(model.pooling, ClsConfig) and not pretrained:
    yield (
      'config.model.pooling=ClsConfig(...): needs '
      'config.model.encoder=BertConfig(...), which reads a token [CLS]'
    )
  weights = getattr(getattr(model.head, 'descriptor', None), 'weights', None)
  if pretrained and weights not in (None, DescriptorWeights.UNIFORM):
    yield (
      f'config.model.head.descriptor.weights={weights}: the encoder reads '
      'names as a whole: DescriptorWeights.UNIFORM'
    )
