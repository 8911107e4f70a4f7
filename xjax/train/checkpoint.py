"""Writes checkpoints in the background by Orbax, and reads them.

The folder of a step holds:

  params           the parameters of the model
  optimizer        the step, and the slots of the optimizer and of label rows
  averages         the means of parameters, if means are kept
  checkpoint.json  the position of training, and sums of all files (saved_steps)

checkpoint.json is written last. If it is missing, the process was killed before
the checkpoint was complete.
"""

from collections.abc import Iterator, Mapping
import contextlib
import os
import pathlib
from typing import Any

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp

from xjax.core.atomic import WriteError, writing
from xjax.core.distributed import barrier, is_host0
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.train.parameters import by_path, from_paths
from xjax.train.saved_steps import (
  ARRAYS,
  read_meta,
  remove_broken_steps,
  replace_meta,
  write_record,
)
from xjax.train.state import TrainState

_SLOTS = 'row_slots'
_BATCHES = 'batches'  # where the iterator of batches is, in meta


class Checkpoints(contextlib.AbstractContextManager):
  """Saves and restores checkpoints; leaving the context waits for all saves."""

  def __init__(self, folder: str | os.PathLike, keep: int) -> None:
    """Removes incomplete checkpoints; moves damaged newest ones to damaged/."""
    # Besides the best, the `keep` newest checkpoints stay. Those before the
    # newest intact one are not verified.
    self._folder = pathlib.Path(folder).absolute()
    self._keep = keep
    self._best: int | None = None
    self._has_saved = False
    self._saving = 0, {}  # step and meta
    if is_host0():
      with writing(self._folder):
        self._folder.mkdir(parents=True, exist_ok=True)
      remove_broken_steps(self._folder)
    barrier('xjax:checkpoints')
    self._manager = ocp.CheckpointManager(
      self._folder,
      item_names=ARRAYS,
      options=ocp.CheckpointManagerOptions(
        async_options=ocp.AsyncOptions(
          post_finalization_callback=self._write_record,
          # If a folder cannot be made in the background, Orbax says so only
          # after five minutes.
          create_directories_asynchronously=False,
        )
      ),
    )

  def __exit__(self, kind: object, error: object, trace: object) -> None:
    try:
      with _saving(self._folder):
        try:
          self._finish()
        finally:
          self._manager.close()
    except WriteError:
      if error is None:  # else that error, such as Preempted, says more
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

    It waits only until the previous checkpoint is written, and until the arrays
    are copied from the device, so the caller can then donate the state. If the
    step is saved already, only meta is replaced. `iterator` has yielded `step`
    batches, and the checkpoint of the step `best` is not deleted. A WriteError
    says that this checkpoint or the previous one cannot be written.
    """
    meta = {**meta, _BATCHES: iterator.get_state()}
    with _saving(self._folder):
      self._finish()
      if not self._folder.is_dir():  # Orbax would make a new folder
        raise WriteError(f'{self._folder}: cannot be written: it was deleted')
      again = step in self.steps
      self._best, self._has_saved = best, True
      if not again:
        self._saving = step, meta
        leaves = _leaves(state).items()
        arrays = {item: ocp.args.StandardSave(x) for item, x in leaves}
        args = ocp.args.Composite(**arrays)
        self._manager.save(step, force=True, args=args)
        return
      # A step that was saved at SIGTERM, before its judging, is saved again
      # after its judging.
      if is_host0():
        replace_meta(self._folder / str(step), meta)
      self._finish()

  def _finish(self) -> None:
    """Waits for the last save, and then deletes what is not kept any more."""
    # The last best checkpoint goes only after a later one names another.
    self._manager.wait_until_finished()
    if self._has_saved:  # otherwise the best step is not known
      for step in set(self.steps[: -self._keep]) - {self._best}:
        self._manager.delete(step)

  def restore(
    self, step: int, like: TrainState, iterator: grain.DatasetIterator
  ) -> tuple[TrainState, dict[str, Any]]:
    """Reads the state and meta, and sets the iterator to the saved position.

    The arrays get the shardings of `like`. All processes saved the same
    position, so their number can differ from that at the save. A DataError says
    that names or shapes are not those of `like`, or that the checkpoint was
    saved only for predicting.
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
    with Progress(f'reading the checkpoint of step {step}'):
      items = {
        item: _read_arrays(self._folder / str(step) / item, leaves)
        for item, leaves in wanted.items()
      }
    meta = read_meta(self._folder, step)
    iterator.set_state(meta.pop(_BATCHES))
    optimizer = items['optimizer']
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
    return state, meta

  def wait(self) -> None:
    """Waits until all checkpoints are written; WriteError if one cannot be."""
    with _saving(self._folder):
      self._finish()

  def _write_record(self) -> None:
    """Writes checkpoint.json on host 0, in the background, after the arrays."""
    # Orbax calls this just before it gives the temporary folder its final name.
    # So a folder with a final name always has checkpoint.json.
    step, meta = self._saving
    temporary = self._folder.glob(f'{step}.*tmp*')
    # On a bucket, Orbax writes into the folder with the final name.
    write_record(next(temporary, self._folder / str(step)), meta)


def read_params(
  folder: str | os.PathLike, step: int, like: Any = None
) -> dict[str, Any]:
  """Reads the parameters of a step by path, or their means if means are saved.

  The checkpoint must be intact. All hosts must call this function. `like` has
  abstract parameters with shardings; with None, the result has NumPy arrays. A
  DataError says that parameters lack the names and shapes of `like`.
  """
  path = pathlib.Path(folder).absolute() / str(step)
  with Progress(f'reading the checkpoint of step {step}'):
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


@contextlib.contextmanager
def _saving(folder: pathlib.Path) -> Iterator[None]:
  """Turns errors of the storage in this context into a WriteError."""
  with writing(folder):
    try:
      yield
    except ValueError as error:
      # TensorStore raises no other type. Orbax also raises it for files that
      # have vanished.
      raise OSError(str(error)[:200]) from error
