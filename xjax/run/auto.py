"""Chooses the model of a run by its corpus and devices."""

import dataclasses

from absl import logging
import jax
import numpy as np

from xjax.config.check import check_config
from xjax.config.json import load_config
from xjax.config.run import Config
from xjax.config.train import LinearTrain, TrainConfig, TreeTrain
from xjax.core.errors import DataError
from xjax.data.config import (
  GivenFeaturesConfig,
  SubwordsConfig,
  TfidfConfig,
  TokensConfig,
)
from xjax.data.formats.draft import TRAIN
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.score.config import (
  AutoModel,
  LinearModel,
  ModelConfig,
  TreeModel,
)
from xjax.score.trees.clusters import ClusterTree
from xjax.train.workdir import Workdir

# One classifier per label is trained up to this product of the numbers of
# documents and labels. This takes less than a minute for texts of 300 words.
_ONE_VS_ALL = 20_000_000
# Word pairs help only if there are many documents to learn their weights from.
_PAIRS_FROM = 5_000
# From here, the weights of a large tree would take too much memory.
_SMALL_FROM = 100_000
_RARE = 20  # training documents of a label that the unified head may hide
_HIDDEN = 200
_BATCH = 32


@dataclasses.dataclass(frozen=True)
class _Choice:
  """Holds a config, and three texts that explain it.

  Attributes:
    config: the config.
    what: names the model.
    why: says why it fits.
    other: says what else could be tried.
  """

  config: Config
  what: str
  why: str
  other: str


def resolve(config: Config, workdir: Workdir) -> tuple[Config, Corpus | None]:
  """Replaces AutoModel in a config by a model that suits the corpus.

  If the workdir has a run, its model is taken. Otherwise, the corpus is read,
  and three lines are logged: the model, the reason, and what else could be
  tried.

  Args:
    config: config of the run.
    workdir: folder of the run.

  Returns:
    The config without AutoModel, and the corpus if it was read.

  Raises:
    ConfigError, DataError: the corpus or the workdir has a fault.
  """
  if not isinstance(config.model, AutoModel):
    return config, None
  if workdir.config.exists():
    saved = load_config(workdir.config)
    return _with(config, saved.model, saved.train, saved.data.tokens), None
  corpus = load_corpus(config.data, config.seed)
  if TRAIN not in corpus.splits:
    raise DataError('the corpus has no split train')
  choice = choose(config, corpus.label_space, jax.default_backend() != 'cpu')
  for line in (choice.what, choice.why, choice.other):
    logging.info('auto: %s', line)
  check_config(choice.config)
  return choice.config, corpus


def choose(config: Config, space: LabelSpace, accelerator: bool) -> _Choice:
  """Chooses a model by sizes and devices; see resolve.

  Args:
    config: config with AutoModel.
    space: labels of the corpus, with their training counts.
    accelerator: whether a GPU or a TPU is there.
  """
  has = f'{space.n_train} training documents, {space.n_trained} labels'
  device = 'an accelerator' if accelerator else 'no accelerator'
  if accelerator and config.model.encoder:
    return _fine_tuned(config, space, f'{has}, {device}, an encoder')
  if accelerator:
    other = 'fine-tune an encoder: --config.model.encoder=FOLDER'
  else:
    other = 'on a GPU, fine-tune an encoder: --config=own_minilm'
    if config.model.encoder:
      device += f' (so {config.model.encoder} is not used)'
  if np.any(space.train_counts[: space.n_trained] == 0) and _named(space):
    other += '; for labels without training documents: --config=own_unified'
  return _linear(config, space, f'{has}, {device}', other)


def linear_parts(
  n_train: int, n_labels: int, tokens: TokensConfig
) -> tuple[ModelConfig, TrainConfig, TokensConfig]:
  """Returns a linear model, or a label tree if there are many labels.

  Args:
    n_train: number of training documents.
    n_labels: number of labels.
    tokens: the form in which the config reads documents.

  Returns:
    The model, its training, and the form in which it reads documents.
  """
  pairs = n_train >= _PAIRS_FROM
  reads = TfidfConfig, GivenFeaturesConfig
  if tokens == TfidfConfig() or not isinstance(tokens, reads):
    tokens = TfidfConfig(max_ngram=2 if pairs else 1)
  if n_train * n_labels <= _ONE_VS_ALL:
    return LinearModel(), LinearTrain(), tokens
  # own_linear has the same two trees.
  if n_train < _SMALL_FROM:
    wide = ClusterTree(arity=100, max_leaf=100)
    return TreeModel(tree=wide), TreeTrain(threshold=0.01), tokens
  return TreeModel(), TreeTrain(), tokens


def _linear(config: Config, space: LabelSpace, has: str, other: str) -> _Choice:
  """Chooses a linear model, or a label tree if there are many labels."""
  model, train, tokens = linear_parts(
    space.n_train, space.n_trained, config.data.tokens
  )
  reads, why = 'the features of the corpus', has
  if isinstance(tokens, TfidfConfig):
    pairs = 'pay' if tokens.max_ngram > 1 else 'need more documents'
    reads = f'TF-IDF of {tokens.min_ngram} to {tokens.max_ngram} words'
    why = f'{has}: word pairs {pairs}'
  chosen = _with(config, model, train, tokens)
  if isinstance(model, LinearModel):
    return _Choice(
      chosen,
      f'LinearModel, one linear classifier per label, over {reads}',
      f'{why}, and so few labels need no tree',
      f'a label tree: --config=own_linear; {other}',
    )
  return _Choice(
    chosen,
    f'TreeModel, a label tree of linear classifiers, over {reads}',
    f'{why}, and a tree saves most of the time with so many labels',
    f'three trees: --config=own_linear --config.model.n_trees=3; {other}',
  )


def _fine_tuned(config: Config, space: LabelSpace, has: str) -> _Choice:
  """Chooses a pretrained encoder; its head reads names if they are needed."""
  # These modules load flax, which linear models do not need.
  from xjax.config.neural_train import NeuralTrain, Schedule
  from xjax.config.optimizer import AdamW
  from xjax.score.encoders.bert import BertConfig
  from xjax.score.encoders.contract import NoEmbedding
  from xjax.score.heads.contract import DescriptorConfig
  from xjax.score.heads.ova import OneVsAllConfig
  from xjax.score.heads.unified import UnifiedConfig
  from xjax.score.pooling import ClsConfig
  from xjax.score.text_model import NeuralModel

  counts = space.train_counts[: space.n_trained]
  unseen = int((counts == 0).sum())
  encoder = BertConfig(folder=config.model.encoder)
  tokens = SubwordsConfig(max_tokens=256, buckets=(64, 128, 192, 256))
  train = NeuralTrain(
    batch_size=_BATCH,
    steps=min(20_000, max(1000, 10 * space.n_train // _BATCH)),
    warmup=100,
    schedule=Schedule.LINEAR,
    optimizer=AdamW(weight_decay=0.01),
    clip_norm=1.0,
  )
  if unseen and _named(space):
    rare = int(((counts > 0) & (counts <= _RARE)).sum())
    model = NeuralModel(
      NoEmbedding(),
      encoder,
      head=UnifiedConfig(
        aligned=True,
        descriptor=DescriptorConfig(alt=True),
        hidden_labels=min(_HIDDEN, rare // 2),
      ),
    )
    train = dataclasses.replace(
      train, learning_rate=2e-3, rates=('encoder/*=0.1',)
    )
    what, why = 'the unified head', f'{unseen} labels are known by name only'
  else:
    model = NeuralModel(NoEmbedding(), encoder, ClsConfig(), OneVsAllConfig())
    train = dataclasses.replace(
      train, learning_rate=1e-2, rates=('encoder/*=0.02',)
    )
    what, why = 'one classifier per label', 'every label is learnt from texts'
  return _Choice(
    _with(config, model, train, tokens),
    f'NeuralModel, {config.model.encoder} with {what}',
    f'{has}; {why}',
    'a linear model, in less time: --config=own_linear',
  )


def _named(space: LabelSpace) -> bool:
  """Returns whether most labels have a name that is not their id."""
  names = space.labels[: space.n_trained].names
  return 2 * sum(1 for name in names if name) > space.n_trained


def _with(
  config: Config,
  model: ModelConfig,
  train: TrainConfig,
  tokens: TokensConfig,
) -> Config:
  """Returns a config with another model."""
  data = dataclasses.replace(config.data, tokens=tokens)
  return dataclasses.replace(config, data=data, model=model, train=train)
