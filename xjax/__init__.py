"""xjax: extreme multi-label text classification in JAX."""

import os
import typing

if typing.TYPE_CHECKING:
  from xjax.run.predictor import Predictor


def load(workdir: str | os.PathLike) -> 'Predictor':
  """The best model of a run; `.predict(texts, k)` labels documents.

  Args:
    workdir: of the run; nothing else is needed.

  Raises:
    DataError: there is no run, or a file of it is missing or damaged.
  """
  # Imported on use: not everyone who imports a room wants all of JAX's.
  from xjax.run import fit

  return fit.load(workdir)
