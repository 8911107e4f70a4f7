"""Checkpoints: written in the background, verified before they are used.

A step's folder holds params, optimizer, averages (where means of parameters
are kept), data (the batch iterator), meta (JSON) and files.json, the size and
CRC-32 of the others' files. The latter is written last: a folder without it was
cut off by a kill, one that contradicts it is damaged. Only a checkpoint that is
to be restored is read to know whether it is.
"""

from collections.abc import Mapping, Sequence
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import types
from typing import Any
import zlib

from absl import logging
import grain
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from xjax.core.atomic import write_json
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.train.parameters import by_path, from_paths
from xjax.train.state import TrainState

_FILES = 'files.json'
_DAMAGED = 'damaged'
_JUDGED = 'meta/judged.json'  # in the place of meta, once files.json lists it
_SLOTS = 'row_slots'
_ITEMS = ('params', 'optimizer', 'averages', 'data', 'meta')


class _NewestAndBest:
  """Preserves the newest few checkpoints, and the best whatever its age."""

  def __init__(self, keep: int) -> None:
    self.keep = keep
    self.best: int | None = None

  def should_preserve(
    self, checkpoints: Sequence[Any], *, context: Any
  ) -> Sequence[bool]:
    del context
    kept = self.kept([info.step for info in checkpoints])
    return [info.step in kept for info in checkpoints]

  def kept(self, steps: Sequence[int]) -> set[int]:
    """Those of ascending steps that stay."""
    return {*steps[-self.keep :], self.best}


class Checkpoints(contextlib.AbstractContextManager):
  """The checkpoints of a run that trains; leaving it waits for the last."""

  def __init__(self, folder: str | os.PathLike, keep: int) -> None:
    """Opens a folder; what a killed run left half-written there goes.

    Damaged checkpoints that are newer than the newest intact one are moved to
    damaged/, and said.

    Args:
      folder: made where absent.
      keep: newest checkpoints to keep, beside the best.
    """
    self._folder = pathlib.Path(folder).absolute()
    self._policy = _NewestAndBest(keep)
    self._saving = 0
    if is_host0():
      self._folder.mkdir(parents=True, exist_ok=True)
      _sweep(self._folder)
    barrier('xjax:checkpoints')
    self._manager = ocp.CheckpointManager(
      self._folder,
      item_names=_ITEMS,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self._policy,
        async_options=ocp.AsyncOptions(
          post_finalization_callback=self._write_file_list
        ),
      ),
    )

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    self._manager.close()

  @property
  def steps(self) -> list[int]:
    """Steps of the checkpoints, ascending."""
    return sorted(self._manager.all_steps())

  def save(
    self,
    state: TrainState,
    step: int,
    iterator: grain.DatasetIterator,
    meta: dict[str, Any],
    best: int | None,
  ) -> None:
    """Starts writing a checkpoint; all hosts must call it.

    Only the copy out of the device is waited for (and the previous save). Of a
    step that is saved already, meta alone is replaced: the rest follows from
    the step.

    Args:
      state: of this step; may be donated as soon as this returns.
      step: optimizer steps taken.
      iterator: batches, `step` of them taken.
      meta: JSON, the loop's own state.
      best: step whose checkpoint must not be deleted.
    """
    self._manager.wait_until_finished()
    self._policy.best = best
    if step in self.steps:
      # Preempted before it was judged, it is saved again afterwards.
      if is_host0():
        _replace_meta(self._folder / str(step), meta)
      for other in set(self.steps) - self._policy.kept(self.steps):
        self._manager.delete(other)
      return
    self._saving = step
    arrays = {
      item: ocp.args.StandardSave(leaves)
      for item, leaves in _leaves(state).items()
    }
    self._manager.save(
      step,
      force=True,
      args=ocp.args.Composite(
        **arrays,
        data=grain.checkpoint.CheckpointSave(iterator),
        meta=ocp.args.JsonSave(meta),
      ),
    )

  def restore(
    self, step: int, like: TrainState, iterator: grain.DatasetIterator
  ) -> tuple[TrainState, dict[str, Any]]:
    """Reads a checkpoint and puts the iterator where it was.

    Args:
      step: one of steps.
      like: abstract state with the shardings to restore to.
      iterator: set to the state saved; a run that has another number of
        processes by now reads the state of one of those before, which is
        the same for all.

    Returns:
      The state and meta.

    Raises:
      DataError: its parameters, or their means, are not those of like.
    """
    wanted = _leaves(like)
    for item in wanted.keys() - {'optimizer'}:
      _check_shapes(self._folder / str(step), item, wanted[item])
    arrays = {
      item: ocp.args.StandardRestore(leaves) for item, leaves in wanted.items()
    }
    with Progress(f'reading the checkpoint of step {step}'):
      found = self._manager.restore(step, args=ocp.args.Composite(**arrays))
    data = self._folder / str(step) / 'data'
    iterator.set_state(json.loads(min(data.glob('process_*.json')).read_text()))
    optimizer = dict(found['optimizer'])
    means = None
    if like.averages is not None:
      means = from_paths(like.averages, found['averages'])
    state = TrainState(
      step=optimizer.pop('step'),
      params=from_paths(like.params, found['params']),
      opt_state=from_paths(like.opt_state, optimizer),
      averages=means,
      row_slots=from_paths({_SLOTS: like.row_slots}, optimizer)[_SLOTS],
    )
    return state, read_meta(self._folder, step)

  def wait(self) -> None:
    """Waits until everything saved is on disk."""
    self._manager.wait_until_finished()

  def _write_file_list(self) -> None:
    """Runs on host 0, in the background, once all items are written.

    Orbax calls it just before it renames the temporary folder into place, so
    that no complete folder lacks its list; should another version call it
    just after, the gap is that of a kill before the rename.
    """
    temporary = self._folder.glob(f'{self._saving}.*tmp*')
    folder = next(temporary, self._folder / str(self._saving))
    write_json(folder / _FILES, _list_files(folder))


def complete_steps(folder: str | os.PathLike) -> list[int]:
  """Steps whose checkpoints were completed, damaged or not, ascending.

  All hosts call it and agree; the files are not read.
  """
  found = _complete(pathlib.Path(folder)) if is_host0() else []
  if jax.process_count() == 1:
    return found
  count = int(multihost_utils.broadcast_one_to_all(np.int32(len(found))))
  padded = np.zeros(count, np.int32)
  padded[: len(found)] = found
  return multihost_utils.broadcast_one_to_all(padded).tolist()


def intact_steps(
  folder: str | os.PathLike, newest: int | None = None
) -> list[int]:
  """Steps whose checkpoints are intact, ascending; all hosts agree.

  Args:
    folder: of all checkpoints.
    newest: how many to look for, from the newest on; None: all. Every file
      of a checkpoint is read to know that it is intact.
  """
  steps = reversed(complete_steps(folder))
  intact = (step for step in steps if not fault_of(folder, step))
  return sorted(itertools.islice(intact, newest))


def fault_of(folder: str | os.PathLike, step: int) -> str:
  """What is wrong with a step's checkpoint; empty: nothing.

  All hosts call it and agree; host 0 reads every file of the checkpoint.
  """
  path = pathlib.Path(folder) / str(step)
  fault = _fault(path) if is_host0() else ''
  if jax.process_count() > 1:
    intact = multihost_utils.broadcast_one_to_all(np.bool_(not fault))
    fault = fault or ('' if intact else 'host 0 finds it damaged')
  return fault


def move_if_damaged(folder: str | os.PathLike, step: int) -> bool:
  """Moves the checkpoint of a step to damaged/ if it is, and says so.

  All hosts call it and agree; host 0 reads every file of the checkpoint.
  """
  fault = fault_of(folder, step)
  if fault and is_host0():
    _move_away(pathlib.Path(folder), step, fault, 'the newest')
  barrier('xjax:damaged')
  return bool(fault)


def read_meta(folder: str | os.PathLike, step: int) -> dict[str, Any]:
  """The meta that was saved last with a step, whose checkpoint is intact."""
  path = pathlib.Path(folder).absolute() / str(step)
  if _JUDGED in json.loads((path / _FILES).read_text('utf-8')):
    return json.loads((path / _JUDGED).read_text('utf-8'))
  return ocp.JsonCheckpointHandler().restore(path / 'meta')


def read_params(
  folder: str | os.PathLike,
  step: int,
  like: Any = None,
  *,
  verified: bool = False,
) -> dict[str, Any]:
  """The parameters of a step, by path; the means of those that have one.

  All hosts call it.

  Args:
    folder: of all checkpoints.
    step: the one to read.
    like: abstract parameters with shardings, or None for NumPy arrays.
    verified: whether it is known to be intact, and is not read to see that.

  Raises:
    DataError: the checkpoint is damaged or not there, or its parameters are
      not those of like.
  """
  path = pathlib.Path(folder).absolute() / str(step)
  with Progress(f'reading the checkpoint of step {step}'):
    if not verified and (fault := fault_of(folder, step)):
      advice = '; move it away to use another one' if path.is_dir() else ''
      raise DataError(f'{path}: {fault}{advice}')
    if like is None:
      return read_some(folder, step, saved_params(folder, step))
    _check_shapes(path, 'params', by_path(like))
    return read_some(folder, step, by_path(like))


def saved_params(
  folder: str | os.PathLike, step: int
) -> dict[str, jax.ShapeDtypeStruct]:
  """The parameters of a step by path, whose checkpoint is intact."""
  found = _saved(pathlib.Path(folder).absolute() / str(step), 'params')
  return {
    name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    for name, leaf in found.items()
  }


def read_some(
  folder: str | os.PathLike,
  step: int,
  wanted: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, Any]:
  """Some of the parameters of a step, as read_params.

  Handlers read it, not a manager: nothing is changed beside a run that may
  be training.

  Args:
    folder, step: of an intact checkpoint; all hosts call.
    wanted: by path, each to be placed as its sharding says; without one it is
      read as a NumPy array, whole on every host.
  """
  path = pathlib.Path(folder).absolute() / str(step)
  target = {
    name: leaf if leaf.sharding else np.empty(leaf.shape, leaf.dtype)
    for name, leaf in wanted.items()
  }
  means = target.keys() & _saved(path, 'averages').keys()
  found = {}
  for item, names in (('params', target.keys() - means), ('averages', means)):
    if names:
      found |= _read_arrays(path / item, {name: target[name] for name in names})
  return found


def _read_arrays(path: pathlib.Path, target: dict[str, Any]) -> dict[str, Any]:
  args = ocp.args.PyTreeRestore(
    item=target,
    restore_args=ocp.checkpoint_utils.construct_restore_args(target),
    partial_restore=True,
  )
  return dict(ocp.PyTreeCheckpointHandler().restore(path, args=args))


def _saved(path: pathlib.Path, item: str) -> dict[str, Any]:
  """What there is of an item, by path; empty: there is no such item."""
  if not (path / item).is_dir():
    return {}
  return dict(ocp.StandardCheckpointHandler().metadata(path / item).items())


def _check_shapes(
  path: pathlib.Path, item: str, target: dict[str, Any]
) -> None:
  if _shapes(_saved(path, item)) != _shapes(target):
    named = item.replace('params', 'parameters')
    raise DataError(
      f'{path}: its {named} are not those that config.json, labels.jsonl '
      'and features/ of this workdir ask for'
    )


def _shapes(leaves: dict[str, Any]) -> dict[str, tuple[int, ...]]:
  return {name: tuple(leaf.shape) for name, leaf in leaves.items()}


def _leaves(state: TrainState) -> dict[str, dict[str, Any]]:
  """Arrays by item and path; no means where none are kept."""
  leaves = {
    'params': by_path(state.params),
    'optimizer': {
      'step': state.step,
      **by_path(state.opt_state),
      **by_path({_SLOTS: state.row_slots}),
    },
  }
  if state.averages is not None:
    leaves['averages'] = by_path(state.averages)
  return leaves


def _complete(folder: pathlib.Path) -> list[int]:
  if not folder.is_dir():
    return []
  paths = (path for path in folder.iterdir() if path.name.isdecimal())
  return sorted(int(path.name) for path in paths if (path / _FILES).exists())


def _replace_meta(folder: pathlib.Path, meta: dict[str, Any]) -> None:
  """Gives a complete checkpoint another meta; a kill leaves it complete."""
  write_json(folder / _JUDGED, meta)
  listed = json.loads((folder / _FILES).read_text('utf-8'))
  listed[_JUDGED] = _size_and_crc(folder / _JUDGED)
  write_json(folder / _FILES, listed)


def _list_files(folder: pathlib.Path) -> dict[str, list[int]]:
  """Relative path -> size in bytes and CRC-32."""
  return {
    path.relative_to(folder).as_posix(): _size_and_crc(path)
    for item in _ITEMS
    for path in sorted((folder / item).rglob('*'))
    if path.is_file()
  }


def _size_and_crc(path: pathlib.Path) -> list[int]:
  size, crc = 0, 0
  with path.open('rb') as file:
    while block := file.read(1 << 20):
      size, crc = size + len(block), zlib.crc32(block, crc)
  return [size, crc]


def _fault(folder: pathlib.Path) -> str:
  """What is wrong with a checkpoint's files; empty: nothing."""
  if not folder.is_dir():
    return 'no such checkpoint'
  try:
    expected = json.loads((folder / _FILES).read_text('utf-8'))
  except FileNotFoundError:
    return 'the checkpoint was never completed'
  except (OSError, ValueError):
    return f'{_FILES} is damaged'
  for name in sorted(expected):
    if not (folder / name).is_file():
      return f'{name} is missing'
    if _size_and_crc(folder / name) != expected[name]:
      return f'{name} is damaged'
  return ''


def _sweep(folder: pathlib.Path) -> None:
  """Takes unfinished checkpoints, and damaged newest ones, out of the way."""
  for path in sorted(folder.iterdir()):
    number, _, suffix = path.name.partition('.')
    unfinished = suffix or not (path / _FILES).exists()
    if number.isdecimal() and unfinished:
      shutil.rmtree(path)
  for step in reversed(_complete(folder)):
    fault = _fault(folder / str(step))
    if not fault:
      break
    _move_away(folder, step, fault, 'the one before')


def _move_away(folder: pathlib.Path, step: int, fault: str, other: str) -> None:
  path, kept = folder / str(step), folder / _DAMAGED / str(step)
  logging.warning(
    'checkpoint %s is damaged (%s): moved to %s, %s is used',
    path,
    fault,
    kept,
    other,
  )
  shutil.rmtree(kept, ignore_errors=True)
  kept.parent.mkdir(exist_ok=True)
  path.rename(kept)
