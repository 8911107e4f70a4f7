"""Chooses the model of a run by its corpus."""

from collections.abc import Callable
import dataclasses
from typing import Any

from absl import logging

from xjax.core.errors import UserError
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.text.words import lacks_spaces
from xjax.data.tokens_config import (
  Analyzer,
  AutoTfidfConfig,
  GivenFeaturesConfig,
  TfidfConfig,
  TokensConfig,
)
from xjax.models.config_check import check_config
from xjax.models.contract import Config, Model, Run, load_config
from xjax.models.features import DocumentTexts
from xjax.models.stack.boosted import load_lightgbm
from xjax.models.stack.proposers import text_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import (
  LinearModel,
  LinearTrain,
  TreeModel,
  TreeTrain,
)
from xjax.train.train_config import TrainConfig
from xjax.train.workdir import Workdir

# One classifier per label is trained up to this product of the numbers of
# documents and labels. This takes less than a minute for texts of 300 words.
_ONE_VS_ALL = 20_000_000
# Word pairs help only if there are many documents to learn their weights from.
_PAIRS_FROM = 5_000
# From here, the weights of a large tree would take too much memory.
_SMALL_FROM = 100_000
# With fewer documents, the ranker of a stack has too little to learn from; with
# more, a stack takes more than an hour.
_STACK_FROM, _STACK_TO = 500, 100_000
_STACK_LABELS = 100_000
# Minutes of a stack depend most on documents: 5 for 37,000 with 136 labels, 4
# for 14,000 with 20,000 labels, but more for long texts.
_STACKED_PER_MINUTE = 2500
_READS = TfidfConfig, GivenFeaturesConfig  # what linear models read


@dataclasses.dataclass(frozen=True)
class _ModelChoice:
  config: Config
  what: str  # names the model
  why: str  # says why it fits


def resolve(
  config: Config, workdir: Workdir, log: bool = True
) -> tuple[Config, Corpus | None]:
  """Replaces AutoModel in a config; also returns the corpus if it was read.

  If the workdir has a run, its model is taken. The fields that the config sets
  stay, so that the run refuses those that differ. Without a run, a model that
  suits the corpus is chosen, and two lines are logged: the model and the
  reason.
  """
  if not config.model.chooses:
    return config, None
  if workdir.config.exists():
    return _resumed(config, load_config(workdir.config)), None
  leave_out = config.eval.leave_out
  corpus = load_corpus(config.data, config.seed, leave_out=leave_out, log=log)
  corpus.split(TRAIN)  # refuses a corpus without it

  def check(stack: Config) -> None:
    stack.model.check(corpus, Run(stack, workdir))

  choice = choose(config, corpus.label_space, analyzer_of(corpus), check)
  for line in choice.what, choice.why:
    logging.info('auto: %s', line)
  check_config(choice.config)
  if choice.config.data.facts != config.data.facts:
    corpus = None  # it has facts, but the model must not read them
  return choice.config, corpus


def _resumed(config: Config, saved: Config) -> Config:
  """Returns a config with the model of a saved run, and with its own fields."""
  tokens, before = config.data.tokens, saved.data.tokens
  if isinstance(tokens, AutoTfidfConfig) and isinstance(before, TfidfConfig):
    tokens = tokens.completed(before.max_ngram, before.analyzer)
  elif not isinstance(tokens, _READS) or not isinstance(before, _READS):
    tokens = before
  return _with(config, saved.model, saved.train, tokens)


def analyzer_of(corpus: Corpus) -> Analyzer:
  """Returns of what n-grams consist that suit the texts of train."""
  texts = DocumentTexts(corpus.split(TRAIN).documents)
  return Analyzer.CHARACTERS if lacks_spaces(texts) else Analyzer.WORDS


def linear_parts(
  n_train: int,
  n_labels: int,
  tokens: TokensConfig,
  analyzer: Analyzer = Analyzer.WORDS,
) -> tuple[Model, TrainConfig, TokensConfig]:
  """Returns a linear model, or a label tree if there are many labels."""
  if not isinstance(tokens, _READS):
    auto = tokens if isinstance(tokens, AutoTfidfConfig) else AutoTfidfConfig()
    tokens = auto.completed(2 if n_train >= _PAIRS_FROM else 1, analyzer)
  if _one_per_label(n_train, n_labels):
    return LinearModel(), LinearTrain(), tokens
  # own_linear has the same two trees.
  if n_train < _SMALL_FROM:
    wide = ClusterTree(arity=100, max_leaf=100)
    return TreeModel(tree=wide), TreeTrain(threshold=0.01), tokens
  return TreeModel(), TreeTrain(), tokens


def _one_per_label(n_train: int, n_labels: int) -> bool:
  return n_train * n_labels <= _ONE_VS_ALL


def choose(
  config: Config,
  space: LabelSpace,
  analyzer: Analyzer = Analyzer.WORDS,
  check: Callable[[Config], Any] = lambda _: load_lightgbm(),
) -> _ModelChoice:
  """Chooses a stack, or else a linear model or a tree.

  `check` raises a UserError if the stack of a config cannot be trained.
  """
  n, n_labels = space.n_train, space.n_trained
  model, train, tokens = linear_parts(n, n_labels, config.data.tokens, analyzer)
  chosen = _with(config, model, train, tokens)
  what = 'TreeModel, a label tree of linear classifiers'
  why = 'a tree saves most of the time with so many labels'
  if _one_per_label(n, n_labels):
    what = 'LinearModel, one linear classifier per label'
    why = 'so few labels need no tree'
  if _fits_stack(config, space):
    model = StackModel(text_proposers(tokens))
    stack = _with(config, model, StackTrain(), tokens)
    try:
      check(stack)
    except UserError as error:
      why = f'a stack would be more exact, but {error}'
    else:
      minutes = plural(max(1, round(n / _STACKED_PER_MINUTE)), 'minute')
      chosen, what = stack, 'StackModel, boosted trees that rank labels'
      why = (
        'there are enough documents to learn which of the labels are right '
        f'that simpler models propose; it takes about {minutes} on two cores, '
        'and own_linear a tenth of that'
      )
  if config.data.facts and not chosen.data.facts:
    why += '; it reads no facts'
  reads = 'the features of the corpus'
  if isinstance(tokens, TfidfConfig):
    reads = f'TF-IDF of {tokens.units}'
    if tokens.analyzer is analyzer is Analyzer.CHARACTERS:
      reads += ', since most words are in scripts without spaces'
  has = f'{n} training documents, {n_labels} labels'
  return _ModelChoice(chosen, f'{what}, over {reads}', f'{has}: {why}')


def _fits_stack(config: Config, space: LabelSpace) -> bool:
  """Returns whether a stack can be trained in about an hour on two cores."""
  enough = _STACK_FROM <= space.n_train <= _STACK_TO
  return enough and len(space) <= _STACK_LABELS and not config.data.sparse


def _with(
  config: Config, model: Model, train: TrainConfig, tokens: TokensConfig
) -> Config:
  data = dataclasses.replace(config.data, tokens=tokens)
  if data.facts and not model.reads_facts:
    data = dataclasses.replace(data, facts=())
  return dataclasses.replace(config, data=data, model=model, train=train)
