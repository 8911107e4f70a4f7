"""Makes the shortlists of a run, and the stage that proposes them."""

import dataclasses

import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.progress import Progress, progress
from xjax.core.types import PAD, Ragged
from xjax.data.formats.draft import TRAIN
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.schema import Corpus, Split
from xjax.models.config import Config
from xjax.models.config_json import load_config
from xjax.models.neural.shortlist_scorer import Combination
from xjax.models.predictor import Predictor
from xjax.models.staged.bootstrap import fitted_rows
from xjax.models.staged.level_stages import saved_levels, train_level
from xjax.models.staged.proposed_batches import ShortlistInputs
from xjax.models.staged.proposer import ClusterMap, Proposer
from xjax.models.staged.stage import (
  Stage,
  check_labels,
  check_run,
  check_zones,
  copy_run,
  load_run,
  load_stage,
)
from xjax.models.staged.stages_config import StageShortlist
from xjax.models.staged.vectors import encoded
from xjax.models.workdir import Workdir
from xjax.networks.shortlists import (
  LevelShortlist,
  RankedShortlist,
  RunShortlist,
)
from xjax.train.batches.candidates import TrainShortlists
from xjax.train.batches.inputs import Inputs
from xjax.train.preemption import Preemption

PROPOSER = 'proposer'  # the stage whose labels are ranked again
LEVEL = 'level'  # the stage that ranks the clusters of the level above
_FIELD = 'config.model.shortlist'
_STAGE = f'{_FIELD}.stage'
_NODES = 'nodes'


@dataclasses.dataclass(frozen=True, eq=False)
class Proposals:
  """Holds what a run needs to score shortlists; by default, all labels.

  Attributes:
    stage: name of the stage that proposes labels or clusters.
    predictor: model of this stage; None if no stage proposes anything.
    proposer: makes the shortlists of predictions; None if all labels are
      scored.
    shortlists: makes the shortlists of training documents; None if training
      scores all labels.
    bootstraps: whether the first label rows are fitted to the stage's vectors.
  """

  stage: str = ''
  predictor: Predictor | None = None
  proposer: Proposer | None = None
  shortlists: TrainShortlists | None = None
  bootstraps: bool = False

  @property
  def start(self) -> str:
    """Returns the run from which parameters are taken, or ''."""
    return str(self.predictor.workdir.path) if self.stage == LEVEL else ''

  def inputs(self, inputs: Inputs) -> Inputs:
    """Returns inputs whose batches also have the proposer's batches."""
    if self.predictor is None:
      return inputs
    parts = inputs.config, inputs.vocab, inputs.share
    return ShortlistInputs(*parts, self.stage, self.predictor)


def proposing_stage(config: Config, folder: Workdir) -> Stage | None:
  """Returns the stage of a run with StageShortlist, else None.

  Args:
    config: config of the run.
    folder: workdir of the run.
  """
  shortlist = config.model.shortlist
  if not isinstance(shortlist, StageShortlist):
    return None
  return Stage(shortlist.stage, config, folder, PROPOSER, _STAGE)


def check_shortlist(
  config: Config, folder: Workdir, stage: Stage | None
) -> None:
  """Checks, before the corpus is read, that a run can make its shortlists.

  Args:
    config: config of the run.
    folder: workdir of the run.
    stage: result of proposing_stage.

  Raises:
    ConfigError: there are several processes, the stage cannot start, or the
      other run is missing.
  """
  shortlist = config.model.shortlist
  if not shortlist.proposes:
    return
  if process_count() > 1:
    raise ConfigError(
      f'{_FIELD}={type(shortlist).__name__}(...): can only be used by one '
      'process; start the run on one host'
    )
  copied = folder.stage(PROPOSER).config.exists()
  if stage is not None:
    stage.check_start()
  elif isinstance(shortlist, RunShortlist) and not copied:
    source, _ = check_run(shortlist.workdir, f'{_FIELD}.workdir')
    check_zones(config, source, load_config(Workdir.at(source).config))


def check_proposals(
  config: Config,
  folder: Workdir,
  stage: Stage | None,
  corpus: Corpus,
  levels: LabelLevels | None,
) -> None:
  """Checks that what proposes labels fits a corpus; writes nothing.

  Args:
    config: config of the run.
    folder: workdir of the run.
    stage: result of proposing_stage.
    corpus: corpus of the run.
    levels: the levels of a run with LevelShortlist.

  Raises:
    ConfigError: the stage cannot be trained, the other run has other labels, or
      a training document has more labels than its shortlist.
    DataError: the stage cannot be trained.
  """
  shortlist = config.model.shortlist
  copied = folder.stage(PROPOSER).config.exists()
  if stage is not None:
    stage.check_corpus(corpus)
  elif isinstance(shortlist, RunShortlist) and not copied:
    source, field = shortlist.workdir, f'{_FIELD}.workdir'
    check_labels(source, load_run(source, field), corpus.label_space, field)
  _check_room(config, corpus, levels)


def _check_room(
  config: Config, corpus: Corpus, levels: LabelLevels | None
) -> None:
  """Checks that all gold labels of a document fit on its shortlist.

  Args:
    config: config of the run.
    corpus: corpus of the run.
    levels: the levels of a run with LevelShortlist.

  Raises:
    ConfigError: a training document has more labels; the message names it.
  """
  match shortlist := config.model.shortlist:
    case RankedShortlist(in_training=True):
      lists = TrainShortlists(np.zeros((0, 0), np.int32), shortlist.size)
    case LevelShortlist():
      lists = _level_shortlists(shortlist, levels, None)
    case _:
      return
  field = f'{_FIELD}.{shortlist.room}'
  lists.with_room(corpus.trained_gold, corpus.splits[TRAIN].ids, field)


def new_proposals(
  config: Config,
  folder: Workdir,
  corpus: Corpus,
  preemption: Preemption,
  stage: Stage | None = None,
  costs: Ragged | None = None,
) -> Proposals:
  """Returns the shortlists of a run, and trains the stage that proposes them.

  What an earlier start of the run has finished is read again.

  Args:
    config: config of the run.
    folder: workdir of the run, which has the levels of a LevelShortlist.
    corpus: corpus of the run.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.
    stage: result of proposing_stage.
    costs: how much each gold label of the split train counts; None stands for
      1.

  Raises:
    UserError: the stage cannot be trained or copied.
    Preempted: SIGTERM or Ctrl-C came; another call continues.
  """
  shortlist = config.model.shortlist
  match shortlist:
    case RankedShortlist():
      proposals = _ranked(config, folder, stage, corpus, preemption)
      if not shortlist.lists_in_training:
        return proposals
      shortlists = TrainShortlists(np.zeros((0, 0), np.int32), shortlist.size)
    case LevelShortlist():
      levels = saved_levels(folder)
      shortlists = _level_shortlists(shortlist, levels, costs)
      field = f'{_FIELD}.{shortlist.room}'
      ids = corpus.splits[TRAIN].ids
      shortlists = shortlists.with_room(corpus.trained_gold, ids, field)
      proposals = Proposals()
      if len(levels) > 1:
        proposals = _level(config, folder, corpus, levels, preemption, costs)
    case _:
      return Proposals()
  if isinstance(shortlist, LevelShortlist) and proposals.predictor is not None:
    proposals = dataclasses.replace(proposals, bootstraps=shortlist.bootstrap)
  nodes_NK = _train_nodes(proposals, shortlist, folder, corpus)
  shortlists = dataclasses.replace(shortlists, nodes_NK=nodes_NK)
  return dataclasses.replace(proposals, shortlists=shortlists)


def saved_proposals(config: Config, folder: Workdir) -> Proposals:
  """Reads the stage that proposes the shortlists of a finished run.

  Args:
    config: config of the run.
    folder: workdir of the run.

  Raises:
    DataError: a file of the stage is missing or damaged.
  """
  shortlist = config.model.shortlist
  match shortlist:
    case RankedShortlist():
      return _of_ranked(shortlist, load_stage(folder, PROPOSER))
    case LevelShortlist():
      levels = saved_levels(folder)
      if len(levels) > 1:
        return _of_level(shortlist, load_stage(folder, LEVEL), levels)
  return Proposals()


def first_rows(
  proposals: Proposals, config: Config, corpus: Corpus
) -> tuple[np.ndarray, np.ndarray]:
  """Returns label rows that are fitted to the vectors of the level above.

  Args:
    proposals: the shortlists of the run.
    config: config of the run.
    corpus: corpus of the run.

  Returns:
    kernel_LD, bias_L: the rows and the biases of the trained labels.
  """
  split, workers = corpus.splits[TRAIN], max(1, config.data.workers)
  with Progress('vectors of train'):
    vectors_ND = encoded(proposals.predictor, split.documents)
  lists = proposals.shortlists
  return fitted_rows(
    vectors_ND, corpus.trained_gold, lists, config.seed, workers
  )


def combination_of(config: Config) -> tuple[Combination, float]:
  """Returns how scores are combined with priors, and the weight of priors."""
  match config.model.shortlist:
    case RankedShortlist(prior=weight):
      return Combination.SUM, weight
    case LevelShortlist(chained=True):
      return Combination.PRODUCT, 1.0
  return Combination.SUM, 0.0


def _ranked(
  config: Config,
  folder: Workdir,
  stage: Stage | None,
  corpus: Corpus,
  preemption: Preemption,
) -> Proposals:
  """Trains or copies the model whose labels are ranked again."""
  shortlist = config.model.shortlist
  if stage is not None:
    predictor = stage.train(corpus, preemption)
  else:
    source, field = shortlist.workdir, f'{_FIELD}.workdir'
    predictor = copy_run(source, folder, PROPOSER, field)
  return _of_ranked(shortlist, predictor)


def _of_ranked(shortlist: RankedShortlist, predictor: Predictor) -> Proposals:
  # The second model also learns labels that the first model leaves out. If the
  # run leaves labels out, the proposer is asked for the other labels only.
  predictor = predictor.leaving_out(())
  proposer = Proposer(predictor, shortlist.size)
  return Proposals(PROPOSER, predictor, proposer)


def _level_shortlists(
  shortlist: LevelShortlist, levels: LabelLevels, costs: Ragged | None
) -> TrainShortlists:
  """Returns the shortlists of a level, without proposed clusters."""
  none, costs = np.zeros((0, 0), np.int32), costs if shortlist.counted else None
  if len(levels) == 1:  # all labels are the children of the root
    parent_L = np.where(levels.above[-1] == PAD, PAD, 0).astype(np.int32)
    return TrainShortlists(none, 1, levels.children[-1], parent_L, costs)
  nodes = levels.children[-1], levels.parents[-1]
  return TrainShortlists(
    none, shortlist.kept, *nodes, costs, shortlist.candidates
  )


def _level(
  config: Config,
  folder: Workdir,
  corpus: Corpus,
  levels: LabelLevels,
  preemption: Preemption,
  costs: Ragged | None,
) -> Proposals:
  """Trains the model of the level above the labels."""
  predictor = train_level(
    config, folder, LEVEL, corpus, levels, preemption, costs
  )
  return _of_level(config.model.shortlist, predictor, levels)


def _of_level(
  shortlist: LevelShortlist, predictor: Predictor, levels: LabelLevels
) -> Proposals:
  clusters = ClusterMap(levels.children[-1], levels.parents[-1])
  # The first level gives margins, and each further level gives the log score of
  # a path.
  first = len(levels) == 2 or not shortlist.chained
  proposer = Proposer(predictor, shortlist.kept, clusters, hinged=first)
  return Proposals(LEVEL, predictor, proposer)


def _train_nodes(
  proposals: Proposals,
  shortlist: RankedShortlist | LevelShortlist,
  folder: Workdir,
  corpus: Corpus,
) -> np.ndarray:
  """Returns the nodes that are proposed for each training document, [N, K]."""
  split = corpus.splits[TRAIN]
  if proposals.predictor is None:
    return np.zeros((len(split), 1), np.int32)  # the root
  if isinstance(shortlist, LevelShortlist) and not shortlist.matched:
    return np.zeros((len(split), 0), np.int32)
  return proposed_nodes(proposals.predictor, proposals.proposer, folder, split)


def proposed_nodes(
  predictor: Predictor, proposer: Proposer, folder: Workdir, split: Split
) -> np.ndarray:
  """Returns the nodes that a model proposes for each document of a split.

  They are saved, because computing them takes long, and read again later.

  Args:
    predictor: the model.
    proposer: lists nodes by the scorer of this model.
    folder: workdir of the run.
    split: the split.

  Returns:
    int32 [N, K], PAD after the last node of a document.

  Raises:
    DataError: the saved file is damaged.
  """
  path = folder.shortlists
  if not path.exists():
    batches = predictor.text_batches(split.documents)
    with progress(batches, f'shortlists of {split.name}', unit='batch') as bar:
      ids, _ = proposer.nodes(bar, len(split))
    with folder.recording(path):
      write_npz(path, {_NODES: ids[0]}, packed=True)
  return saved_nodes(folder, len(split), predictor.n_labels)


def saved_nodes(folder: Workdir, n: int, n_nodes: int) -> np.ndarray:
  """Reads what proposed_nodes has saved, int32 [N, K].

  Args:
    folder: workdir of the run.
    n: number of documents.
    n_nodes: number of nodes.

  Raises:
    DataError: the file is missing or damaged.
  """
  path = folder.shortlists
  arrays = Arrays.read(path)
  nodes_NK = arrays.take(_NODES, np.int32, (n, None))
  bad = (nodes_NK < PAD) | (nodes_NK >= n_nodes)
  arrays.check(_NODES, bad, f'is not a number below {n_nodes}')
  arrays.finish()
  folder.check(path)
  return nodes_NK
