"""Trains and runs extreme multi-label text classifiers in JAX.

docs/python.md describes the functions and classes of this module.
"""

import importlib
import typing

from xjax.version import __version__ as __version__

if typing.TYPE_CHECKING:
  from xjax.config.run import Config as Config
  from xjax.core.errors import (
    ConfigError as ConfigError,
    DataError as DataError,
    UserError as UserError,
  )
  from xjax.data.schema import Document as Document, Label as Label
  from xjax.run.api.estimator import XMCClassifier as XMCClassifier
  from xjax.run.api.fitting import fit as fit
  from xjax.run.api.model import Model as Model, load as load

# Python runs this file whenever it imports a module of xjax. So each name is
# imported only when it is used: `import xjax` imports neither JAX nor NumPy.
_MODULES = {
  'Config': 'xjax.config.run',
  'ConfigError': 'xjax.core.errors',
  'DataError': 'xjax.core.errors',
  'Document': 'xjax.data.schema',
  'Label': 'xjax.data.schema',
  'Model': 'xjax.run.api.model',
  'UserError': 'xjax.core.errors',
  'XMCClassifier': 'xjax.run.api.estimator',
  'fit': 'xjax.run.api.fitting',
  'load': 'xjax.run.api.model',
}
__all__ = ['__version__', *_MODULES]


def __getattr__(name: str) -> typing.Any:
  if name not in _MODULES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  value = getattr(importlib.import_module(_MODULES[name]), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
