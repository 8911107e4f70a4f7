"""Says which checkpoints of a run are complete and intact, and which is best.

checkpoint.json has the size and the CRC-32 of each array file, because Orbax
would restore a file with a changed bit. All files must be read to verify a
checkpoint, so this is done only shortly before it is restored.
"""

from collections.abc import Mapping
import itertools
import json
import os
import pathlib
import re
import shutil
from typing import Any
import zlib

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np

from xjax.core.atomic import write_json, writing
from xjax.core.distributed import barrier, host0_answer, is_host0
from xjax.core.errors import DataError
from xjax.train.workdir import Workdir

RECORD = 'checkpoint.json'  # is written last; without it a step is incomplete
ARRAYS = 'params', 'optimizer', 'averages'
_PARTS = {*ARRAYS, '_CHECKPOINT_METADATA', 'commit_success.txt'}  # by Orbax
_FILES, _META, _SUM = 'files', 'meta', 'crc'  # fields of checkpoint.json
_DAMAGED = 'damaged'
_STEP = re.compile('0|[1-9][0-9]*')
_UNFINISHED = re.compile(r'[0-9]+\.orbax-checkpoint-tmp(-[0-9]+)?')
# How users of Python and of commands choose a checkpoint.
_CHOICE = 'step=N or --step=N'


def complete_steps(folder: str | os.PathLike) -> list[int]:
  """Returns the steps of complete checkpoints, in ascending order.

  A complete checkpoint may be damaged, since its files are not read here. All
  hosts must call this function, and get the same answer.
  """
  steps = []
  if is_host0():
    names = (p.parent.name for p in pathlib.Path(folder).glob(f'*/{RECORD}'))
    steps = sorted(int(name) for name in names if _STEP.fullmatch(name))
  if jax.process_count() == 1:
    return steps
  count = int(multihost_utils.broadcast_one_to_all(np.int32(len(steps))))
  padded = np.zeros(count, np.int32)
  padded[: len(steps)] = steps
  return multihost_utils.broadcast_one_to_all(padded).tolist()


def intact_steps(
  folder: str | os.PathLike, newest: int | None = None
) -> list[int]:
  """Returns the steps of intact checkpoints, in ascending order.

  Every file of a checkpoint is read to verify it, starting with the newest,
  until `newest` intact ones are found (None: all). All hosts must call this
  function, and get the same answer.
  """
  steps = reversed(complete_steps(folder))
  intact = (step for step in steps if not fault_of(folder, step))
  return sorted(itertools.islice(intact, newest))


def fault_of(folder: str | os.PathLike, step: int) -> str:
  """Returns a checkpoint's fault, or '' if intact; all hosts must call this."""
  fault = _first_fault(pathlib.Path(folder) / str(step)) if is_host0() else ''
  intact = host0_answer(not fault)
  return fault or ('' if intact else 'host 0 finds it damaged')


def best_step(workdir: Workdir, choice: str = _CHOICE) -> int | None:
  """Returns the verified best step; None if there is no complete checkpoint.

  The newest checkpoint records the best step; before any judging, it is itself
  the best. `choice` tells users how to choose another step. A DataError says
  that the newest or the best checkpoint is damaged or missing: another one is
  not used instead, because its results could be worse.
  """
  steps = complete_steps(workdir.checkpoints)
  if not steps:
    return None
  newest = steps[-1]
  check_checkpoint(workdir, newest, choice)
  best = read_meta(workdir.checkpoints, newest)['best_step']
  if best in (None, newest):
    return newest
  check_checkpoint(workdir, best, choice)
  return best


def check_checkpoint(
  workdir: Workdir, step: int, choice: str = _CHOICE
) -> None:
  """Verifies a checkpoint; all hosts must call this function.

  Raises DataError if it is missing or damaged, with the other steps and
  `choice`, which tells users how to choose one.
  """
  if fault := fault_of(workdir.checkpoints, step):
    others = [n for n in complete_steps(workdir.checkpoints) if n != step]
    advice = 'start the training again, which repairs the run'
    if others:
      steps = ', '.join(map(str, others))
      advice += f', or use another checkpoint with {choice} (N: {steps})'
    raise DataError(f'{workdir.checkpoints / str(step)}: {fault}; {advice}')


def keep_best(workdir: Workdir, newest: int, best: int | None) -> int:
  """Returns the step `best`, or `newest` if `best` is None, lost or damaged.

  In the last case, a warning says so, the newest checkpoint, which must be
  intact, records it, and a damaged checkpoint is moved to damaged/. All hosts
  must call this function.
  """
  folder = workdir.checkpoints
  fault = '' if best in (None, newest) else fault_of(folder, best)
  if fault and is_host0():
    if (path := folder / str(best)).is_dir():
      _move_away(path, fault, 'the newest checkpoint')
    else:
      logging.warning('%s: the best checkpoint (step %d) is lost', folder, best)
    meta = read_meta(folder, newest) | {'best_step': newest}
    replace_meta(folder / str(newest), meta)
  barrier('xjax:best')
  return newest if fault or best is None else best


def read_meta(folder: str | os.PathLike, step: int) -> dict[str, Any]:
  """Returns the position of training of an intact checkpoint."""
  record = pathlib.Path(folder) / str(step) / RECORD
  return json.loads(record.read_text('utf-8'))[_META]


def copy_for_loading(
  folder: str | os.PathLike, step: int, target: str | os.PathLike
) -> None:
  """Copies an intact checkpoint, without optimizer, as its own best step."""
  source = pathlib.Path(folder) / str(step)
  copy = pathlib.Path(target) / str(step)
  for item in ('params', 'averages'):
    if (source / item).is_dir():
      shutil.copytree(source / item, copy / item)
  write_record(copy, read_meta(folder, step) | {'best_step': step})


def remove_broken_steps(folder: pathlib.Path) -> None:
  """Removes what a kill left of Orbax's steps; moves damaged to damaged/."""
  for path in folder.iterdir():
    if path.is_symlink() or not path.is_dir():  # not Orbax's
      continue
    # A kill while Orbax deletes a step can leave arrays without a record.
    is_step = _STEP.fullmatch(path.name)
    is_rest = is_step and _PARTS.issuperset(os.listdir(path))
    if is_rest or _UNFINISHED.fullmatch(path.name):
      with writing(path):
        shutil.rmtree(path)
  # Checkpoints are verified from the newest, until an intact one is found.
  names = (p.name for p in folder.iterdir() if _STEP.fullmatch(p.name))
  has_intact = False
  for name in sorted(names, key=int, reverse=True):
    # Older steps are not read, but those without a record are moved away.
    if has_intact and (folder / name / RECORD).exists():
      continue
    fault = _first_fault(folder / name)
    has_intact |= not fault
    if fault:
      _move_away(folder / name, fault, 'the previous checkpoint')


def write_record(folder: pathlib.Path, meta: Mapping[str, Any]) -> None:
  """Writes checkpoint.json after all arrays are written."""
  files = {
    path.relative_to(folder).as_posix(): _size_and_crc(path)
    for item in ARRAYS
    for path in sorted((folder / item).rglob('*'))
    if path.is_file()
  }
  _write(folder, meta, files)


def replace_meta(folder: pathlib.Path, meta: Mapping[str, Any]) -> None:
  """Replaces the position; if killed here, the checkpoint stays complete."""
  old = json.loads((folder / RECORD).read_text('utf-8'))
  _write(folder, meta, old[_FILES])


def _write(folder, meta, files) -> None:
  record = {_META: dict(meta), _FILES: files}
  write_json(folder / RECORD, {**record, _SUM: _sum(record)})


def _sum(record: Mapping[str, Any]) -> int:
  return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _size_and_crc(path: pathlib.Path) -> list[int]:
  size, crc = 0, 0
  with path.open('rb') as file:
    while block := file.read(1 << 20):
      size, crc = size + len(block), zlib.crc32(block, crc)
  return [size, crc]


def _first_fault(folder: pathlib.Path) -> str:
  if not folder.is_dir():
    return 'no such checkpoint'
  try:
    record = json.loads((folder / RECORD).read_text('utf-8'))
    # A damaged file may also be a list or a number.
    # The sum is computed after pop, so over the other fields.
    intact = isinstance(record, dict) and record.pop(_SUM, 0) == _sum(record)
  except FileNotFoundError:
    return 'the checkpoint was never completed'
  except (OSError, ValueError, RecursionError):
    intact = False
  if not intact:
    return f'{RECORD} is damaged'
  for name, listed in sorted(record[_FILES].items()):
    try:
      if _size_and_crc(folder / name) != listed:
        return f'{name} is damaged'
    except FileNotFoundError:
      return f'{name} is missing'
    except OSError as error:
      return f'{name} cannot be read: {error.strerror}'
  return ''


def _move_away(path: pathlib.Path, fault: str, other: str) -> None:
  """Moves a checkpoint to damaged/, and warns that `other` is used instead."""
  target = path.parent / _DAMAGED / path.name
  for number in itertools.count(2):
    if not os.path.lexists(target):
      break
    target = target.with_name(f'{path.name}_{number}')
  logging.warning(
    'checkpoint %s is damaged (%s) and was moved to %s; %s is used instead',
    path,
    fault,
    target,
    other,
  )
  with writing(target):
    target.parent.mkdir(exist_ok=True)
    path.rename(target)
