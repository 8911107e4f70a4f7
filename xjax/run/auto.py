"""Chooses the model of a run by its corpus and devices."""

import dataclasses

from absl import logging
import jax

from xjax.core.errors import DataError
from xjax.data.config import (
  AutoTfidfConfig,
  GivenFeaturesConfig,
  SubwordsConfig,
  TfidfConfig,
  TokensConfig,
)
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.models.config_check import check_config
from xjax.models.contract import Config, Model, load_config
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.models.stack.proposers import text_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.train.train_config import TrainConfig
from xjax.train.workdir import Workdir

# One classifier per label is trained up to this product of the numbers of
# documents and labels. This takes less than a minute for texts of 300 words.
_ONE_VS_ALL = 20_000_000
# Word pairs help only if there are many documents to learn their weights from.
_PAIRS_FROM = 5_000
# From here, the weights of a large tree would take too much memory.
_SMALL_FROM = 100_000
# A stack trains five times as many models as a tree alone. Its ranker needs
# documents to learn from, and its time should stay below about an hour.
_STACK_FROM, _STACK_TO = 5_000, 100_000
_STACK_LABELS = 100_000
_RARE = 20  # training documents of a label that the unified head may hide
_HIDDEN = 200
_BATCH = 32
_READS = TfidfConfig, GivenFeaturesConfig  # what linear models read


@dataclasses.dataclass(frozen=True)
class _Choice:
  config: Config
  what: str  # names the model
  why: str  # says why it fits


def resolve(
  config: Config, workdir: Workdir | None, accelerator: bool | None = None
) -> tuple[Config, Corpus | None]:
  """Replaces AutoModel in a config; also returns the corpus if it was read.

  If the workdir has a run, its model is taken. The fields that the config sets
  stay, so that the run refuses those that differ. Without a run, a model that
  suits the corpus is chosen, and two lines are logged: the model and the
  reason. `accelerator` says whether the run has a GPU or a TPU; None: whether
  this machine has one.
  """
  if not config.model.chooses:
    return config, None
  if workdir and workdir.config.exists():
    return _resumed(config, load_config(workdir.config)), None
  leave_out = config.eval.leave_out
  corpus = load_corpus(config.data, config.seed, leave_out=leave_out)
  if TRAIN not in corpus.splits:
    raise DataError('the corpus has no split train')
  if accelerator is None:
    accelerator = jax.default_backend() != 'cpu'
  choice = choose(config, corpus.label_space, accelerator)
  for line in (choice.what, choice.why):
    logging.info('auto: %s', line)
  check_config(choice.config)
  return choice.config, corpus


def choose(config: Config, space: LabelSpace, accelerator: bool) -> _Choice:
  """Chooses a model by sizes and devices (GPU or TPU); see resolve."""
  has = f'{space.n_train} training documents, {space.n_trained} labels'
  device = 'an accelerator' if accelerator else 'no accelerator'
  sparse, encoder = config.data.sparse, config.model.encoder
  if encoder and (sparse or not accelerator):
    device += f' (so {encoder} is not used)'
  elif encoder:
    return _fine_tuned(config, space, f'{has}, {device}, an encoder')
  return _linear(config, space, f'{has}, {device}')


def _resumed(config: Config, saved: Config) -> Config:
  """Returns a config with the model of a saved run, and with its own fields."""
  model, tokens, before = saved.model, config.data.tokens, saved.data.tokens
  if isinstance(tokens, AutoTfidfConfig) and isinstance(before, TfidfConfig):
    tokens = tokens.completed(before.max_ngram)
  elif not isinstance(tokens, _READS) or not isinstance(before, _READS):
    tokens = before
  encoder = config.model.encoder
  if encoder and model.has_steps:
    own = dataclasses.replace(model.encoder, folder=encoder)
    model = dataclasses.replace(model, encoder=own)
  return _with(config, model, saved.train, tokens)


def linear_parts(
  n_train: int, n_labels: int, tokens: TokensConfig
) -> tuple[Model, TrainConfig, TokensConfig]:
  """Returns a linear model, or a label tree if there are many labels."""
  if not isinstance(tokens, _READS):
    auto = tokens if isinstance(tokens, AutoTfidfConfig) else AutoTfidfConfig()
    tokens = auto.completed(2 if n_train >= _PAIRS_FROM else 1)
  if _one_per_label(n_train, n_labels):
    return LinearModel(), LinearTrain(), tokens
  # own_linear has the same two trees.
  if n_train < _SMALL_FROM:
    wide = ClusterTree(arity=100, max_leaf=100)
    return TreeModel(tree=wide), TreeTrain(threshold=0.01), tokens
  return TreeModel(), TreeTrain(), tokens


def _one_per_label(n_train: int, n_labels: int) -> bool:
  return n_train * n_labels <= _ONE_VS_ALL


def _linear(config: Config, space: LabelSpace, has: str) -> _Choice:
  """Chooses a linear model, or a tree or a stack if there are many labels."""
  model, train, tokens = linear_parts(
    space.n_train, space.n_trained, config.data.tokens
  )
  reads, why = 'the features of the corpus', has
  if isinstance(tokens, TfidfConfig):
    reads = f'TF-IDF of {tokens.min_ngram} to {tokens.max_ngram} words'
    if tokens.max_ngram == 1:
      reads = 'TF-IDF of single words'
    if tokens.max_ngram != getattr(config.data.tokens, 'max_ngram', 0):
      pairs = 'pay' if tokens.max_ngram > 1 else 'need more documents'
      why = f'{has}: word pairs {pairs}'
  is_flat = _one_per_label(space.n_train, space.n_trained)
  if not is_flat and _fits_stack(config, space):
    return _stack(config, tokens, reads, why)
  chosen = _with(config, model, train, tokens)
  what = 'TreeModel, a label tree of linear classifiers'
  because = 'a tree saves most of the time with so many labels'
  if is_flat:
    what = 'LinearModel, one linear classifier per label'
    because = 'so few labels need no tree'
  return _Choice(chosen, f'{what}, over {reads}', f'{why}, and {because}')


def _fits_stack(config: Config, space: LabelSpace) -> bool:
  """Returns whether a stack can be trained in about an hour on two cores."""
  enough = _STACK_FROM <= space.n_train <= _STACK_TO
  return enough and len(space) <= _STACK_LABELS and not config.data.sparse


def _stack(
  config: Config, tokens: TfidfConfig, reads: str, why: str
) -> _Choice:
  proposers = tuple(
    dataclasses.replace(proposer, tokens=tokens)
    if isinstance(proposer.tokens, TfidfConfig)
    else proposer
    for proposer in text_proposers()
  )
  return _Choice(
    _with(config, StackModel(proposers), StackTrain(), tokens),
    'StackModel, a label tree, nearest documents and label names, whose labels '
    f'boosted trees rank, over {reads}',
    f'{why}, and there are enough documents to learn from all of them',
  )


def _fine_tuned(config: Config, space: LabelSpace, has: str) -> _Choice:
  """Chooses a pretrained encoder; its head reads names if they are needed."""
  # These modules load flax, which linear models do not need.
  from xjax.models.neural.neural_model import NeuralModel
  from xjax.networks.encoders.bert import BertConfig
  from xjax.networks.encoders.encoder import NoEmbedding
  from xjax.networks.heads.head import DescriptorConfig
  from xjax.networks.heads.ova import OneVsAllConfig
  from xjax.networks.heads.unified import UnifiedConfig
  from xjax.networks.pooling import ClsConfig
  from xjax.train.neural_train import NeuralTrain, Schedule
  from xjax.train.optimizer_config import AdamW

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
  unused = ''
  if config.data.tokens != AutoTfidfConfig():
    unused = '; config.data.tokens is not used, as the encoder has its own'
  return _Choice(
    _with(config, model, train, tokens),
    f'NeuralModel, {config.model.encoder} with {what}',
    f'{has}; {why}{unused}',
  )


def _named(space: LabelSpace) -> bool:
  names = space.labels[: space.n_trained].names
  return 2 * sum(1 for name in names if name) > space.n_trained


def _with(
  config: Config,
  model: Model,
  train: TrainConfig,
  tokens: TokensConfig,
) -> Config:
  data = dataclasses.replace(config.data, tokens=tokens)
  return dataclasses.replace(config, data=data, model=model, train=train)
