"""The scripts, run as a user runs them, beside stand-ins of the clusters."""

from collections.abc import Callable
import pathlib
import subprocess
import time

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'

# A command that ends with the next of the codes it is given, and notes on which
# worker or task it ran, and with which words. Where that is `wait` it waits to
# be asked to leave.
JOB = """
echo "${HOME##*/} $*" >> STARTS
code=$(sed -n "$(grep -c "^${HOME##*/} " STARTS)p" CODES)
echo "out $code"
sleep 3 > /dev/null 2>&1 & # what a command leaves behind
trap 'echo saved; exit 75' TERM
while [ "$code" = wait ] && [ $SECONDS -lt 60 ]; do sleep 0.05; done
[ "$code" != 1 ] || echo 'error: not today'
exit "$code"
"""


class Job:
  """A command for the scripts."""

  def __init__(self, folder: pathlib.Path) -> None:
    self._folder = folder
    self._starts, self._codes = folder / 'starts', folder / 'codes'
    path = folder / 'job.sh'
    text = JOB.replace('STARTS', str(self._starts))
    path.write_text(text.replace('CODES', str(self._codes)))
    self.words = 'bash', str(path), '--workdir=a b'

  def ends_with(self, *codes: int | str) -> None:
    self._codes.write_text('\n'.join(map(str, codes)) + '\n')

  @property
  def starts(self) -> list[str]:
    return (
      self._starts.read_text().splitlines() if self._starts.exists() else []
    )


@pytest.fixture
def job(tmp_path, monkeypatch) -> Job:
  monkeypatch.setenv('HOME', str(tmp_path / 'here'))
  return Job(tmp_path)


@pytest.fixture
def begin(cluster, tmp_path) -> Callable[..., subprocess.Popen]:
  """Starts a script; its output goes to `said.txt`."""

  def start(script: str, *words: str) -> subprocess.Popen:
    with (tmp_path / 'said.txt').open('a') as said:
      return subprocess.Popen(
        [SCRIPTS / script, *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
      )

  return start


@pytest.fixture
def run(begin) -> Callable[..., int]:
  """Runs a script to its end, and gives its exit code."""
  return lambda *words: begin(*words).wait(60)


@pytest.fixture
def said(tmp_path) -> Callable[[], str]:
  return lambda: (tmp_path / 'said.txt').read_text()


def _wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
  until = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < until
    time.sleep(0.01)


@pytest.fixture
def wait_for() -> Callable[..., None]:
  return _wait_for
