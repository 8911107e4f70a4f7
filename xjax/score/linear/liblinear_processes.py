"""Processes that train batches of labels by LIBLINEAR.

They import no JAX, which would cost each seconds and memory.
"""

from collections.abc import Callable
import contextlib
import multiprocessing
from multiprocessing import connection
import pathlib
import shutil
import signal
import sys

import tqdm

from xjax.core.errors import UserError
from xjax.score.linear.liblinear_batches import Problem, Settings, save_batch
from xjax.score.linear.part_files import PartFiles

_POLL = 0.2  # seconds between questions whether to stop
_PATIENCE = 30  # seconds until a process that was told to end is killed
_SPAWN = multiprocessing.get_context('spawn')  # a fork would copy JAX's locks


def train_in_processes(
  problem: Problem,
  batches: list[range],
  settings: Settings,
  parts: PartFiles,
  between: Callable[[], None],
  bar: tqdm.tqdm,
  workers: int,
) -> None:
  """Trains in processes, which end with this one.

  Args:
    problem: of all labels.
    batches: of labels, each kept as a part.
    settings: of all labels.
    parts: keeps them.
    between: called all _POLL seconds; what it raises ends all processes, which
      takes them as long as one label, or _PATIENCE.
    bar: of labels.
    workers: processes, at most.

  Raises:
    UserError: one of them failed.
  """
  folder = parts.folder / 'problem'
  problem.save(folder)
  shared = _Shared()
  arguments = (folder, batches, settings, parts)
  processes = [
    _SPAWN.Process(target=_work, args=(shared, *arguments), daemon=True)
    for _ in range(min(workers, len(batches)))
  ]
  first = bar.n
  try:
    for process in processes:
      process.start()
    while living := [p for p in processes if p.is_alive()]:
      connection.wait([p.sentinel for p in living], _POLL)
      bar.update(first + shared.labels.value - bar.n)
      between()
      _raise_failure(shared, processes)
    _raise_failure(shared, processes)
  finally:
    shared.stop.set()
    for process in processes:
      if process.pid is not None:
        process.join(_PATIENCE)
        process.kill()
        process.join()
    shutil.rmtree(folder, ignore_errors=True)


class _Stopped(Exception):
  """A process was told to end, or its parent is gone."""


class _Shared:
  """What processes count together, and are told."""

  def __init__(self) -> None:
    self.taken = _SPAWN.Value('q', 0)  # batches
    self.labels = _SPAWN.Value('q', 0)  # that are done
    self.stop = _SPAWN.Event()
    self.failures = _SPAWN.SimpleQueue()

  def next_batch(self) -> int:
    """One that nobody has taken."""
    with self.taken.get_lock():
      self.taken.value += 1
      return self.taken.value - 1

  def label_done(self) -> None:
    """Counts a label; raises _Stopped where this process is to end."""
    with self.labels.get_lock():
      self.labels.value += 1
    parent = multiprocessing.parent_process()
    if self.stop.is_set() or not parent.is_alive():
      raise _Stopped


def _work(
  shared: _Shared,
  folder: pathlib.Path,
  batches: list[range],
  settings: Settings,
  parts: PartFiles,
) -> None:
  """Of one process: trains until no batch is left, or it is told to end."""
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)  # its parent decides
  with contextlib.suppress(_Stopped):
    try:
      problem = Problem.mapped(folder)
      while (at := shared.next_batch()) < len(batches):
        save_batch(problem, batches[at], settings, parts, shared.label_done)
    except UserError as error:
      shared.failures.put(str(error))
      sys.exit(1)


def _raise_failure(
  shared: _Shared, processes: list[multiprocessing.Process]
) -> None:
  """Raises UserError where a process has failed."""
  if not shared.failures.empty():
    raise UserError(shared.failures.get())
  codes = [p.exitcode for p in processes if p.exitcode]
  if codes:
    raise UserError(
      f'a process that trained labels died (exit code {codes[0]}); if memory '
      'ran out: fewer workers need less'
    )
