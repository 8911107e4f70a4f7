"""Trains and runs extreme multi-label text classifiers in JAX."""

import os
import typing

if typing.TYPE_CHECKING:
  from xjax.run.predictor import Predictor


def load(workdir: str | os.PathLike, step: int | None = None) -> 'Predictor':
  """Loads the best model of a run, to label documents with .predict(texts, k).

  Args:
    workdir: str or path, the folder of the run; nothing else is needed.
    step: int, step of the checkpoint to load; None for the best checkpoint.

  Returns:
    The model, with the features, the labels and the calibration of the run.

  Raises:
    ConfigError: `step` is set, but the model has no optimizer steps.
    DataError: the folder has no run, or a file of the run is missing or
      damaged. If the newest or the best checkpoint is damaged, no other
      checkpoint is loaded instead, unless `step` asks for it.
  """
  # Python runs this file whenever it imports a module of xjax. The import below
  # is inside the function, so that this file alone does not import JAX.
  from xjax.run import fit

  return fit.load(workdir, step)
