"""Builds the levels of clusters that a run goes down, and trains a level."""

import dataclasses

import numpy as np

from xjax.config.run import Config
from xjax.core.distributed import barrier, is_host0
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.data.formats.draft import TRAIN
from xjax.data.schema import Corpus
from xjax.data.text.tfidf import Tfidf
from xjax.run.predictor import Predictor
from xjax.run.stages.level_corpus import level_corpus
from xjax.run.stages.stage import train_stage
from xjax.score.trees.contract import TreeData
from xjax.score.trees.levels import LabelLevels, load_levels, save_levels
from xjax.score.trees.levels_config import LevelsConfig
from xjax.train.preemption import Preemption
from xjax.train.sparse_inputs import SplitTexts, TextInputs
from xjax.train.workdir import Workdir


def keep_levels(
  levels: LevelsConfig, config: Config, corpus: Corpus, folder: Workdir
) -> LabelLevels:
  """Returns the levels of a run. They are built and saved if absent.

  Args:
    levels: the tree, and where it is cut.
    config: config of the run.
    corpus: corpus of the run.
    folder: workdir of the run.

  Raises:
    ConfigError: the tree cannot be cut to the sizes.
    DataError: the file of levels is damaged.
  """
  if is_host0() and not folder.levels.exists():
    with Progress('building the label tree'):
      built = levels.cut(_tree_data(levels, config, corpus))
    with folder.recording(folder.levels):
      save_levels(folder.levels, built)
  barrier('xjax:levels')
  return saved_levels(folder)


def saved_levels(folder: Workdir) -> LabelLevels:
  """Reads the levels of a run.

  Raises:
    DataError: the file is missing or damaged.
  """
  levels = load_levels(folder.levels)
  folder.check(folder.levels)
  return levels


def train_level(
  config: Config,
  stage: Workdir,
  corpus: Corpus,
  levels: LabelLevels,
  preemption: Preemption,
  costs: Ragged | None = None,
) -> Predictor:
  """Trains the model of the level above the labels, or resumes its training.

  Args:
    config: config of a run with LevelShortlist.
    stage: folder of the model.
    corpus: corpus of the run.
    levels: at least two levels; the last one has the labels of the corpus.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.
    costs: how much each gold label of the split train counts; None stands for
      1.

  Returns:
    The best model of the level, whose labels are the clusters.

  Raises:
    As train_stage.
  """
  clusters, sums = level_corpus(corpus, levels, costs)
  if is_host0() and not stage.levels.exists():
    stage.path.mkdir(parents=True, exist_ok=True)
    inside = np.ones(levels.sizes[-2], bool)
    with stage.recording(stage.levels):
      save_levels(stage.levels, LabelLevels.of(levels.parents[:-1], inside))
  barrier('xjax:above')
  above = level_config(config)
  return train_stage(above, stage, clusters, preemption, costs=sums)


def level_config(config: Config) -> Config:
  """Returns the config of the stage that ranks the clusters above the labels.

  Args:
    config: config of a run with LevelShortlist.
  """
  shortlist, train = config.model.shortlist, config.train
  sizes = shortlist.levels.sizes[:-1]
  above = dataclasses.replace(
    shortlist,
    levels=dataclasses.replace(shortlist.levels, sizes=sizes),
    steps=shortlist.steps[:-1],
  )
  steps = shortlist.steps[-1]
  train = dataclasses.replace(
    train, steps=steps, warmup=min(train.warmup, steps)
  )
  model = dataclasses.replace(config.model, shortlist=above)
  return dataclasses.replace(config, model=model, train=train)


def _tree_data(
  levels: LevelsConfig, config: Config, corpus: Corpus
) -> TreeData:
  """Computes the TF-IDF features of the split train, and the tree's data."""
  split, space = corpus.splits[TRAIN], corpus.label_space
  texts = Tfidf.fit(SplitTexts(split.documents), levels.tokens)
  rows = TextInputs(config, texts).split_rows(split)
  gold = split.gold.keep(np.asarray(split.gold.values < space.n_trained))
  workers = max(1, config.data.workers)
  return TreeData(
    space, gold, rows, split.documents, texts, config.seed, workers
  )
