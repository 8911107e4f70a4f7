"""Writes checkpoints in the background, and verifies them before use.

The folder of a step holds:

  params      the parameters of the model
  optimizer   the step, and the slots of the optimizer and of label rows
  averages    the means of parameters, if means are kept
  data        the position of the batch iterator
  meta        JSON values, such as the best step
  files.json  the size and the CRC-32 of each file of the items above

files.json is written last. If it is missing, the process was killed before the
checkpoint was complete. If a file does not match its entry in files.json, the
checkpoint is damaged. To verify a checkpoint, all its files must be read. So a
checkpoint is verified only shortly before it is restored.
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

from absl import logging
import grain
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from xjax.core.atomic import WriteError, write_json, writing
from xjax.core.distributed import barrier, host0_says, is_host0
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.train.checkpoint_storage import (
  FILES,
  first_fault,
  hide_tracebacks,
  is_step,
  list_files,
  remove_unfinished,
  saving,
  size_and_crc,
)
from xjax.train.parameters import by_path, from_paths
from xjax.train.state import TrainState

_DAMAGED = 'damaged'
_JUDGED = 'meta/judged.json'  # replaces meta if files.json has this file
_SLOTS = 'row_slots'
_ITEMS = ('params', 'optimizer', 'averages', 'data', 'meta')


class _NewestAndBest:
  """Makes Orbax keep the best checkpoint and a few newest checkpoints."""

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
    """Returns the steps to keep; `steps` must be in ascending order."""
    return {*steps[-self.keep :], self.best}


class Checkpoints(contextlib.AbstractContextManager):
  """Saves and restores checkpoints; leaving the context waits for all saves."""

  def __init__(self, folder: str | os.PathLike, keep: int) -> None:
    """Opens a folder, and removes incomplete checkpoints of a killed run.

    If the newest checkpoints are damaged, they are moved to damaged/, with a
    warning. Checkpoints before the newest intact one are not verified. `keep`
    is the number of newest checkpoints to keep, besides the best.
    """
    self._folder = pathlib.Path(folder).absolute()
    self._policy = _NewestAndBest(keep)
    self._saving = 0
    if is_host0():
      with writing(self._folder):
        self._folder.mkdir(parents=True, exist_ok=True)
      _sweep(self._folder)
    barrier('xjax:checkpoints')
    hide_tracebacks()
    self._manager = ocp.CheckpointManager(
      self._folder,
      item_names=_ITEMS,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self._policy,
        async_options=ocp.AsyncOptions(
          post_finalization_callback=self._write_file_list,
          # If a folder cannot be made in the background, Orbax says so only
          # after five minutes.
          create_directories_asynchronously=False,
        ),
      ),
    )

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: types.TracebackType | None,
  ) -> None:
    try:
      with saving(self._folder):
        self._manager.close()
    except WriteError:
      if error is None:
        raise

  @property
  def steps(self) -> list[int]:
    return sorted(self._manager.all_steps())

  def save(
    self,
    state: TrainState,
    step: int,
    iterator: grain.DatasetIterator,
    meta: dict[str, Any],
    best: int | None,
  ) -> None:
    """Starts to write a checkpoint; all hosts must call this method.

    The method waits only until the previous checkpoint is written, and until
    the arrays are copied from the device, so the caller can then donate the
    state. If the step is saved already, only meta is replaced, because all
    other items depend only on the step. Raises WriteError if this checkpoint or
    the previous one cannot be written.

    Args:
      state: state of this step.
      step: optimizer steps taken.
      iterator: iterator of batches, which has yielded `step` batches.
      meta: the position of the loop, as JSON values.
      best: step whose checkpoint must not be deleted, or None.
    """
    with saving(self._folder):
      self._save(state, step, iterator, meta, best)

  def _save(
    self,
    state: TrainState,
    step: int,
    iterator: grain.DatasetIterator,
    meta: dict[str, Any],
    best: int | None,
  ) -> None:
    self._manager.wait_until_finished()
    if not self._folder.is_dir():  # Orbax would make a new folder
      raise WriteError(f'{self._folder}: cannot be written: it was deleted')
    self._policy.best = best
    if step in self.steps:
      # A step that was saved at SIGTERM, before its judging, is saved again
      # after its judging.
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
    """Reads the state and meta, and sets the iterator to the saved position.

    The restored arrays get the shardings of `like`. All processes saved the
    same position, so their number can differ from the number at the save.

    Raises:
      DataError: the parameters or their means do not have the names and shapes
        of `like`, or the checkpoint was saved only for predicting.
    """
    if not (self._folder / str(step) / 'optimizer').is_dir():
      raise DataError(
        f'{self._folder / str(step)}: was saved for predicting, without the '
        'optimizer; to train on, start a new workdir with '
        f'config.train.init_from={self._folder.parent}'
      )
    wanted = _leaves(like)
    for item in wanted.keys() - {'optimizer'}:
      _check_shapes(self._folder / str(step), item, wanted[item])
    arrays = {
      item: ocp.args.StandardRestore(leaves) for item, leaves in wanted.items()
    }
    with Progress(f'reading the checkpoint of step {step}'):
      items = self._manager.restore(step, args=ocp.args.Composite(**arrays))
    data = self._folder / str(step) / 'data'
    iterator.set_state(json.loads(min(data.glob('process_*.json')).read_text()))
    optimizer = dict(items['optimizer'])
    means = None
    if like.averages is not None:
      means = from_paths(like.averages, items['averages'])
    state = TrainState(
      step=optimizer.pop('step'),
      params=from_paths(like.params, items['params']),
      opt_state=from_paths(like.opt_state, optimizer),
      averages=means,
      row_slots=from_paths({_SLOTS: like.row_slots}, optimizer)[_SLOTS],
    )
    return state, read_meta(self._folder, step)

  def wait(self) -> None:
    """Waits until all checkpoints are written; WriteError if one cannot be."""
    with saving(self._folder):
      self._manager.wait_until_finished()

  def _write_file_list(self) -> None:
    """Writes files.json on host 0, in the background, after all other files.

    Orbax calls this function just before it gives the temporary folder its
    final name. So a folder with a final name always has files.json. With a
    version of Orbax that renames first, a process that is killed right after
    the renaming leaves a folder without files.json.
    """
    temporary = self._folder.glob(f'{self._saving}.*tmp*')
    folder = next(temporary, self._folder / str(self._saving))
    write_json(folder / FILES, list_files(folder, _ITEMS))


def complete_steps(folder: str | os.PathLike) -> list[int]:
  """Returns the steps of complete checkpoints, in ascending order.

  A complete checkpoint may be damaged, since its files are not read here. All
  hosts must call this function, and get the same answer.
  """
  steps = _complete(pathlib.Path(folder)) if is_host0() else []
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
  """Returns the fault of a step's checkpoint, or '' if it is intact.

  Host 0 reads every file. All hosts must call this function.
  """
  path = pathlib.Path(folder) / str(step)
  fault = first_fault(path) if is_host0() else ''
  intact = host0_says(not fault)
  return fault or ('' if intact else 'host 0 finds it damaged')


def record_best(folder: str | os.PathLike, step: int, best: int) -> None:
  """Records another best step in the newest checkpoint, `step`.

  It must be intact. All hosts must call this function.
  """
  if is_host0():
    meta = read_meta(folder, step) | {'best_step': best}
    _replace_meta(pathlib.Path(folder) / str(step), meta)
  barrier('xjax:best')


def move_if_damaged(folder: str | os.PathLike, step: int) -> bool:
  """Moves a step's checkpoint to damaged/ if it is damaged; returns whether.

  Host 0 reads every file, and warns of a move. All hosts must call this.
  """
  fault = fault_of(folder, step)
  if fault and is_host0():
    _move_away(pathlib.Path(folder), step, fault, 'the newest checkpoint')
  barrier('xjax:damaged')
  return bool(fault)


def read_meta(folder: str | os.PathLike, step: int) -> dict[str, Any]:
  """Returns the meta of an intact checkpoint, or what has replaced it."""
  path = pathlib.Path(folder).absolute() / str(step)
  if _JUDGED in json.loads((path / FILES).read_text('utf-8')):
    return json.loads((path / _JUDGED).read_text('utf-8'))
  return ocp.JsonCheckpointHandler().restore(path / 'meta')


def read_params(
  folder: str | os.PathLike,
  step: int,
  like: Any = None,
  *,
  verified: bool = False,
) -> dict[str, Any]:
  """Reads the parameters of a step by path, or their means if means are saved.

  All hosts must call this function. `like` has abstract parameters with
  shardings; with None, the result has NumPy arrays. `verified` skips the check
  that the checkpoint is intact.

  Raises:
    DataError: the checkpoint is damaged or does not exist, or its parameters do
      not have the names and shapes of `like`.
  """
  path = pathlib.Path(folder).absolute() / str(step)
  with Progress(f'reading the checkpoint of step {step}'):
    if not verified and (fault := fault_of(folder, step)):
      raise DataError(f'{path}: {fault}')
    if like is None:
      return read_some(folder, step, saved_params(folder, step))
    _check_shapes(path, 'params', by_path(like))
    return read_some(folder, step, by_path(like))


def saved_params(
  folder: str | os.PathLike, step: int
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes of an intact checkpoint's parameters by path."""
  leaves = _saved(pathlib.Path(folder).absolute() / str(step), 'params')
  return {
    name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    for name, leaf in leaves.items()
  }


def read_some(
  folder: str | os.PathLike,
  step: int,
  wanted: Mapping[str, jax.ShapeDtypeStruct],
) -> dict[str, Any]:
  """Reads some parameters of a step, or their means if means are saved.

  A parameter whose shape in `wanted` has a sharding is read onto its devices.
  Otherwise, every host reads the full parameter as a NumPy array. All hosts
  must call this function. Orbax's handlers read the arrays, because its manager
  might change the folder while another process trains the run.
  """
  path = pathlib.Path(folder).absolute() / str(step)
  target = {
    name: leaf if leaf.sharding else np.empty(leaf.shape, leaf.dtype)
    for name, leaf in wanted.items()
  }
  means = target.keys() & _saved(path, 'averages').keys()
  params = {}
  for item, names in (('params', target.keys() - means), ('averages', means)):
    if names:
      params |= _read_arrays(
        path / item, {name: target[name] for name in names}
      )
  return params


def copy_for_loading(
  folder: str | os.PathLike, step: int, target: str | os.PathLike
) -> None:
  """Copies an intact checkpoint to another folder of checkpoints, for loading.

  The optimizer and the position of the batch iterator are left out. The copy
  says that its own step is the best.
  """
  source = pathlib.Path(folder).absolute() / str(step)
  copy = pathlib.Path(target).absolute() / str(step)
  for item in ('params', 'averages', 'meta'):
    if (source / item).is_dir():
      shutil.copytree(source / item, copy / item)
  write_json(copy / FILES, list_files(copy, _ITEMS))
  _replace_meta(copy, read_meta(folder, step) | {'best_step': step})


def _read_arrays(path: pathlib.Path, target: dict[str, Any]) -> dict[str, Any]:
  args = ocp.args.PyTreeRestore(
    item=target,
    restore_args=ocp.checkpoint_utils.construct_restore_args(target),
    partial_restore=True,
  )
  return dict(ocp.PyTreeCheckpointHandler().restore(path, args=args))


def _saved(path: pathlib.Path, item: str) -> dict[str, Any]:
  """Returns the metadata of an item's arrays by path; {} if it is not saved."""
  if not (path / item).is_dir():
    return {}
  return dict(ocp.StandardCheckpointHandler().metadata(path / item).items())


def _check_shapes(
  path: pathlib.Path, item: str, target: dict[str, Any]
) -> None:
  if _shapes(_saved(path, item)) != _shapes(target):
    noun = item.replace('params', 'parameters')
    raise DataError(
      f'{path}: the {noun} of this checkpoint do not fit config.json, '
      'labels.jsonl and features/ of the workdir; is the checkpoint from '
      'another run?'
    )


def _shapes(leaves: dict[str, Any]) -> dict[str, tuple[int, ...]]:
  return {name: tuple(leaf.shape) for name, leaf in leaves.items()}


def _leaves(state: TrainState) -> dict[str, dict[str, Any]]:
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
  """Returns the ascending steps of the folders that have files.json."""
  if not folder.is_dir():
    return []
  names = (p.name for p in folder.iterdir() if (p / FILES).exists())
  return sorted(int(name) for name in names if is_step(name))


def _replace_meta(folder: pathlib.Path, meta: dict[str, Any]) -> None:
  """Replaces meta; if killed here, the checkpoint stays complete."""
  write_json(folder / _JUDGED, meta)
  listed = json.loads((folder / FILES).read_text('utf-8'))
  listed[_JUDGED] = size_and_crc(folder / _JUDGED)
  write_json(folder / FILES, listed)


def _sweep(folder: pathlib.Path) -> None:
  """Removes incomplete checkpoints, and moves damaged ones to damaged/.

  Checkpoints are verified from the newest, until an intact one is found.
  """
  remove_unfinished(folder, FILES, _ITEMS)
  for step in reversed(_complete(folder)):
    fault = first_fault(folder / str(step))
    if not fault:
      break
    _move_away(folder, step, fault, 'the previous checkpoint')


def _move_away(folder: pathlib.Path, step: int, fault: str, other: str) -> None:
  """Moves a checkpoint to damaged/, and warns that `other` is used instead."""
  path, target = folder / str(step), folder / _DAMAGED / str(step)
  for number in itertools.count(2):
    if not os.path.lexists(target):
      break
    target = target.with_name(f'{step}_{number}')
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
