"""Models by name, in Hugging Face's cache on this machine; never the network.

The layout of the cache is that of huggingface_hub: models--ORG--NAME with
refs/main, which holds a commit, and snapshots/COMMIT, the folder.
"""

import os
import pathlib
import re

from xjax.core.errors import DataError

_NAME = re.compile(r'[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?', re.ASCII)
_COMMIT = re.compile(r'[0-9A-Za-z]+', re.ASCII)


def find_model(name: str) -> pathlib.Path:
  """The folder of a model.

  Args:
    name: a folder (~ is the home), else a model's name, as 'org/name', that
      the cache has.

  Raises:
    DataError: there is no such folder, and no such model in the cache.
  """
  try:
    folder = pathlib.Path(os.path.expanduser(name))
    if name and folder.is_dir():
      return folder
    if name and folder.exists():
      raise DataError(f'{name}: is a file; name the folder of the model')
  except (OSError, ValueError) as error:
    raise DataError(f'{name!r}: cannot be a folder: {error}') from error
  if not _NAME.fullmatch(name):
    raise DataError(f'{name!r}: there is no such folder')
  return _cached(name)


def cache_folder() -> pathlib.Path:
  """Where the cache is, by the first of its variables that is set.

  $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub or
  $XDG_CACHE_HOME/huggingface/hub; without any, ~/.cache/huggingface/hub.
  """
  for variable, below in (
    ('HF_HUB_CACHE', ''),
    ('HUGGINGFACE_HUB_CACHE', ''),
    ('HF_HOME', 'hub'),
    ('XDG_CACHE_HOME', 'huggingface/hub'),
  ):
    if value := os.environ.get(variable):
      return pathlib.Path(os.path.expanduser(value)) / below
  return pathlib.Path('~/.cache/huggingface/hub').expanduser()


def _cached(name: str) -> pathlib.Path:
  cache = cache_folder()
  model = cache / '--'.join(['models', *name.split('/')])
  ref = model / 'refs' / 'main'
  try:
    commit = ref.read_text('ascii').strip()
  except (OSError, ValueError) as error:
    raise DataError(
      f'{name}: no folder here, and no model of that name in the Hugging Face '
      f'cache {cache} (its {ref.relative_to(cache)} cannot be read). Nothing '
      f'is downloaded: fetch it with "hf download {name}", or name a folder'
    ) from error
  folder = model / 'snapshots' / commit
  if not _COMMIT.fullmatch(commit) or not folder.is_dir():
    raise DataError(
      f'{ref}: names no folder of {model / "snapshots"}; fetch the model again '
      f'with "hf download {name}"'
    )
  return folder
