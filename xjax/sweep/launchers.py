"""Where the runs of a sweep train: here, or as jobs of a cluster.

A job's command waits until the job has ended, passes on its exit code, and lets
it save when it is asked to leave itself. So to a sweep it is a process on this
machine like any other. A job that outlives it is found again by its name.
"""

from collections.abc import Sequence
import enum
import hashlib
import os
import pathlib
import shutil
import sys

from xjax.core.errors import ConfigError
from xjax.sweep.folder import Place

SCRIPTS = pathlib.Path(__file__).parents[2] / 'tpu_scripts'
_TRAIN = '-m', 'experiments.train'


class Launcher(enum.Enum):
  """How a run is started."""

  LOCAL = 'local'
  PRINT = 'print'
  SLURM = 'slurm'
  TPU = 'tpu'
  JOBSET = 'jobset'


# Of those on a cluster: the script, the program by which it asks the cluster,
# and the settings without which it does not start.
_JOBS = {
  Launcher.SLURM: ('slurm.sh', 'sbatch', ()),
  Launcher.TPU: ('run.sh', 'gcloud', ('ZONE', 'TYPE')),
  Launcher.JOBSET: ('jobset.sh', 'kubectl', ('IMAGE', 'ACCELERATOR', 'CLAIM')),
}


def is_job(launcher: Launcher) -> bool:
  """Whether runs are jobs, which outlive what waits for them here."""
  return launcher in _JOBS


def check_launcher(
  launcher: Launcher, workers: int, gpus: Sequence[str]
) -> None:
  """Refuses flags that a launcher does not heed, and one that cannot start.

  Args:
    launcher: of all runs.
    workers: runs at a time.
    gpus: numbers of GPUs of this machine, each once.

  Raises:
    ConfigError: saying which flag, program or setting it is.
  """
  name = f'--launcher={launcher.value}'
  match launcher:
    case Launcher.LOCAL:
      if gpus and workers > len(gpus):
        raise ConfigError(f'--gpus: needs {workers}, one per worker')
    case Launcher.PRINT:
      if workers > 1 or gpus:
        raise ConfigError(f'--workers, --gpus: {name} starts nothing')
    case _:
      if gpus:
        raise ConfigError(f'--gpus: are of this machine; {name} is not')
      _check_job(name, *_JOBS[launcher])


def train_words(launcher: Launcher) -> tuple[str, ...]:
  """The words of the command that trains a config, where it trains."""
  match launcher:
    case Launcher.TPU | Launcher.JOBSET:
      return 'python', *_TRAIN  # of the installation there
    case Launcher.SLURM:
      # However it was called here: a job is known by its words.
      python = pathlib.Path(sys.executable).with_name('python3')
      return str(python) if python.exists() else sys.executable, *_TRAIN
    case _:
      return sys.executable, *_TRAIN


def job_words(launcher: Launcher, place: Place) -> tuple[str, ...]:
  """What stands before the words that train, to make a run of them a job."""
  if not is_job(launcher):
    return ()
  script = str(SCRIPTS / _JOBS[launcher][0])
  settings = [f'NAME={_job_name(place.workdir)}']
  match launcher:
    case Launcher.SLURM:
      settings.append(f'LOG={place.log}')
    case Launcher.TPU:
      settings.append('DELETE=1')
  return 'env', *settings, script


def _job_name(workdir: pathlib.Path) -> str:
  """One per workdir, as a domain name may be (for Kubernetes and TPU VMs)."""
  digest = hashlib.sha256(str(workdir).encode()).hexdigest()[:8]
  return f'xjax-{workdir.name.replace("_", "-")}-{digest}'


def _check_job(
  name: str, script: str, program: str, settings: Sequence[str]
) -> None:
  if not (SCRIPTS / script).exists():
    raise ConfigError(
      f'{name}: no {SCRIPTS / script}; install xjax as a checkout (pip install '
      '-e .)'
    )
  if not shutil.which(program):
    raise ConfigError(f'{name}: there is no {program} on this machine')
  if missing := [one for one in settings if not os.environ.get(one)]:
    raise ConfigError(
      f'{name}: set {", ".join(missing)} in the environment, as the first '
      f'lines of {SCRIPTS / script} say'
    )
