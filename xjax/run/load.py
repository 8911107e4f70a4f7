"""Loads the model of a workdir.

A linear model or a label tree is loaded without JAX and the metrics, which take
seconds to import. So each kind of run is imported only if it is needed.
"""

import os
import typing

from absl import logging

from xjax.config.json import load_config
from xjax.config.run import Config
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import ScoreKind
from xjax.judge.calibration import Calibration, Method
from xjax.score.config import (
  ExactMatchModel,
  LinearModel,
  TreeModel,
  is_neural,
)
from xjax.train.workdir import Workdir

if typing.TYPE_CHECKING:
  from xjax.run.contract import Fit
  from xjax.run.predictor import Predictor

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
  config = load_config(folder.config)
  try:
    folder.check(folder.config)
  except DataError as error:  # users may change settings of the evaluation
    logging.warning('%s', error)
  kind = kind_of_run(config)
  if step is None:
    return kind.load(folder, config)
  if not is_neural(config.model):
    raise ConfigError(
      f'--step={step}: only neural models have checkpoints, but the run in '
      f'{folder.path} is a {type(config.model).__name__}; leave out --step'
    )
  return kind.load(folder, config, step)


def kind_of_run(config: Config) -> 'type[Fit]':
  """Returns the class that fits and loads the model of a config."""
  match config.model:
    case LinearModel():
      from xjax.run.sparse import LinearFit

      return LinearFit
    case TreeModel():
      from xjax.run.sparse import TreeFit

      return TreeFit
    case ExactMatchModel():
      from xjax.run.exact_match import ExactMatchFit

      return ExactMatchFit
    case _:
      from xjax.run.neural import NeuralFit

      if not isinstance(config.model, NeuralFit.models):
        raise ConfigError(f'config.model: no kind of run fits {config.model!r}')
      return NeuralFit


def saved_calibration(
  workdir: Workdir, method: Method, step: int, kind: ScoreKind
) -> Calibration | None:
  """Returns the saved calibration of a checkpoint's scores.

  The function returns None if there is no calibration. The function also
  returns None if the calibration is from another checkpoint, or from documents
  that are not the run's dev split. The reason is logged, unless `method` is
  NONE, or there is no calibration because the run has no dev split.

  Args:
    workdir: folder of the run.
    method: the config's method of calibration; NONE calibrates nothing.
    step: int, step of the checkpoint.
    kind: kind of the checkpoint's scores.

  Raises:
    DataError: calibration.json or corpus.json is damaged.
  """
  if method is Method.NONE:
    return None
  path, dev = workdir.calibration, workdir.digests().get(DEV)
  if not path.exists():
    if dev is not None:
      logging.info('scores are not calibrated: no %s; %s', path, _ADVICE)
    return None
  calibration = Calibration.load(path)
  workdir.check(
    path,
    'Remove the file, and run xjax evaluate --split=dev to write it again',
  )
  # Users can add a dev split to the data folder after the run was started. The
  # run has no digest of such a split, so any digest is accepted.
  wanted = step, calibration.digest if dev is None else dev
  if (calibration.step, calibration.digest) != wanted:
    logging.info(
      'scores are not calibrated: %s was not fitted on the dev split of this '
      'run and the checkpoint of step %d; %s',
      path,
      step,
      _ADVICE,
    )
    return None
  if calibration.score_kind is not kind:
    raise DataError(
      f'{path}: calibrates scores of kind {calibration.score_kind.value}, but '
      f'the scores of this run are of kind {kind.value}'
    )
  if calibration.reason:
    logging.info('scores are not calibrated: %s', calibration.reason)
  return calibration
