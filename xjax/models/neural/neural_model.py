"""Defines the neural model: a TextModel that ranks labels, and its training."""

from collections.abc import Callable, Iterator
import dataclasses
import pathlib
import time
from typing import Any, Self

from absl import logging
from flax import nnx
import jax

from xjax.core.config_part import field, kinds_that
from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import DATA, make_mesh, share_of
from xjax.core.mesh_config import MeshConfig
from xjax.core.processes.lock import is_locked
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import Vocabulary, split_words
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  SubwordsConfig,
  TokensConfig,
  WordsConfig,
)
from xjax.models.contract import (
  DEV,
  SCORES_NAMES,
  SCORES_TRAINED,
  Config,
  Model,
  Run,
  StageToTrain,
)
from xjax.models.neural.level_stages import RunLevels, saved_levels
from xjax.models.neural.neural_plan import (
  check_dev_metric,
  check_hierarchy,
  check_label_rows,
  check_mesh,
  check_model,
  check_start,
  check_vectors,
  label_rows_divide,
  plan_neural,
)
from xjax.models.neural.neural_scorer import NeuralScorer, why_fixed
from xjax.models.neural.neural_training import NeuralTraining
from xjax.models.neural.proposals import check_proposals, fit_shortlist
from xjax.models.neural.proposer import Proposer
from xjax.models.neural.shortlist_scorer import ShortlistScorer
from xjax.models.neural.shortlists import AllLabels, ShortlistConfig
from xjax.models.scorer import Scorer
from xjax.networks.encoders.encoder import EncoderConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.networks.pretrained.descriptor_encoder import all_words
from xjax.networks.text_model import TextModelConfig
from xjax.train.batches.inputs import TokenReader, fit_vocabulary
from xjax.train.checkpoint import read_params, saved_params
from xjax.train.initial.descriptors import encoded_labels
from xjax.train.initial.pretrained_encoder import keep_encoder
from xjax.train.neural_train import NeuralTrain
from xjax.train.parameters import from_paths
from xjax.train.saved_steps import (
  best_step,
  check_checkpoint,
  complete_steps,
  keep_best,
  read_meta,
)
from xjax.train.workdir import Workdir

_TRIES = 5  # a second apart
_FITTED = 'fitted'  # what fit keeps for open (Run.made)


@dataclasses.dataclass
class NeuralModel(TextModelConfig, Model):
  """Chooses a neural network: its embedding, encoder, pooling and head."""

  reads = (WordsConfig, SubwordsConfig, FeatureFilesConfig)
  trained_by = NeuralTrain
  has_steps = True

  shortlist: ShortlistConfig = field(
    AllLabels, 'The labels of a document that are scored.'
  )

  @classmethod
  def pooled(cls) -> Self:
    """Returns a model with one vector of a document, for stages."""
    return cls(pooling=SelfAttentionConfig(), head=OneVsAllConfig())

  def token_faults(self, config: Any) -> Iterator[str]:
    tokens, encoder = config.data.tokens, self.encoder
    kind = f'config.data.tokens={type(tokens).__name__}(...)'
    if tokens.by_zone != encoder.by_zone:
      yield (
        f'config.data.tokens.by_zone={tokens.by_zone}: must be True with '
        f'config.model.encoder={kinds_that("by_zone", EncoderConfig)}, and '
        'False with every other encoder'
      )
    if not isinstance(tokens, self.embedding.reads):
      yield (
        f'{kind}: config.model.embedding={type(self.embedding).__name__}(...) '
        f'needs config.data.tokens={self.embedding.reads.__name__}(...)'
      )
    if tokens.pretrained != encoder.pretrained:
      tokens_kinds = kinds_that('pretrained', TokensConfig)
      encoders = (
        f'config.model.encoder={kinds_that("pretrained", EncoderConfig)}'
      )
      yield (
        f'{kind}: config.data.tokens={tokens_kinds} and {encoders} can only be '
        'used together'
      )

  def check(self, corpus: Corpus, run: Run) -> None:
    config = run.config
    check_mesh(config, make_mesh(config.mesh))
    check_start(run)
    split, space = corpus.split('train'), corpus.label_space
    if config.data.tokens.dense:
      check_vectors(self, corpus, config)
    # Drawn only to raise its errors before the run writes its first file.
    self.head.draw_hidden(space.train_counts, config.seed)
    self.head.check_labels(self.scored_labels(space))
    if self.reads_parents:
      check_hierarchy(self, space)
    check_proposals(corpus, run)
    levels = None
    if self.head.levels is not None:
      levels = _head_levels(run).of(corpus)
      self.head.check_gold(levels, corpus.trained_gold, split.ids)
    # A resumed run passed this check when it was new.
    if not run.folder.config.exists():
      check_model(config, space, levels)
    if DEV in corpus.splits:
      check_dev_metric(corpus, config)
    elif is_host0():
      logging.info(
        'no dev split: training does not stop early, and the last checkpoint '
        'is judged'
      )

  def fit(self, corpus: Corpus, run: Run) -> None:
    config, folder = run.config, run.folder
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = keep_encoder(self, config.data, corpus.split('train'), folder)
    else:
      vocab = _vocabulary(run, corpus)
    levels = _head_levels(run).keep(corpus) if self.head.levels else None
    proposer, lists = fit_shortlist(corpus, run)
    mesh, space = make_mesh(config.mesh), corpus.label_space
    scorer = _scorer(run, space, vocab, mesh, levels, proposer)
    parts = run, corpus, scorer, proposer, lists, levels
    end = NeuralTraining(*parts).train()
    best = keep_best(folder, end.step, end.best_step)
    like = scorer.plan.abstract.params
    params = read_params(folder.checkpoints, best, like)
    scorer.params, scorer.step = from_paths(like, params), best
    # Opening the run now needs no new programs.
    run.cached_values[_FITTED] = scorer

  def open(self, run: Run) -> Scorer:
    """Opens the checkpoint of run.step; None: the best, or else the newest."""
    # Only once: later calls read the files, as another process does.
    if run.step is None and _FITTED in run.cached_values:
      return run.cached_values.pop(_FITTED)
    config, folder, space = run.config, run.folder, run.label_space()
    if config.data.tokens.dense:
      vocab = None
    elif config.data.tokens.pretrained:
      vocab = folder.subwords()
    else:
      vocab = folder.vocabulary()
    mesh = _present_mesh(config)
    proposer = self.shortlist.open(run)
    levels = saved_levels(run) if self.head.levels else None
    scorer = _scorer(run, space, vocab, mesh, levels, proposer)
    like = scorer.plan.abstract.params
    scorer.step, scorer.params = _read_best(folder, like, run.step)
    return scorer

  def search_settings(self) -> dict[str, Any]:
    if not self.shortlist.stages:
      return {}
    combination, weight = self.shortlist.combination
    return {'combination': combination.value, 'prior': weight}

  def reads_names(self, config: Config) -> bool:
    return not why_fixed(config)

  def about_unseen(self, config: Config) -> str:
    del config
    return SCORES_NAMES if self.head.describes else SCORES_TRAINED

  def steps(self, run: Run) -> tuple[int, int]:
    folder = run.folder.checkpoints
    newest = complete_steps(folder)[-1]
    best = read_meta(folder, newest)['best_step']
    return newest, newest if best is None else best

  def size(self, run: Run) -> int:
    params = saved_params(run.folder.checkpoints, self.steps(run)[0])
    return sum(x.size * x.dtype.itemsize for x in params.values())

  def trained_stages(self, config: Config) -> tuple[StageToTrain, ...]:
    return self.shortlist.trained_stages(config)


def _scorer(
  run: Run,
  space: LabelSpace,
  vocab: Vocabulary | Subwords | None,
  mesh: jax.sharding.Mesh,
  levels: LabelLevels | None,  # of clusters, if the head has levels
  proposer: Proposer | None,  # None if all labels are scored
) -> NeuralScorer:
  """Returns the scorer of a run, whose parameters are set later."""
  config, architecture = run.config, run.folder.architecture()
  dim = config.model.embedding.dim if config.data.tokens.dense else 0
  data = mesh.shape[DATA]
  size = -(-config.eval.batch_size // data) * data
  reader = TokenReader(config.data, vocab, dim, size, share_of(mesh))
  plan = plan_neural(
    config, space, reader.vocab_size, mesh, architecture, levels
  )
  parts = run, plan, mesh, config.model.scored_labels(space), reader
  return ShortlistScorer(*parts, proposer) if proposer else NeuralScorer(*parts)


def _head_levels(run: Run) -> RunLevels:
  levels = run.config.model.head.levels
  return RunLevels(levels, run, 'config.model.head.levels')


def _read_best(
  folder: Workdir, like: nnx.State, step: int | None
) -> tuple[int, nnx.State]:
  """Reads the step and parameters of the best checkpoint, or of a given one.

  While the run trains, a better checkpoint may replace the one that is read.
  """
  # All processes must read equally often, so several processes read once.
  trains = jax.process_count() == 1 and is_locked(folder.path)
  for left in reversed(range(_TRIES if trains else 1)):
    try:
      if step is not None:
        check_checkpoint(folder, step)
      chosen = best_step(folder) if step is None else step
      if chosen is None:
        raise DataError(f'{folder.checkpoints}: no complete checkpoint')
      params = read_params(folder.checkpoints, chosen, like)
      return chosen, from_paths(like, params)
    except Exception:  # Orbax raises any type if a file vanishes
      if not left:
        raise
      time.sleep(1)
  raise AssertionError  # the last try returns or raises


def _present_mesh(config: Config) -> jax.sharding.Mesh:
  """Returns a mesh of this machine's devices for a loaded model.

  It is the mesh of the run if the devices fit it. Otherwise they share the
  documents of a batch; the last devices are left out if label rows do not
  divide evenly among them.
  """
  devices = jax.devices()
  if jax.process_count() > 1:
    check_label_rows(config, len(devices))
  while not label_rows_divide(config, len(devices)):
    devices = devices[:-1]
  try:
    return make_mesh(config.mesh, devices)
  except ConfigError:
    return make_mesh(MeshConfig(slices=1), devices)


def _vocabulary(run: Run, corpus: Corpus) -> Vocabulary:
  """Reads the vocabulary of a run; builds and saves it first if absent."""

  def build() -> Callable[[pathlib.Path], None]:
    vocab = first_vocabulary(run.config, corpus)
    logging.info('vocabulary: %d words', len(vocab.words))
    return vocab.save

  return run.once(run.folder.vocab, build, Vocabulary.load)


def first_vocabulary(config: Config, corpus: Corpus) -> Vocabulary:
  """Builds the vocabulary of a new run from the train split.

  It also has the words of all names that the head or the views read.
  """
  vocab = fit_vocabulary(corpus.split('train'), config.data)
  space, model = corpus.label_space, config.model
  if model.head.describes:
    vocab = vocab.with_words(all_words(space.labels))
  if model.head.describes and model.reads_parents:
    vocab = vocab.with_words(all_words(model.hierarchy(space).labels))
  if model.views.reads_parents:
    names = (label.name for label in encoded_labels(space))
    vocab = vocab.with_words(w for name in names for w in split_words(name))
  return vocab
