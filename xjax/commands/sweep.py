r"""Searches for the best values of config fields by many runs.

  xjax sweep --config=NAME --workdir=DIR --workers=3 \
    [--config.FIELD=VALUE ...]

In FILE.py, get_config() returns the config that all trials share, and
get_sweep() returns the fields that differ, and their values. If you start the
same command again, it continues the sweep. It needs the library of the extra
[sweeps].
"""

from absl import flags

from xjax.commands.flags import config, imports, required
from xjax.core.console import show
from xjax.core.errors import optional

_CONFIG = config.define()
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the sweep; it is created if it does not exist.'
)
required.require('workdir', 'give the folder of the sweep')
_LAUNCHER = flags.DEFINE_enum(
  'launcher',
  'local',
  ('local', 'print', 'slurm', 'tpu', 'jobset'),
  'local: run trials as processes on this machine. print: only print the '
  'commands (the search must be a grid or a list). slurm, tpu, jobset: submit '
  'jobs with the scripts in tpu_scripts/, which read environment variables.',
)
_WORKERS = flags.DEFINE_integer(
  'workers', 1, 'Number of trials that run at a time.', lower_bound=1
)
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'Seeds per trial; the means are compared.', lower_bound=1
)
_N_TRIALS = flags.DEFINE_integer(
  'n_trials',
  None,
  'Number of trials; replaces the number in get_sweep().',
  lower_bound=1,
)
_GPUS = flags.DEFINE_list(
  'gpus', [], 'Ids of GPUs, one per worker (default: each worker has all GPUs).'
)


def main() -> None:
  """Runs the sweep and prints its summary."""
  optional('optuna', 'a sweep', 'sweeps')
  from xjax.report.terminal.sweep_lines import sweep_summary
  from xjax.sweep.launchers import Launcher, check_launcher
  from xjax.sweep.session import SweepFolder, SweepSession, read_sweep
  from xjax.sweep.trials import with_trials
  from xjax.sweep.workers import TrialWorkers

  sweep = config.as_flag(read_sweep, config.file())
  sweep = with_trials(sweep, _N_TRIALS.value)
  folder = SweepFolder.at(_WORKDIR.value)
  launcher = Launcher(_LAUNCHER.value)
  gpus = list(dict.fromkeys(_GPUS.value))  # without duplicates
  check_launcher(launcher, _WORKERS.value, gpus)
  session = SweepSession(
    sweep,
    _CONFIG.value,
    folder,
    _SEEDS.value,
    launcher,
    imports=imports.imports(),
  )
  if launcher is Launcher.PRINT:
    show('\n'.join(session.commands()))
    return
  with session.start() as lock:
    trials = TrialWorkers(session, lock, _WORKERS.value, gpus).run()
  show(sweep_summary(session, trials))
