"""Reads weights in one safetensors file or several (shards), and writes one."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
import pathlib

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from xjax.core.errors import DataError
from xjax.data.files.model_files import read_object, safe_path, shown
from xjax.networks.pretrained.convert import Header

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
