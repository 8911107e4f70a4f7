"""Fits X-Transformer: a matcher of clusters, and classifiers of labels."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools

from xjax.data.formats.draft import TRAIN
from xjax.data.label_trees.label_tree import LabelTree
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.label_trees.tree_config import TreeData
from xjax.data.schema import Corpus, Document, Split
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.models.config import Config
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.part_files import PartFiles
from xjax.models.linear.sparse_fit import SparseFit, score_kind
from xjax.models.load import JUDGED
from xjax.models.predictor import Predictor
from xjax.models.sparse_inputs import TextInputs
from xjax.models.staged.level_stages import (
  RunLevels,
  level_corpus,
  saved_levels,
)
from xjax.models.staged.matched_scorer import MatchedScorer
from xjax.models.staged.proposals import proposed_nodes, saved_nodes
from xjax.models.staged.proposed_batches import ProposedBatches
from xjax.models.staged.proposer import ClusterMap, Proposer
from xjax.models.staged.stage import Stage, load_stage
from xjax.models.staged.stages_config import MatchedModel
from xjax.models.staged.vectors import DocumentVectors, JoinedInputs
from xjax.models.trees.training import GivenClusters, fit_tree
from xjax.models.trees.tree_search import TreeSearch
from xjax.models.workdir import Workdir
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

MATCHER = 'matcher'  # the stage that proposes clusters
_MODEL = 'config.model'


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedInputs(JoinedInputs):
  """Makes batches that also have the matcher's batches.

  The features of a document are its TF-IDF features and its vector.

  Attributes:
    proposer: proposes clusters.
  """

  proposer: Proposer

  @property
  def stages(self) -> dict[str, Predictor]:
    """Returns the matcher."""
    return {MATCHER: self.vectors.predictor}

  def split_batches(self, split: Split) -> ProposedBatches:
    """Returns batches for judging a split; each document occurs once."""
    return self._proposed(super().split_batches(split), split.documents)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> ProposedBatches:
    """Returns batches for predicting labels; each document occurs once."""
    return self._proposed(super().text_batches(documents, features), documents)

  def _proposed(self, batches, documents) -> ProposedBatches:
    return ProposedBatches(batches, documents, self.vectors.predictor)


@dataclasses.dataclass(frozen=True)
class MatchedFit(SparseFit):
  """Fits a matcher and linear classifiers in the workdir of a run."""

  models = (MatchedModel,)

  @classmethod
  def saved_inputs(
    cls, folder: Workdir, config: Config, n_features: int
  ) -> MatchedInputs:
    """Returns the inputs of a run whose stages are complete."""
    texts = super().saved_inputs(folder, config, n_features)
    matcher, levels = load_stage(folder, MATCHER), saved_levels(folder)
    return _inputs_of(config, texts, matcher, levels)

  @classmethod
  def scorer(
    cls, config: Config, searches: list[TreeSearch], inputs: MatchedInputs
  ) -> MatchedScorer:
    """Returns the scorer of labels of proposed clusters."""
    return MatchedScorer(searches[0], score_kind(config), inputs.proposer)

  @functools.cached_property
  def _levels(self) -> RunLevels:
    """The levels of the run; they are built only once."""
    levels, path = self.config.model.levels, f'{_MODEL}.levels'
    return RunLevels(levels, self.config, self.workdir, path)

  @functools.cached_property
  def _matcher(self) -> Stage:
    """The stage that proposes clusters."""
    config, path = self.config, f'{_MODEL}.matcher'
    return Stage(config.model.matcher, config, self.workdir, MATCHER, path)

  def check_start(self) -> None:
    """Checks the number of processes, and that the matcher can start.

    Raises:
      ConfigError: there are several processes, or the matcher cannot start.
    """
    super().check_start()
    self._matcher.check_start()

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that levels can be built, and the matcher can be trained.

    Raises:
      ConfigError, DataError: no label has training documents, the tree cannot
        be cut to the levels, or the matcher cannot be trained.
    """
    super().check_corpus(corpus, prior)
    clusters, _ = level_corpus(corpus, self._levels.of(corpus))
    self._matcher.check_corpus(clusters)

  def inputs(self, corpus: Corpus, preemption: Preemption) -> MatchedInputs:
    """Returns the inputs; the matcher is trained if absent."""
    config, folder = self.config, self.workdir
    texts = super().inputs(corpus, preemption)
    levels = self._levels.keep(corpus)
    clusters, _ = level_corpus(corpus, levels)
    matcher = self._matcher.train(clusters, preemption)
    if config.train.matched:
      proposer = Proposer(matcher, config.train.matched)
      proposed_nodes(matcher, proposer, folder, corpus.splits[TRAIN])
    return _inputs_of(config, texts, matcher, levels)

  def record_search(self) -> None:
    """Writes search.json. If it has changed, the model will be judged again."""
    self.workdir.record_search({'kept': self.config.model.kept}, JUDGED)

  def train_file(
    self,
    number: int,
    data: TreeData,
    parts: PartFiles,
    between: Callable[[], None],
  ) -> tuple[LabelTree, BlockWeights]:
    """Trains the classifiers of all labels."""
    del number  # there is one file
    train, levels = self.config.train, saved_levels(self.workdir)
    tree = LabelTree.of_clusters(levels.parents[-1], levels.sizes[-2])
    return tree, fit_tree(
      data.rows,
      data.gold,
      tree,
      train.solver,
      seed=self.config.seed,
      threshold=train.threshold,
      workers=train.workers,
      parts=parts,
      between=between,
      matcher=self._matched(len(data.gold), levels) if train.matched else None,
      above=False,
    )

  @staticmethod
  def describe(tree: LabelTree) -> str:
    return str(tree)

  def _matched(self, n: int, levels: LabelLevels) -> GivenClusters:
    """Returns the clusters that are proposed for the N training documents."""
    return GivenClusters(saved_nodes(self.workdir, n, levels.sizes[-2]))


def _inputs_of(
  config: Config, texts: TextInputs, matcher: Predictor, levels: LabelLevels
) -> MatchedInputs:
  vectors = DocumentVectors.of(matcher, config.model.weight)
  clusters = ClusterMap(levels.children[-1], levels.parents[-1])
  proposer = Proposer(matcher, config.model.kept, clusters)
  return MatchedInputs(config, texts.featurise, vectors, proposer)
