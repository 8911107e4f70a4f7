"""A command in a process of its own on this machine, never twice at once."""

from collections.abc import Sequence
import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess

from absl import logging

# The process notes its own id before it becomes the command: nobody can be
# killed between the two.
_NOTED = 'echo $$ > "$0" && exec "$@"'

_DIES_WITHIN = 5  # seconds

# Of a job's command that SIGTERM has ended, as it did not listen yet.
_UNHEARD = -signal.SIGTERM, 128 + signal.SIGTERM


class LocalProcess:
  """Starts a command, and tells when it is done.

  While the command lives it has its pid file locked. Should the process that
  started it be killed, the next one finds it by that, asks it to leave, as
  SIGTERM does, and starts the command again when it has left. One that waits
  for a job is killed instead: the job goes on, and is waited for again. Where
  none heard that it was asked to leave, it is started with LEAVE=1 in its
  environment: only that ends a job which an earlier one has made.
  """

  def __init__(
    self,
    command: Sequence[str],
    pid: pathlib.Path,
    log: pathlib.Path,
    device: str = '',
    job: bool = False,
  ) -> None:
    """Starts it, or begins to wait until it can be started.

    Args:
      command: its words.
      pid: file for its process id.
      log: file that what it prints is added to.
      device: number of the GPU it sees; '': what this process sees.
      job: whether it only waits for a job elsewhere, and finds it again.
    """
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
    """Its exit code; None while it is at work. A signal's is negative."""
    if self._child is not None:
      code = self._child.poll()
      if not (self._job and self._leaving and code in _UNHEARD):
        return code
      self._child = None
    with self._pid.open('a') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        self._ask_to_leave()
      else:
        self._start(file.fileno())
    return None

  def terminate(self) -> None:
    """Asks it to save and leave; it is done when poll says so."""
    self._leaving = True
    if self._child is not None:
      self._child.terminate()

  def kill(self) -> None:
    """Ends it at once, with all it has started; nothing is saved."""
    if self._child is None:
      self.terminate()
      self.poll()  # the id in the file is another's once the lock is free
    if self._child is None:
      _kill_group(self._pid.read_text().strip())
    elif self._child.poll() is None:
      _kill_group(str(self._child.pid))
      with contextlib.suppress(subprocess.TimeoutExpired):
        self._child.wait(_DIES_WITHIN)

  def _start(self, lock: int) -> None:
    with self._log.open('ab') as log:
      self._child = subprocess.Popen(
        ['/bin/sh', '-c', _NOTED, str(self._pid), *self._words()],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=self._environment,
        # The lock lasts as long as a process has the file open.
        pass_fds=(lock,),
        # Ctrl-C in a terminal is for us alone: we ask it to save.
        start_new_session=True,
      )

  def _words(self) -> Sequence[str]:
    if not self._leaving:
      return self._command
    # Of a process here there is nothing to start any more.
    return ('env', 'LEAVE=1', *self._command) if self._job else ('true',)

  def _ask_to_leave(self) -> None:
    if self._asked:
      return
    # Empty for a moment while it is written: then it is asked next time.
    if text := self._pid.read_text().strip():
      self._asked = True
      if self._job:
        _kill_group(text)
        return
      logging.info(
        'process %s of a sweep that was killed is still at work on %s: waiting '
        'until it has saved and left',
        text,
        self._pid.stem,
      )
      with contextlib.suppress(ProcessLookupError):
        os.kill(int(text), signal.SIGTERM)


def _kill_group(leader: str) -> None:
  """Each command leads a group; '' where its id is not written yet."""
  if leader:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(int(leader), signal.SIGKILL)
