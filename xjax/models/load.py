"""Loads the model of a workdir.

A linear model or a label tree is loaded without JAX and the metrics, which take
seconds to import. So each kind of run is imported only if it is needed.
"""

import dataclasses
import os
import typing

from absl import logging

from xjax.core.errors import ConfigError, DataError
from xjax.core.loading import loading_libraries
from xjax.core.types import ScoreKind
from xjax.judge.calibration import Calibration, Method
from xjax.models.config import Config
from xjax.models.config_json import load_config
from xjax.models.model_configs import (
  EnsembleModel,
  ExactMatchModel,
  LinearModel,
  NamesModel,
  NeighboursModel,
  NodesModel,
  PrototypesModel,
  TreeModel,
  is_neural,
)
from xjax.models.staged.stack_config import StackModel
from xjax.models.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.models.fit_contract import Fit
  from xjax.models.predictor import Predictor

DATA = 'data'  # the folder of a workdir with documents that were in memory
DEV = 'dev'
JUDGED = (DEV, 'test')
_ADVICE = 'xjax evaluate --split=dev calibrates those of the best checkpoint'


def load(workdir: str | os.PathLike, step: int | None = None) -> 'Predictor':
  """Loads the model of a run; only files of the workdir are read.

  Args:
    workdir: folder of the run.
    step: int, step of the checkpoint to load; None for the best checkpoint.

  Raises:
    ConfigError: `step` is set, but the model has no optimizer steps.
    DataError: the folder has no run, or a file of the run is missing or
      damaged. If the newest or the best checkpoint is damaged, no other
      checkpoint is loaded instead, unless `step` asks for it.
  """
  folder = Workdir.at(workdir)
  folder.check_has_run()
  config = _with_moved_data(load_config(folder.config), folder)
  try:
    folder.check(folder.config)
  except DataError as error:  # users may change settings of the evaluation
    logging.warning('%s', error)
  kind = kind_of_run(config)
  if step is None:
    return kind.load(folder, config)
  if not is_neural(config.model):
    raise ConfigError(
      f'step={step}: only neural models have checkpoints, but the run in '
      f'{folder.path} is a {type(config.model).__name__}; leave out the step'
    )
  return kind.load(folder, config, step)


def _with_moved_data(config: Config, folder: Workdir) -> Config:
  """Corrects data.dir if documents in the workdir have moved with it."""
  before, now = config.data.dir, folder.path / DATA
  is_own = os.path.basename(before) == DATA and now.is_dir()
  if not is_own or os.path.exists(before):
    return config
  data = dataclasses.replace(config.data, dir=str(now))
  return dataclasses.replace(config, data=data)


@loading_libraries()
def kind_of_run(config: Config) -> 'type[Fit]':
  """Returns the class that fits and loads the model of a config."""
  match config.model:
    case LinearModel():
      from xjax.models.linear.sparse_fit import LinearFit

      return LinearFit
    case TreeModel():
      from xjax.models.linear.sparse_fit import TreeFit

      return TreeFit
    case NodesModel():
      from xjax.models.staged.matched import MatchedFit

      return MatchedFit
    case ExactMatchModel():
      from xjax.models.lookup.names_fit import ExactMatchFit

      return ExactMatchFit
    case NamesModel():
      from xjax.models.lookup.names_fit import NamesFit

      return NamesFit
    case PrototypesModel():
      from xjax.models.lookup.prototypes_fit import PrototypesFit

      return PrototypesFit
    case NeighboursModel():
      from xjax.models.lookup.neighbours_fit import NeighboursFit

      return NeighboursFit
    case EnsembleModel():
      from xjax.models.staged.ensemble import EnsembleFit

      return EnsembleFit
    case StackModel():
      from xjax.models.staged.stack import StackFit

      return StackFit
    case _:
      from xjax.models.neural.neural_fit import NeuralFit

      if not isinstance(config.model, NeuralFit.models):
        raise ConfigError(f'config.model: no kind of run fits {config.model!r}')
      return NeuralFit


def load_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """Returns the calibration of a model that is loaded, or warns.

  A warning says why scores are not calibrated, unless `method` is NONE, or
  there is no calibration because the run has no dev split or is a stage.

  The arguments, results and errors are those of saved_calibration.
  """
  calibration, why = _saved_calibration(workdir, method, step, kind)
  if why and not workdir.is_stage:
    logging.warning('scores are not calibrated: %s', why)
  return calibration


def calibrated(predictor: 'Predictor') -> 'Predictor':
  """Returns a model with the calibration in its workdir; see load_calibration.

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  method, kind = predictor.config.eval.calibration, predictor.score_kind
  calibration = load_calibration(
    predictor.workdir, method, predictor.step, kind
  )
  return dataclasses.replace(predictor, calibration=calibration)


def saved_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """Returns the saved calibration of a checkpoint's scores.

  The function returns None if there is no calibration. The function also
  returns None if the calibration is from another checkpoint, or from documents
  that are not the run's dev split.

  Args:
    workdir: folder of the run.
    method: the config's method of calibration; NONE calibrates nothing.
    step: int, step of the checkpoint.
    kind: kind of the checkpoint's scores.

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  calibration, _ = _saved_calibration(workdir, method, step, kind)
  return calibration


def _saved_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> tuple[Calibration | None, str]:
  """Returns the saved calibration, and why it does not calibrate scores.

  The reason is '' if users need not hear one.
  """
  if method is Method.NONE:
    return None, ''
  path, dev = workdir.calibration, workdir.digests().get(DEV)
  if not path.exists():
    return None, f'no {path}; {_ADVICE}' if dev is not None else ''
  calibration = Calibration.load(path)
  workdir.check(
    path,
    'Remove the file, and run xjax evaluate --split=dev to write it again',
  )
  # Users can add a dev split to the data folder after the run was started. The
  # run has no digest of such a split, so any digest is accepted.
  wanted = step, calibration.digest if dev is None else dev
  if (calibration.step, calibration.digest) != wanted:
    return None, (
      f'{path} was not fitted on the dev split of this run and the checkpoint '
      f'of step {step}; {_ADVICE}'
    )
  if calibration.score_kind is not kind:
    raise DataError(
      f'{path}: calibrates scores of kind {calibration.score_kind.value}, but '
      f'the scores of this run are of kind {kind.value}'
    )
  return calibration, calibration.reason
