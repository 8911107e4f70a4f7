"""Trains and runs extreme multi-label text classifiers in JAX.

docs/python.md describes the functions and classes of this module.
"""

from collections.abc import Sequence
import importlib
import os
import typing
from typing import Any

from xjax.version import __version__ as __version__

if typing.TYPE_CHECKING:
  from xjax.core.errors import (
    ConfigError as ConfigError,
    DataError as DataError,
    UserError as UserError,
  )
  from xjax.data.schema import Document as Document, Label as Label
  from xjax.models.contract import Config as Config
  from xjax.run.api.estimator import XMCClassifier as XMCClassifier
  from xjax.run.api.model import Model as Model, load as load

# Python runs this file whenever it imports a module of xjax. So each name is
# imported only when it is used: `import xjax` imports neither JAX nor NumPy.
_MODULES = {
  'Config': 'xjax.models.contract',
  'ConfigError': 'xjax.core.errors',
  'DataError': 'xjax.core.errors',
  'Document': 'xjax.data.schema',
  'Label': 'xjax.data.schema',
  'Model': 'xjax.run.api.model',
  'UserError': 'xjax.core.errors',
  'XMCClassifier': 'xjax.run.api.estimator',
  'load': 'xjax.run.api.model',
}
__all__ = ['__version__', 'fit', *_MODULES]


def fit(
  texts: Any,
  labels: Any = None,
  config: 'Config | str' = 'auto',
  workdir: str | os.PathLike | None = None,
  *,
  dev: tuple[Any, Any] | float = 0.1,
  label_names: 'Sequence[str | Label] | None' = None,
  seed: int | None = None,
  verbose: bool = True,
) -> 'Model':
  """Trains a model on documents that are in memory, and judges it on dev.

  The documents are written to the folder data/ of the workdir. Then a normal
  run is made, as by the command `train`, and the workdir gets a model card. The
  same call with the same workdir resumes the run, or loads the finished model.

  Args:
    texts: N documents: a list, tuple, generator, NumPy array or Series of texts
      or Documents; a DataFrame, whose columns are zones; or a matrix of
      features [N, D]. Rows of features are scaled to length 1, unless the
      config says otherwise.
    labels: gold labels of the N documents: a list (or tuple, set) of label ids
      for each document; one label id for each document; or an indicator matrix
      [N, L] of zeros and ones, dense or sparse. An integer label stands for its
      decimal digits. None uses the labels of Documents.
    config: 'auto', the name of a config of xjax, the path of a config file, or
      a Config. The part `data` of the config is replaced, but its tokens and
      zones are kept.
    workdir: folder of the run. None means a temporary folder, which is deleted
      with the model.
    dev: a pair (texts, labels), or the share of the documents that is drawn for
      dev. On dev, the best checkpoint is chosen, probabilities are calibrated
      and the threshold is tuned. 0 means no dev.
    label_names: all labels, as ids or as Labels with names; for an indicator
      matrix, the labels of its columns. None means the labels that documents
      have.
    seed: seed of the split and of training; None means the config's seed.
    verbose: whether to show progress and the log.

  Returns:
    The model of the best checkpoint.

  Raises:
    ConfigError: the config does not fit the documents, or the workdir was made
      from other documents or with another config.
    DataError: a text or a label has a fault, or the numbers of texts and labels
      differ. The message has the position.
  """
  from xjax.run.api.fitting import fit_documents

  model, result = fit_documents(
    texts,
    labels,
    config,
    workdir,
    dev=dev,
    label_names=label_names,
    seed=seed,
    verbose=verbose,
  )
  if workdir is not None:
    from xjax.report.card import write_card

    write_card(result)
  return model


def __getattr__(name: str) -> Any:
  if name not in _MODULES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  value = getattr(importlib.import_module(_MODULES[name]), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
