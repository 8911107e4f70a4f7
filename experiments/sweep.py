r"""Searches for the best values of some fields of a config.

  python -m experiments.sweep --config=FILE.py --workdir=DIR --workers=3 \
    [--config.FIELD=VALUE ...]

FILE.py has get_config(), what all trials share, and get_sweep(), what they
differ in. The same command again goes on where it was.
"""

import enum

from absl import flags as absl_flags
from ml_collections import config_flags

from experiments import flags
from xjax.core.errors import ConfigError
from xjax.report.sweep_summary import sweep_summary
from xjax.search.folder import SweepFolder
from xjax.search.sweep_file import read_sweep
from xjax.search.trials import with_trials
from xjax.search.work import Work
from xjax.search.workers import Workers


class Launcher(enum.Enum):
  """Who trains."""

  LOCAL = 'local'
  PRINT = 'print'


_CONFIG = flags.define_config()
_WORKDIR = absl_flags.DEFINE_string(
  'workdir', None, 'Folder of the sweep; made where absent.', required=True
)
_LAUNCHER = absl_flags.DEFINE_enum_class(
  'launcher',
  Launcher.LOCAL,
  Launcher,
  'local: processes here. print: only the commands, of a grid or a list.',
)
_WORKERS = absl_flags.DEFINE_integer(
  'workers', 1, 'Trials at a time.', lower_bound=1
)
_SEEDS = absl_flags.DEFINE_integer(
  'seeds', 1, 'Runs of each trial; their mean counts.', lower_bound=1
)
_N_TRIALS = absl_flags.DEFINE_integer(
  'n_trials', None, 'In place of that of get_sweep().', lower_bound=1
)
_GPUS = absl_flags.DEFINE_list(
  'gpus', [], 'Numbers of GPUs, one per worker; else each worker sees all.'
)


def main() -> None:
  """Runs what the flags say."""
  file = config_flags.get_config_filename(absl_flags.FLAGS['config'])
  sweep = with_trials(read_sweep(file), _N_TRIALS.value)
  folder = SweepFolder.at(_WORKDIR.value)
  work = Work(sweep, _CONFIG.value, folder, _SEEDS.value)
  match _LAUNCHER.value:
    case Launcher.PRINT:
      if _WORKERS.value > 1 or _GPUS.value:
        raise ConfigError('--workers, --gpus: --launcher=print starts nothing')
      text = '\n'.join(work.commands())
    case Launcher.LOCAL:
      gpus = list(dict.fromkeys(_GPUS.value))  # each once
      if gpus and _WORKERS.value > len(gpus):
        raise ConfigError(f'--gpus: needs {_WORKERS.value}, one per worker')
      with work.begun():
        outcomes = Workers(work, _WORKERS.value, gpus).run()
      text = sweep_summary(work, outcomes)
  print(text)


if __name__ == '__main__':
  flags.run(main)
