"""The scripts, run as a user runs them, beside stand-ins of the clusters."""

from collections.abc import Callable
import os
import pathlib
import signal
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'

# A command that ends with the next of the codes it is given, and notes on which
# worker or task it ran, and with which words. Where that is `wait` it waits to
# be asked to leave.
JOB = """
echo "${HOME##*/} $*" >> STARTS
code=$(sed -n "$(grep -c "^${HOME##*/} " STARTS)p" CODES)
echo "out $code"
sleep 2 > /dev/null 2>&1 & # what a command leaves behind
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
    self.spelled = f'bash {path} --workdir=a\\ b'

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
        # Shells ignore it in the background, which tests may run in.
        ['env', '--default-signal=INT', SCRIPTS / script, *words],
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
def at_work(begin, job, wait_for) -> Callable[..., subprocess.Popen]:
  """Starts a script with the job, and waits for the start of all its tasks."""

  def start(script: str, tasks: int = 1) -> subprocess.Popen:
    process = begin(script, *job.words)
    wait_for(lambda: len(job.starts) == tasks)
    return process

  return start


def kill(process: subprocess.Popen) -> None:
  """Kills a script and the programs that it has started here."""
  os.killpg(process.pid, signal.SIGKILL)
  process.wait()


# A program that fails at first where it is called with a word.
STUMBLES = """#!/bin/sh
case "$*" in *"WORD"*)
  if [ -s TIMES ]; then
    sed -i 1d TIMES
    exit 1
  fi ;;
esac
exec PROGRAM "$@"
"""


@pytest.fixture
def stumble(cluster) -> Callable[[str, str, int], None]:
  """Has a program of the cluster fail some times, where called with a word."""

  def prepare(program: str, word: str, times: int) -> None:
    path = cluster.folder / 'bin' / program
    behind = cluster.folder / 'behind'
    behind.mkdir()
    text = STUMBLES.replace('PROGRAM', str(path.rename(behind / program)))
    text = text.replace('TIMES', str(behind / 'times')).replace('WORD', word)
    (behind / 'times').write_text('again\n' * times)
    path.write_text(text)
    path.chmod(0o755)

  return prepare


@pytest.fixture
def said(tmp_path) -> Callable[[], str]:
  return lambda: (tmp_path / 'said.txt').read_text()
