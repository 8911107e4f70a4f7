"""Starts commands that train a sweep's runs here or as cluster jobs.

The command that submits a job also waits for the job, and exits with the exit
code of the job. When the command is asked to exit, it lets the job save first.
So a sweep can treat the command like any other process on this machine.

If the command is killed, the job continues. When the command is started again,
it finds the job by the name of the job.
"""

from collections.abc import Sequence
import dataclasses
import enum
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

from xjax.core.errors import ConfigError

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'


@dataclasses.dataclass(frozen=True)
class TrialPaths:
  workdir: pathlib.Path
  config: pathlib.Path
  log: pathlib.Path  # output of the run's process


class Launcher(enum.Enum):
  LOCAL = 'local'
  PRINT = 'print'
  SLURM = 'slurm'
  TPU = 'tpu'
  JOBSET = 'jobset'


# For each launcher that submits jobs: the script, the program that the script
# runs, and the environment variables that the script requires.
_JOBS = {
  Launcher.SLURM: ('slurm.sh', 'sbatch', ()),
  Launcher.TPU: ('run.sh', 'gcloud', ('ZONE', 'TYPE')),
  Launcher.JOBSET: ('jobset.sh', 'kubectl', ('IMAGE', 'ACCELERATOR', 'CLAIM')),
}


def is_job(launcher: Launcher) -> bool:
  """Returns whether a launcher submits jobs, which outlive this machine."""
  return launcher in _JOBS


def check_launcher(
  launcher: Launcher, workers: int, gpus: Sequence[str]
) -> None:
  """Raises a ConfigError if a launcher cannot start runs or ignores a flag."""
  name, fault = f'--launcher={launcher.value}', ''
  if launcher is Launcher.LOCAL:
    if gpus and workers > len(gpus):
      fault = f'--gpus: list {workers} GPUs, one per worker'
  elif launcher is Launcher.PRINT:
    if workers > 1 or gpus:
      fault = f'--workers, --gpus: leave them out; {name} starts nothing'
  elif gpus:
    fault = (
      f'--gpus: leave it out; {name} does not use the GPUs of this machine'
    )
  else:
    script, program, settings = _JOBS[launcher]
    missing = [key for key in settings if not os.environ.get(key)]
    if not shutil.which(program):
      fault = (
        f'{name}: the program {program} is not on this machine; install it'
      )
    elif missing:
      fault = (
        f'{name}: set {", ".join(missing)} in the environment; see the first '
        f'lines of {SCRIPTS / script}'
      )
  if fault:
    raise ConfigError(fault)


def train_words(launcher: Launcher) -> tuple[str, ...]:
  """Returns the first words of the command that trains a run."""
  python = sys.executable
  if launcher in (Launcher.TPU, Launcher.JOBSET):
    python = 'python'  # that of the machine that trains
  elif launcher is Launcher.SLURM:
    # The script finds an earlier job by the command of the job. So the command
    # must not depend on the name under which Python was started here.
    other = pathlib.Path(python).with_name('python3')
    python = str(other) if other.exists() else python
  return python, '-m', 'xjax', 'train'


def job_words(launcher: Launcher, place: TrialPaths) -> tuple[str, ...]:
  """Returns the words before a training command that submit it as a job."""
  if not is_job(launcher):
    return ()
  script = str(SCRIPTS / _JOBS[launcher][0])
  # No other workdir has this name. Kubernetes and TPU VMs require a valid
  # domain name.
  digest = hashlib.sha256(str(place.workdir).encode()).hexdigest()[:8]
  name = f'NAME=xjax-{place.workdir.name.replace("_", "-")}-{digest}'
  more = {Launcher.SLURM: [f'LOG={place.log}'], Launcher.TPU: ['DELETE=1']}
  return 'env', name, *more.get(launcher, ()), script


def start_process(
  command: Sequence[str],
  log: pathlib.Path,
  lock: int,
  job: bool,
  device: str = '',
) -> subprocess.Popen:
  """Starts a command, which is told if this process, the sweep, is killed.

  A command that trains a run is then asked to save and exit. Until it has
  ended, it keeps the file `lock` open, so that the folder of the sweep stays
  locked. A command of a `job` is killed, and the job continues. `device` is the
  only GPU that the command sees; '' shows all.
  """
  shown = {'CUDA_VISIBLE_DEVICES': device} if device else {}
  told = []
  if shutil.which('setpriv'):  # a program of Linux
    told = ['setpriv', '--pdeathsig', 'KILL' if job else 'TERM']
  with log.open('ab') as output:
    return subprocess.Popen(
      [*told, *command],
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=output,
      env=os.environ | shown,
      pass_fds=() if job else (lock,),
      # Ctrl-C in a terminal must reach only this process, which then asks the
      # command to save.
      start_new_session=True,
    )
