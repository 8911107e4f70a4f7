"""The safetensors files of a model's folder: one, or shards with an index."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import dataclasses
import pathlib

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from xjax.core.errors import DataError
from xjax.data.files.model_files import has_file, read_object, safe_path, shown
from xjax.score.pretrained.convert import Header

WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'

# safetensors' names of the types that become float32.
_DTYPES = {
  'F16': 'float16',
  'BF16': 'bfloat16',
  'F32': 'float32',
  'F64': 'float64',
}
_OTHER_FORMATS = ('*.bin', '*.pt', '*.pth', '*.ckpt', '*.h5', '*.msgpack')
_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class WeightFiles:
  """The tensors of a folder, of which only the headers are read yet.

  Attributes:
    where: the file, or the index of several.
    headers: of all tensors, by name.
    files: name -> the file that has it.
  """

  where: pathlib.Path
  headers: Mapping[str, Header]
  files: Mapping[str, pathlib.Path]

  @classmethod
  def of(cls, folder: pathlib.Path) -> 'WeightFiles':
    """Those of a folder.

    Raises:
      DataError: there are none, or they are damaged or not what the index
        says.
    """
    if has_file(folder, WEIGHTS):
      path = safe_path(folder, WEIGHTS)
      headers = _headers(path)
      return cls(path, headers, dict.fromkeys(headers, path))
    if has_file(folder, INDEX):
      return _of_index(folder)
    raise DataError(_nothing(folder))

  def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The tensors of some names, of the types they have.

    Raises:
      DataError: a file is damaged.
    """
    by_file: dict[pathlib.Path, list[str]] = {}
    for name in names:
      by_file.setdefault(self.files[name], []).append(name)
    tensors = {}
    for path, wanted in by_file.items():
      with _opened(path) as file:
        tensors |= {name: file.get_tensor(name) for name in wanted}
    return tensors


def write_weights(
  folder: pathlib.Path, tensors: Mapping[str, np.ndarray]
) -> None:
  """Writes model.safetensors.

  Args:
    folder: is there.
    tensors: by name, contiguous.

  Raises:
    OSError: that is not possible.
  """
  try:
    # transformers refuses files that do not say whose layout this is.
    save_file(dict(tensors), folder / WEIGHTS, metadata={'format': 'pt'})
  except SafetensorError as error:
    raise OSError(str(error)) from error


def _of_index(folder: pathlib.Path) -> WeightFiles:
  listed = _listed(folder)
  where = folder / INDEX
  paths, faults = {}, []
  for name in sorted(set(listed.values())):
    try:
      paths[name] = safe_path(folder, name)
    except DataError as error:
      faults.append(str(error))
  if faults:
    raise DataError(
      _first(faults, f'{where}: lists shards that cannot be read:')
    )
  headers: dict[str, Header] = {}
  files: dict[str, pathlib.Path] = {}
  for shard, path in paths.items():
    for name, header in _headers(path).items():
      if listed.get(name) != shard:
        at = listed.get(name, 'no shard')
        faults.append(f'{shown(name)} is in {shard}, listed in {at}')
      headers[name], files[name] = header, path
  faults += [
    f'{shown(name)} is in no shard, listed in {shard}'
    for name, shard in listed.items()
    if name not in headers
  ]
  if faults:
    raise DataError(
      _first(faults, f'{where}: the shards do not hold what it lists:')
    )
  return WeightFiles(where, headers, files)


def _listed(folder: pathlib.Path) -> dict[str, str]:
  """Tensor -> file name, as the index says."""
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
        'a name'
      )
  return listed


def _headers(path: pathlib.Path) -> dict[str, Header]:
  with _opened(path) as file:
    slices = {name: file.get_slice(name) for name in file.keys()}
    return {
      name: Header(
        _DTYPES.get(part.get_dtype(), part.get_dtype()),
        tuple(part.get_shape()),
      )
      for name, part in slices.items()
    }


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[safe_open]:
  try:
    with safe_open(path, 'numpy') as file:
      yield file
  except (SafetensorError, OSError, MemoryError) as error:
    raise DataError(
      f'{path}: {_kind(path)} ({str(error)[:200]}); get or convert it again'
    ) from error


def _kind(path: pathlib.Path) -> str:
  """What a file is that is no safetensors file."""
  try:
    with path.open('rb') as file:
      start = file.read(2)
  except OSError:
    return 'cannot be read'
  # torch.save writes zip archives of pickles, of old bare pickles.
  if start == b'PK' or (start[:1] == b'\x80' and start[1:] <= b'\x05'):
    return 'is a pickle, which is never opened, not a safetensors file'
  return 'is not a whole and sound safetensors file'


def _nothing(folder: pathlib.Path) -> str:
  others = sorted(p.name for kind in _OTHER_FORMATS for p in folder.glob(kind))
  if not others:
    return f'{folder}: has neither {WEIGHTS} nor {INDEX}'
  return (
    f'{folder}: has no {WEIGHTS}, only {others[0]}, which is not read (pickles '
    'run the code they hold). If you trust it, convert it: python -c "from '
    'transformers import AutoModel; AutoModel.from_pretrained('
    f"'{folder}').save_pretrained('{folder}')\""
  )


def _first(faults: list[str], title: str) -> str:
  rest = len(faults) - _SHOWN
  more = [f'and {rest} more'] if rest > 0 else []
  return '\n  '.join([title, *faults[:_SHOWN], *more])
