"""Defines runs that average the lists of other runs: ensembles.

Nothing is trained. The other runs are copied to stages/ of the workdir.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools

from xjax.core.errors import ConfigError
from xjax.data.schema import Corpus, LabelSpace
from xjax.models.config import Config
from xjax.models.fit_contract import Fit, Fitted, check_one_process
from xjax.models.load import calibrated
from xjax.models.model_configs import Averaging, EnsembleModel
from xjax.models.predictor import Predictor
from xjax.models.staged.average import EnsembleScorer
from xjax.models.staged.members import MemberInputs
from xjax.models.staged.stage import (
  check_labels,
  check_zones,
  copy_model,
  load_run,
  load_stage,
)
from xjax.models.workdir import Workdir
from xjax.run.evaluate import has_probabilities
from xjax.run.judging import Metrics
from xjax.train.preemption import Preemption

_STEP = 0  # the only step, because nothing is trained
_FIELD = 'config.model.workdirs'


def _name(number: int) -> str:
  """Returns the name of the stage that is the copy of a run."""
  return f'member_{number}'


def load_ensemble(folder: Workdir, config: Config) -> Predictor:
  """Loads an ensemble; only files of the workdir are read.

  Raises:
    DataError: a file of the workdir is missing or damaged.
    ConfigError: there are several processes.
  """
  check_one_process(config)
  numbers = range(len(config.model.workdirs))
  members = [load_stage(folder, _name(number)) for number in numbers]
  model = _predictor(config, folder.label_space(), members, folder)
  return calibrated(model)


def _predictor(
  config: Config,
  space: LabelSpace,
  members: Sequence[Predictor],
  folder: Workdir,
) -> Predictor:
  model = config.model
  # A member would spend places of its lists on labels that are left out.
  ours = space.left_out_ids
  members = [x.leaving_out((*x.space.left_out_ids, *ours)) for x in members]
  stages = {_name(number): member for number, member in enumerate(members)}
  inputs = MemberInputs(config, stages, model.depth)
  rule = model.combine, model.depth, model.weights
  scorer = EnsembleScorer(members, *rule)
  return Predictor(config, space, inputs, scorer, _STEP, folder)


@dataclasses.dataclass(frozen=True)
class EnsembleFit(Fit):
  """Copies finished runs into the workdir of an ensemble."""

  models = (EnsembleModel,)
  load = staticmethod(load_ensemble)

  @functools.cached_property
  def members(self) -> list[Predictor]:
    """Returns the models of the runs, from their copies where there are any.

    Raises:
      ConfigError: a run is missing or not finished.
      DataError: the copy of a run is damaged.
    """
    folder, members = self.workdir, []
    for number, source in enumerate(self.config.model.workdirs):
      if folder.stage(_name(number)).config.exists():
        members.append(load_stage(folder, _name(number)))
      else:
        members.append(load_run(source, _FIELD))
    return members

  def check_start(self) -> None:
    """Loads the models of the runs, and checks that they can be averaged.

    Raises:
      ConfigError: there are several processes, or a run does not fit.
      DataError: the copy of a run is damaged.
    """
    check_one_process(self.config)
    for source, member in zip(self.config.model.workdirs, self.members):
      _check_reading(self.config, source, member)
      if self.config.model.combine is not Averaging.SIGMOID:
        continue
      if not has_probabilities(member):
        raise ConfigError(
          f'{_FIELD}: the scores of {source} are margins without a '
          'calibration, so there are no probabilities to average; set '
          'config.model.combine=RANK, or calibrate the run with xjax evaluate '
          '--split=dev'
        )

  def check_corpus(self, corpus: Corpus, prior: Mapping[str, Metrics]) -> None:
    """Checks that all runs have the labels of the corpus, in the same order.

    Raises:
      ConfigError: a run has other labels; the message names the first one.
    """
    del prior
    for source, member in zip(self.config.model.workdirs, self.members):
      check_labels(source, member, corpus.label_space, _FIELD)

  def fit(self, corpus: Corpus, preemption: Preemption) -> Fitted:
    """Copies the runs that are not copied yet; nothing is trained.

    Raises:
      Preempted: SIGTERM or Ctrl-C came; another call copies the other runs.
    """
    size = 0
    with preemption.deferred():
      for number, member in enumerate(self.members):
        stage = self.workdir.stage(_name(number))
        if not stage.config.exists():
          copy_model(member, self.workdir, _name(number))
        files = (path for path in stage.path.rglob('*') if path.is_file())
        size += sum(path.stat().st_size for path in files)
        preemption.check()
    space = corpus.label_space
    model = _predictor(self.config, space, self.members, self.workdir)
    return Fitted(0, _STEP, model.score_kind, size, lambda: model)


def _check_reading(config: Config, source: str, member: Predictor) -> None:
  """Checks that the ensemble's documents have what a run reads.

  Raises:
    ConfigError: they lack zones or features.
  """
  ours, theirs = config.data, member.config.data
  if ours.sparse != theirs.sparse or (
    ours.sparse and ours.tokens != theirs.tokens
  ):
    raise ConfigError(
      f'config.data: the run in {source} reads {type(theirs).__name__}(...) '
      f'with tokens={theirs.tokens}; all runs of an ensemble and the ensemble '
      'must read the same features, or all must read texts'
    )
  check_zones(config, source, member.config)
