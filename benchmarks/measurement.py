"""Measures time and memory, and runs sides that take turns in processes.

It imports no library, so that the sides of other libraries can use it too.
"""

from collections.abc import Callable, Mapping
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


def seconds_of(call: Callable[[], object]) -> float:
  """Returns the seconds of one call."""
  start = time.perf_counter()
  call()
  return time.perf_counter() - start


def memory(name: str) -> int:
  """Returns bytes of this process: now (VmRSS), or at the peak (VmHWM).

  getrusage's peak would include the memory of the process that started this.
  """
  status = pathlib.Path('/proc/self/status').read_text()
  return int(re.search(rf'{name}:\s+(\d+) kB', status)[1]) * 1024


def reset_peak() -> None:
  """Lets the peak of this process's memory start from what it holds now."""
  pathlib.Path('/proc/self/clear_refs').write_text('5')


def use_cores(count: int) -> None:
  """Lets this process, and those that it starts, use only some cores."""
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def peer_python() -> str:
  """Returns the Python that has the other libraries, and makes it if absent."""
  script = HERE.parent / 'tests' / 'parity' / 'peers.sh'
  done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
  return done.stdout.strip()


def outputs_of(command: list, **inputs: Any) -> dict[str, Any]:
  """Runs a process with arrays in IN.npz; returns those that it writes.

  Its last arguments are IN.npz and OUT.npz.
  """
  import numpy as np

  with tempfile.TemporaryDirectory() as folder:
    paths = f'{folder}/in.npz', f'{folder}/out.npz'
    np.savez(paths[0], **inputs)
    done = subprocess.run([*command, *paths], stderr=subprocess.PIPE, text=True)
    if done.returncode:
      sys.exit(done.stderr)
    return dict(np.load(paths[1], allow_pickle=False))


class Side:
  """A process that answers each line of its standard input with JSON."""

  def __init__(self, command: list, environment: Mapping[str, str] = {}):
    """Starts the process, with further variables in its environment."""
    self._process = subprocess.Popen(
      command,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=os.environ | environment,
    )

  def ask(self, *words: object) -> Any:
    """Returns the answer to a line with these words."""
    print(*words, file=self._process.stdin, flush=True)
    answer = self._process.stdout.readline()
    if not answer:
      sys.exit(
        f'this process has ended without an answer: {self._process.args}'
      )
    return json.loads(answer)

  def close(self) -> None:
    """Ends the process."""
    self._process.stdin.close()
    self._process.wait()
