"""Runs a command in a process on this machine, never twice at the same time."""

from collections.abc import Sequence
import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess

from absl import logging

# The process writes its own id to the file $0 before it becomes the command. So
# the file has the id of a running command, even if the sweep is killed.
_WITH_PID = 'echo $$ > "$0" && exec "$@"'

_KILL_TIMEOUT = 5  # seconds to wait until a killed process has ended


class LocalProcess:
  """Starts a command, and reports when the command has ended.

  A command trains a run, or only waits for a cluster job that trains the run.
  While it runs, its pid file is locked. If the sweep is killed, the command
  continues, and the next sweep finds the file locked. An earlier command that
  trains a run then gets SIGTERM; the new command is started when it has saved
  and ended. An earlier command that only waits for a job is killed, and the new
  command waits for the job.
  """

  def __init__(
    self,
    command: Sequence[str],
    pid: pathlib.Path,
    log: pathlib.Path,
    device: str = '',
    job: bool = False,
  ) -> None:
    """Starts the command, or waits until an earlier command ends (see poll)."""
    # `device` is the only GPU that the command sees; '' shows all. `job` says
    # whether it only waits for a job.
    self._command = command
    self._pid, self._log = pid, log
    self._environment = dict(os.environ)
    if device:
      self._environment['CUDA_VISIBLE_DEVICES'] = device
    self._child: subprocess.Popen | None = None
    self._job = job
    self._asked = False
    self._leaving = False
    self.poll()

  def poll(self) -> int | None:
    """Returns the exit code (negative for a signal), or None before the end."""
    # When an earlier command has ended, poll starts this command.
    if self._child is not None:
      return self._child.poll()
    with self._pid.open('a') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        self._ask_to_leave()
      else:
        self._start(file.fileno())
    return None

  def terminate(self) -> None:
    """Asks the command, once, to save and exit; poll returns the code later."""
    if self._child is not None and not self._leaving:
      self._child.terminate()
    self._leaving = True

  def kill(self) -> None:
    """Kills the command and all its child processes; nothing is saved."""
    if self._child is None:
      self.terminate()
      # If the lock is free, the pid file is out of date. In this case, poll
      # starts a new child, and the file is not used.
      self.poll()
    if self._child is None:
      _kill_group(self._pid.read_text().strip())
    elif self._child.poll() is None:
      _kill_group(str(self._child.pid))
      with contextlib.suppress(subprocess.TimeoutExpired):
        self._child.wait(_KILL_TIMEOUT)

  def _start(self, lock: int) -> None:
    """Starts the command, which inherits the open file of the lock."""
    # A process that should exit is not started at all.
    words = ('true',) if self._leaving else self._command
    with self._log.open('ab') as log:
      self._child = subprocess.Popen(
        ['/bin/sh', '-c', _WITH_PID, str(self._pid), *words],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=self._environment,
        # The lock lasts as long as a process has the file open.
        pass_fds=(lock,),
        # Ctrl-C in a terminal must reach only this process, which then asks
        # the command to save.
        start_new_session=True,
      )

  def _ask_to_leave(self) -> None:
    """Asks an earlier command, once, to exit; kills it if it awaits a job."""
    if self._asked:
      return
    # The file is empty for a moment before the id is written. In this case, the
    # next poll asks again.
    if text := self._pid.read_text().strip():
      self._asked = True
      if self._job:
        _kill_group(text)
        return
      logging.info(
        'process %s, which an earlier sweep started, still trains %s; waiting '
        'until the process has saved and ended',
        text,
        self._pid.stem,
      )
      with contextlib.suppress(ProcessLookupError):
        os.kill(int(text), signal.SIGTERM)


def _kill_group(leader: str) -> None:
  """Kills a process group; `leader` is its id, or '' if none is written yet."""
  if leader:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(int(leader), signal.SIGKILL)
