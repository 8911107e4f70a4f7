"""A folder with an encoder, as Hugging Face's transformers reads and writes."""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
import re
from typing import Any

from huggingface_hub import constants
import numpy as np

from xjax.core.atomic import WriteError, build_folder, write_json, writing
from xjax.core.errors import DataError
from xjax.data.files.model_files import read_object
from xjax.score.pretrained.architecture import Architecture, architecture_of
from xjax.score.pretrained.convert import (
  from_hugging_face,
  made_paths,
  to_hugging_face,
  wanted_names,
)
from xjax.score.pretrained.weight_files import WeightFiles, write_weights

CONFIG = 'config.json'

# transformers' classes for encoders that are saved alone.
_CLASSES = {
  'bert': 'BertModel',
  'roberta': 'RobertaModel',
  'xlm-roberta': 'XLMRobertaModel',
  'camembert': 'CamembertModel',
}
# Of the model that it was; what is written has other weights and no code.
_NOT_WRITTEN = ('_name_or_path', 'auto_map', 'dtype', 'torch_dtype')
_ROUNDED_TO = (8, 16, 32, 64, 128)
_NAME = re.compile(r'[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?', re.ASCII)


def find_model(name: str) -> pathlib.Path:
  """The folder of a model, which is here already: nothing is downloaded.

  Args:
    name: a folder (~ is the home), else a model's name, as 'org/name', that
      Hugging Face's cache on this machine has.

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


def _cached(name: str) -> pathlib.Path:
  model = '--'.join(['models', *name.split('/')])
  ref = pathlib.Path(constants.HF_HUB_CACHE, model, 'refs', 'main')
  # The library follows a reference anywhere, and refuses models that were
  # fetched in part, which is enough here.
  try:
    commit = ref.read_text('ascii').strip()
    folder = ref.parents[1] / 'snapshots' / commit
    if not commit.isalnum() or not folder.is_dir():
      raise ValueError(f'no snapshot {commit!a}')
  except (OSError, ValueError) as error:
    raise DataError(
      f'{ref}: names no folder of the model in the Hugging Face cache, and '
      f'there is no folder {name} here. Nothing is downloaded: fetch it with '
      f'"hf download {name}", or name a folder'
    ) from error
  return folder


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """An encoder's folder; of its weights nothing is read yet.

  Attributes:
    path: the folder.
    config: its config.json.
    architecture: what that says.
  """

  path: pathlib.Path
  config: Mapping[str, Any]
  architecture: Architecture

  @classmethod
  def at(cls, name: str) -> 'ModelFolder':
    """The folder of a path, or of a name in Hugging Face's local cache.

    Raises:
      DataError: there is none, or its config.json is absent, damaged, or asks
        for what is not implemented.
    """
    path = find_model(name)
    config = read_object(path, CONFIG)
    return cls(path, config, architecture_of(config, str(path / CONFIG)))

  def parameters(self) -> dict[str, np.ndarray]:
    """Our parameters by path (convert.from_hugging_face), float32.

    Raises:
      DataError: a file is missing, damaged or elsewhere, or tensors are not
        those that config.json asks for, or not finite.
    """
    files, names = self._tensors()
    tensors = files.read(names.values())
    return from_hugging_face(tensors, self.architecture, str(files.where))

  def paths(self) -> frozenset[str]:
    """Those of parameters(), of which only the files' headers are read.

    Raises:
      DataError: as parameters, of what headers tell: not of values.
    """
    _, names = self._tensors()
    return made_paths(names, self.architecture)

  def _tensors(self) -> tuple[WeightFiles, dict[str, str]]:
    """The files, and the tensors that are read: plain name -> its name."""
    files = WeightFiles.of(self.path)
    where = str(files.where)
    return files, wanted_names(files.headers, self.architecture, where)


def check_vocabulary(
  size: int, architecture: Architecture, where: str, spare_rows: bool = False
) -> None:
  """Refuses a tokenizer that is not the one of an encoder.

  Word tables may end in rows that no token has, where they are rounded up to a
  multiple of 8, 16, 32, 64 or 128, or where the user says so.

  Args:
    size: ids of the tokenizer, one more than its largest.
    architecture: of the encoder.
    where: the tokenizer's file, for messages.
    spare_rows: whether the table may end in any number of them.

  Raises:
    DataError: it has more ids than the word table rows, or fewer.
  """
  rows = architecture.vocab_size
  rounded = (-(-size // to) * to for to in _ROUNDED_TO)
  fewer = architecture.pad_id < size < rows
  if size == rows or (fewer and (spare_rows or rows in rounded)):
    return
  unless = (
    f'; should it be this one, and the last {rows - size} rows of the table be '
    'spare, set config.model.encoder.spare_rows=True'
  )
  raise DataError(
    f'{where}: the tokenizer has {size} ids and the word table {rows} rows '
    f'("vocab_size" of {CONFIG}); these are not of one model: take the '
    f'tokenizer that belongs to the weights{unless if fewer else ""}'
  )


def write_model_folder(
  path: str | os.PathLike,
  config: Mapping[str, Any],
  params: Mapping[str, Any],
  texts: Mapping[str, str] | None = None,
) -> None:
  """Writes a folder that transformers loads; all of it or nothing.

  Args:
    path: of the folder, which must not be there yet, unless empty.
    config: config.json of the folder that the encoder came from.
    params: ours by path; pooling/dense, if there, becomes the pooler, and what
      else is not of the encoder is left out.
    texts: further files, name -> content: the tokenizer's.

  Raises:
    DataError: params are not those that config asks for.
    WriteError: the folder cannot be written, or is there.
  """
  path = pathlib.Path(path)
  architecture = architecture_of(config, CONFIG)
  tensors = to_hugging_face(params, architecture, str(path))
  with writing(path):
    if os.path.lexists(path) and not (path.is_dir() and not os.listdir(path)):
      raise WriteError(f'{path}: is there already; name a new folder')

  def build(folder: pathlib.Path) -> None:
    with writing(path):
      write_json(folder / CONFIG, _written(config))
      write_weights(folder, tensors)
      for name, text in (texts or {}).items():
        (folder / name).write_text(text, 'utf-8')

  build_folder(path, build)


def _written(config: Mapping[str, Any]) -> dict[str, Any]:
  return {
    **{name: x for name, x in config.items() if name not in _NOT_WRITTEN},
    'architectures': [_CLASSES[config['model_type']]],
    # Newer releases call it dtype, and read this.
    'torch_dtype': 'float32',
  }
