"""Builds the levels of clusters that a run goes down, and reads them again."""

import numpy as np

from xjax.config.run import Config
from xjax.core.distributed import barrier, is_host0
from xjax.core.progress import Progress
from xjax.data.formats.draft import TRAIN
from xjax.data.schema import Corpus
from xjax.data.text.tfidf import Tfidf
from xjax.score.trees.contract import TreeData
from xjax.score.trees.levels import LabelLevels, load_levels, save_levels
from xjax.score.trees.levels_config import LevelsConfig
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
