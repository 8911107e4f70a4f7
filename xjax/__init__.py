"""Trains and runs extreme multi-label text classifiers in JAX."""

import os
import typing

if typing.TYPE_CHECKING:
  from xjax.run.predictor import Predictor


def load(workdir: str | os.PathLike) -> 'Predictor':
  """Loads the best model of a run, to label documents with .predict(texts, k).

  Args:
    workdir: str or path, the folder of the run; nothing else is needed.

  Returns:
    The model, with the features, the labels and the calibration of the run.

  Raises:
    DataError: the folder has no run, or a file of the run is missing or
      damaged.
  """
  # Python runs this file whenever it imports a module of xjax. The import below
  # is inside the function, so that this file alone does not import JAX.
  from xjax.run import fit

  return fit.load(workdir)
