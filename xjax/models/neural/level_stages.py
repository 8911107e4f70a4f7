"""Builds the levels of clusters that a run goes down, and trains a level."""

import dataclasses
import functools
import hashlib

import numpy as np
from scipy import sparse

from xjax.core.progress import Progress
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.label_tree import TreeInputs
from xjax.data.label_trees.levels import LabelLevels, LevelsConfig
from xjax.data.schema import Corpus, Label, Labels, LabelSpace
from xjax.data.text.tfidf import Tfidf
from xjax.judge.predictions import labels_sha256
from xjax.models.contract import Config, Run
from xjax.models.features import DocumentTexts, TextFeaturiser
from xjax.models.scorer import Scorer
from xjax.models.stage import Stage

LEVEL = 'level'  # the stage that ranks the clusters of the level above
# What a run gives to the run of the level above (Run.given): how much each gold
# cluster of the split train counts, and the levels.
COSTS, LEVELS = 'costs', 'levels'


@dataclasses.dataclass(frozen=True, eq=False)
class RunLevels:
  """Builds levels once, to be checked before a run writes its first file."""

  settings: LevelsConfig  # the tree, and where it is cut
  run: Run  # may have been given its levels
  path: str  # of the levels in the run's config

  def of(self, corpus: Corpus) -> LabelLevels:
    """Returns the levels, built if not saved, or raises a ConfigError."""
    if self.run.folder.levels.exists():
      return saved_levels(self.run)
    # The levels above are those of the run below, cut off. To build them again
    # could give other clusters.
    if self.run.given.get(LEVELS) is not None:
      return self.run.given[LEVELS]
    if LEVELS not in self.run.cached_values:
      with Progress('building the label tree'):
        data = _tree_data(self.settings, self.run.config, corpus)
        self.run.cached_values[LEVELS] = self.settings.cut(data, self.path)
    return self.run.cached_values[LEVELS]

  def keep(self, corpus: Corpus) -> LabelLevels:
    """Returns the levels, as `of` does. They are saved if absent."""
    path = self.run.folder.levels
    return self.run.once(path, lambda: self.of(corpus).save, LabelLevels.load)


def saved_levels(run: Run) -> LabelLevels:
  """Reads the levels of a run."""
  return run.read(run.folder.levels, LabelLevels.load)


def level_corpus(
  corpus: Corpus, levels: LabelLevels, costs: Ragged | None = None
) -> tuple[Corpus, Ragged]:
  """Returns the corpus of the level above the labels, and costs of clusters.

  A document has a cluster if it has a label of the cluster. The cost says how
  much a gold label of the split train counts, and None stands for 1. A cluster
  counts as the sum over its gold labels. The last of at least two levels has
  the labels.
  """
  parent_L, size = levels.parents[-1], levels.sizes[-2]
  splits, sums = {}, None
  for name, split in corpus.splits.items():
    # Only training reads costs.
    own = costs if name == TRAIN else None
    gold, counts = _above(split.gold, parent_L, own)
    splits[name] = dataclasses.replace(split, gold=gold)
    if name == TRAIN:
      sums = counts
  train = splits[TRAIN].gold
  counts = np.bincount(train.values, minlength=size).astype(np.int32)
  # A warm start takes rows of labels with the same ids. So the ids of clusters
  # are the same only if the clusters are.
  digest = hashlib.sha256(labels_sha256(corpus.label_space.ids).encode())
  digest.update(parent_L.tobytes())
  level, clustering = f'level {len(levels) - 2}', digest.hexdigest()[:12]
  names = (f'{level}, cluster {i} of {clustering}' for i in range(size))
  labels = Labels.of(Label(name, name) for name in names)
  space = LabelSpace(labels, counts, len(train), size)
  changed = dataclasses.replace(corpus, label_space=space, splits=splits)
  return changed, sums


def train_level(
  run: Run,
  name: str,
  corpus: Corpus,  # of the run
  levels: LabelLevels,  # at least two; the last has the labels
  costs: Ragged | None = None,  # of gold labels of the split train
) -> Scorer:
  """Trains the level above the labels, or resumes; returns its best model."""
  clusters, sums = level_corpus(corpus, levels, costs)
  return run.stage(level_run(run, name, levels, sums), clusters)


def level_run(
  run: Run, name: str, levels: LabelLevels, costs: Ragged | None = None
) -> Run:
  """Returns the run of the level above, with the costs of gold clusters."""
  given = {COSTS: costs, LEVELS: levels.above_labels()}
  return run.sub(name, level_config(run.config), given)


def level_config(config: Config) -> Config:
  """Returns the config of the stage that ranks clusters above the labels."""
  shortlist, train = config.model.shortlist, config.train
  sizes = shortlist.levels.sizes[:-1]
  above = dataclasses.replace(
    shortlist,
    # The stage of the level above has a level less, and so on up to the first.
    levels=dataclasses.replace(shortlist.levels, sizes=sizes),
    steps=shortlist.steps[:-1],
  )
  steps = shortlist.steps[-1]
  # Clusters have other slices of labels than the labels have.
  best_metric = f'all/{train.best_metric.partition("/")[2]}'
  train = dataclasses.replace(
    train, steps=steps, warmup=min(train.warmup, steps), best_metric=best_metric
  )
  model = dataclasses.replace(config.model, shortlist=above)
  return dataclasses.replace(config, model=model, train=train)


def _tree_data(
  levels: LevelsConfig, config: Config, corpus: Corpus
) -> TreeInputs:
  split, space = corpus.splits[TRAIN], corpus.label_space
  texts = Tfidf.fit(DocumentTexts(split.documents), levels.tokens)
  rows = TextFeaturiser(config.data, texts).in_chunks(
    Documents.of(split.documents), f'features of {split.name}'
  )
  workers = max(1, config.data.workers)
  return TreeInputs(
    space, corpus.trained_gold, rows, texts, config.seed, workers
  )


def _above(
  gold: Ragged, parent_L: np.ndarray, costs: Ragged | None
) -> tuple[Ragged, Ragged]:
  """Returns the clusters of gold labels, and the sums of the labels' costs."""
  (known,) = np.nonzero(parent_L != PAD)
  n = max(len(parent_L), 1 + gold.values.max(initial=0))
  above = sparse.csr_array(
    (np.ones(len(known), np.int32), (known, parent_L[known])),
    (n, 1 + parent_L.max(initial=0)),
  )
  cost = np.ones(len(gold.values), np.int32) if costs is None else costs.values
  rows = sparse.csr_array((cost, gold.values, gold.indptr), (len(gold), n))
  # A document with several labels of a cluster has the cluster once.
  sums = rows @ above
  sums.sort_indices()
  starts = sums.indptr.astype(np.int64)
  clusters = Ragged(starts, sums.indices.astype(np.int32))
  return clusters, Ragged(starts, sums.data.astype(np.int32))


@dataclasses.dataclass(frozen=True, eq=False)
class ClustersStage(Stage):
  """Trains an encoder that learns clusters of labels, and not the labels."""

  @functools.cached_property
  def _labels_run(self) -> Run:
    config = self.settings.run_config(self.run.config)
    return dataclasses.replace(self.run, config=config)

  @functools.cached_property
  def _levels(self) -> RunLevels:
    levels = self.settings.model.shortlist.levels
    path = 'config.model.shortlist.levels'
    return RunLevels(levels, self._labels_run, path)

  @functools.cached_property
  def config(self) -> Config:
    return level_config(self._labels_run.config)

  def check(self, corpus: Corpus) -> None:
    cut = self.corpus(corpus)
    with self.paths():
      self.check_unchanged()
      levels = self._levels.of(cut)
      clusters, _ = level_corpus(cut, levels)
      run = level_run(self._labels_run, self.name, levels)
      run.config.model.check(clusters, run)

  def train(self, corpus: Corpus) -> Scorer:
    cut = self.corpus(corpus)
    with self.paths():
      levels = self._levels.keep(cut)
      return train_level(self._labels_run, self.name, cut, levels)
