"""Reads and writes encoders as folders in the format of transformers."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from xjax.core.atomic import build_folder, check_new_folder, write_json, writing
from xjax.core.errors import DataError, optional
from xjax.data.files.model_files import read_object, safe_path, shown
from xjax.data.text.subwords import Subwords
from xjax.networks.pretrained.architecture import Architecture, architecture_of
from xjax.networks.pretrained.convert import (
  Header,
  from_hugging_face,
  match_names,
  parameter_paths,
  to_hugging_face,
)

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'

# Maps safetensors' name of a type to NumPy's name. Only these types can be
# converted.
_DTYPES = {
  'F16': 'float16',
  'BF16': 'bfloat16',
  'F32': 'float32',
  'F64': 'float64',
}
_OTHER_FORMATS = ('*.bin', '*.pt', '*.pth', '*.ckpt', '*.h5', '*.msgpack')


@dataclasses.dataclass(frozen=True)
class WeightFiles:
  """Holds the headers of a folder's tensors; read() reads their values."""

  where: pathlib.Path  # the file, or the index of several files
  headers: Mapping[str, Header]
  files: Mapping[str, pathlib.Path]  # the file that has each tensor

  @classmethod
  def of(cls, folder: pathlib.Path) -> 'WeightFiles':
    """Reads the headers of a folder; DataError: no file, or a damaged one."""
    if (folder / WEIGHTS).exists():
      path = safe_path(folder, WEIGHTS)
      headers = _headers(path)
      return cls(path, headers, dict.fromkeys(headers, path))
    if (folder / INDEX).exists():
      return _of_index(folder)
    raise DataError(_missing_text(folder))

  def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads tensors, of their own types; raises DataError for damaged files."""
    by_file: dict[pathlib.Path, list[str]] = {}
    for name in names:
      by_file.setdefault(self.files[name], []).append(name)
    tensors = {}
    for path, names_of_file in by_file.items():
      with _open(path) as file:
        tensors |= {name: file.get_tensor(name) for name in names_of_file}
    return tensors


def write_weights(
  folder: pathlib.Path, tensors: Mapping[str, np.ndarray]
) -> None:
  """Writes contiguous tensors to model.safetensors; may raise OSError."""
  try:
    # transformers requires this entry, which states the layout of tensors.
    save_file(dict(tensors), folder / WEIGHTS, metadata={'format': 'pt'})
  except SafetensorError as error:
    raise OSError(str(error)) from error


def _of_index(folder: pathlib.Path) -> WeightFiles:
  headers: dict[str, Header] = {}
  files: dict[str, pathlib.Path] = {}
  for shard in sorted(set(_read_index(folder).values())):
    path = safe_path(folder, shard)
    headers |= (of_shard := _headers(path))
    files |= dict.fromkeys(of_shard, path)
  return WeightFiles(folder / INDEX, headers, files)


def _read_index(folder: pathlib.Path) -> dict[str, str]:
  listed = read_object(folder, INDEX).get('weight_map')
  if not isinstance(listed, dict) or not listed:
    raise DataError(
      f'{folder / INDEX}: "weight_map" is {shown(listed)}; it must list the '
      'file of every tensor'
    )
  for name, file in listed.items():
    if not isinstance(file, str):
      raise DataError(
        f'{folder / INDEX}: the file of {shown(name)} is {shown(file)}, not '
        'a file name'
      )
  return listed


def _headers(path: pathlib.Path) -> dict[str, Header]:
  with _open(path) as file:
    slices = {name: file.get_slice(name) for name in file.keys()}
    return {
      name: Header(
        _DTYPES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape())
      )
      for name, part in slices.items()
    }


@contextlib.contextmanager
def _open(path: pathlib.Path) -> Iterator[safe_open]:
  try:
    with safe_open(path, 'numpy') as file:
      yield file
  except (SafetensorError, OSError, MemoryError) as error:
    raise DataError(
      f'{path}: {_damage(path)} ({str(error)[:200]}); download or convert it '
      'again'
    ) from error


def _damage(path: pathlib.Path) -> str:
  try:
    with path.open('rb') as file:
      start = file.read(2)
  except OSError:
    return 'cannot be read'
  # torch.save writes a zip archive of pickles. Older versions of torch.save
  # write a pickle.
  if start == b'PK' or (start[:1] == b'\x80' and start[1:] <= b'\x05'):
    return 'is a pickle, not a safetensors file; xjax never opens a pickle'
  return 'is damaged, or not a safetensors file'


def _missing_text(folder: pathlib.Path) -> str:
  others = sorted(p.name for kind in _OTHER_FORMATS for p in folder.glob(kind))
  if not others:
    return f'{folder}: has neither {WEIGHTS} nor {INDEX}'
  return (
    f'{folder}: has no {WEIGHTS}, only {others[0]}, which xjax does not read '
    '(opening a pickle can run code from the file). If you trust the file, '
    'convert it: python -c "from '
    'transformers import AutoModel; AutoModel.from_pretrained('
    f"'{folder}').save_pretrained('{folder}')\""
  )


CONFIG = 'config.json'

# Names of the classes for encoders without a head in the library transformers,
# by model_type.
_CLASSES = {
  'bert': 'BertModel',
  'roberta': 'RobertaModel',
  'xlm-roberta': 'XLMRobertaModel',
  'camembert': 'CamembertModel',
  'xlnet': 'XLNetModel',
}
# These fields of config.json are not copied, because they describe the source
# model. The written folder has other weights of another type, and has no code.
_NOT_WRITTEN = ('_name_or_path', 'auto_map', 'dtype', 'torch_dtype')
_ROUNDED_TO = (8, 16, 32, 64, 128)


def find_model(name: str) -> pathlib.Path:
  """Returns the folder of a model on this machine; nothing is downloaded.

  `name` is a folder (~ is the home folder), or the name of a model, such as
  'org/name', in this machine's Hugging Face cache. Raises DataError if there is
  neither.
  """
  folder = pathlib.Path(os.path.expanduser(name))
  try:
    if name and folder.is_dir():
      return folder
    if name and folder.exists():
      raise DataError(f'{name}: is a file; give the folder of the model')
    hub = optional('huggingface_hub', f'{name!a}, which is no folder,')
    # A part of a model is enough here, so only one file is asked for.
    config = hub.try_to_load_from_cache(name, CONFIG)
  except (OSError, ValueError) as error:
    raise DataError(
      f'{name!a}: is neither a folder nor the name of a Hugging Face model'
    ) from error
  if not isinstance(config, str):
    raise DataError(
      f'{name}: there is no such folder here, and no {CONFIG} of such a model '
      f'in the Hugging Face cache {hub.constants.HF_HUB_CACHE}. xjax downloads '
      f'nothing; run "hf download {name}", or give another folder'
    )
  return pathlib.Path(config).parent


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """Describes the folder of an encoder; only its config.json has been read."""

  path: pathlib.Path
  config: Mapping[str, Any]
  architecture: Architecture

  @classmethod
  def at(cls, name: str) -> 'ModelFolder':
    """Finds a folder by its path or name (find_model), and reads config.json.

    DataError says that the folder does not exist, or that its config.json is
    absent, damaged, or needs a feature that is not implemented.
    """
    path = find_model(name)
    config = read_object(path, CONFIG)
    return cls(path, config, architecture_of(config, str(path / CONFIG)))

  def tokenizer(self, spare_rows: bool = False) -> Subwords:
    """Reads the tokenizer; a DataError says that it fits another encoder.

    `spare_rows` is for check_vocabulary.
    """
    tokenizer = Subwords.of_folder(self.path)
    where, architecture = tokenizer.source, self.architecture
    check_vocabulary(len(tokenizer), architecture, where, spare_rows)
    before, after = len(tokenizer.before), len(tokenizer.after)
    check_special_tokens(before, after, architecture, where)
    return tokenizer

  def parameters(self) -> dict[str, np.ndarray]:
    """Reads the encoder's parameters, float32, by path (see from_hugging_face).

    DataError says which file is missing, damaged or outside the folder, which
    tensors do not match config.json, or which values are not finite.
    """
    files, names = self._tensors()
    tensors = files.read(names.values())
    return from_hugging_face(tensors, self.architecture, str(files.where))

  def paths(self) -> frozenset[str]:
    """Returns the paths of all parameters; reads only the files' headers."""
    _, names = self._tensors()
    return parameter_paths(names, self.architecture)

  def _tensors(self) -> tuple[WeightFiles, dict[str, str]]:
    files = WeightFiles.of(self.path)
    where = str(files.where)
    return files, match_names(files.headers, self.architecture, where)


def check_vocabulary(
  size: int, architecture: Architecture, where: str, spare_rows: bool = False
) -> None:
  """Raises DataError if a tokenizer does not belong to an encoder.

  The encoder's word table has a row for each token id. It may also end with
  spare rows, which no token uses, if the number of rows is the number of token
  ids, rounded up to a multiple of 8, 16, 32, 64 or 128, or if the user allows
  spare rows. `size` is the tokenizer's largest id plus 1, and `where` its file.
  """
  rows = architecture.vocab_size
  rounded = (-(-size // to) * to for to in _ROUNDED_TO)
  fewer = architecture.pad_id < size < rows
  if size == rows or (fewer and (spare_rows or rows in rounded)):
    return
  hint = (
    f'. If the tokenizer is the right one and the last {rows - size} rows of '
    'the table are spare, set config.model.encoder.spare_rows=True'
  )
  raise DataError(
    f'{where}: the tokenizer has {size} ids but the word table has {rows} '
    f'rows ("vocab_size" of {CONFIG}); use the tokenizer that belongs to the '
    f'weights{hint if fewer else ""}'
  )


def check_special_tokens(
  before: int, after: int, architecture: Architecture, where: str
) -> None:
  """Raises DataError if the token [CLS] is not where an encoder expects it.

  `before` and `after` are the numbers of special tokens around a text.
  """
  if architecture.summary_last and (before or after < 2):
    wanted = 'XLNet needs <sep> and <cls> after a text, and none before it'
  elif not architecture.summary_last and not (before and after):
    wanted = 'encoders of the BERT family need special tokens on both sides'
  else:
    return
  raise DataError(
    f'{where}: the tokenizer adds {before} special tokens before a text and '
    f'{after} after it; {wanted}; use the tokenizer that belongs to the weights'
  )


def write_model_folder(
  path: str | os.PathLike,
  config: Mapping[str, Any],
  params: Mapping[str, Any],
  texts: Mapping[str, str] | None = None,
) -> None:
  """Writes a folder that transformers can load.

  An error leaves no partial folder. The folder must not exist, or must be
  empty, else WriteError is raised. config is the config.json of the folder that
  the encoder came from. params are the model's parameters by path (see
  to_hugging_face). texts are further files by name, such as the tokenizer's.
  """
  path = pathlib.Path(path)
  architecture = architecture_of(config, CONFIG)
  tensors = to_hugging_face(params, architecture)
  check_new_folder(path)

  def build(folder: pathlib.Path) -> None:
    with writing(path):
      write_json(folder / CONFIG, _exported_config(config))
      write_weights(folder, tensors)
      for name, text in (texts or {}).items():
        (folder / name).write_text(text, 'utf-8')

  build_folder(path, build)


def _exported_config(config: Mapping[str, Any]) -> dict[str, Any]:
  return {
    **{name: x for name, x in config.items() if name not in _NOT_WRITTEN},
    'architectures': [_CLASSES[config['model_type']]],
    # Newer releases of transformers write `dtype`, but also read `torch_dtype`.
    'torch_dtype': 'float32',
  }


# The names of parameters in the folders of BERT (also the old spelling) and of
# RoBERTa, and our names.
_PREFIXES = 'cls.predictions.transform.', 'lm_head.'
_NAMES = {
  'dense.weight': 'dense/kernel',
  'dense.bias': 'dense/bias',
  'LayerNorm.weight': 'norm/scale',
  'LayerNorm.gamma': 'norm/scale',
  'LayerNorm.bias': 'norm/bias',
  'LayerNorm.beta': 'norm/bias',
  'layer_norm.weight': 'norm/scale',
  'layer_norm.bias': 'norm/bias',
}


def language_transform(folder: ModelFolder) -> dict[str, np.ndarray] | None:
  """Returns the layer between the last state and the vectors of words.

  The arrays are float32: dense/kernel, dense/bias, norm/scale and norm/bias.
  The result is None if the folder has no head of a masked language model.
  """
  files = WeightFiles.of(folder.path)
  names = {
    path: prefix + name
    for prefix in _PREFIXES
    for name, path in _NAMES.items()
    if prefix + name in files.headers
  }
  if len(names) < len(set(_NAMES.values())):
    return None
  tensors = files.read(names.values())
  arrays, dim = {}, folder.architecture.dim
  for path, name in names.items():
    array = np.asarray(tensors[name]).astype(np.float32)
    shape = (dim, dim) if path == 'dense/kernel' else (dim,)
    if array.shape != shape or not np.isfinite(array).all():
      raise DataError(
        f'{files.where}: {name} must have the shape {list(shape)} and only '
        'finite values'
      )
    arrays[path] = array
  arrays['dense/kernel'] = np.ascontiguousarray(arrays['dense/kernel'].T)
  return arrays
