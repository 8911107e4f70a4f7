r"""Trains a model, judges it, and shows some of its predictions.

  python -m experiments.train --config=FILE.py --workdir=DIR \
    [--config.FIELD=VALUE ...]

If you start the same command again, it resumes the run. --profile=FIRST:LAST
traces the steps FIRST to LAST with jax.profiler and saves the traces in
DIR/profile. To plan the memory and time of a run without training:

  python -m experiments.train --config=FILE.py --plan [--chip=CHIP] \
    [--devices=N] [--plan_labels=L --plan_documents=N]
"""

import sys

from absl import flags as absl_flags

from experiments import flags, plan_flags
from xjax.core.config_part import modules_of
from xjax.core.distributed import is_host0
from xjax.report.terminal.fitted import run_summary
from xjax.run.fit import fit

_CONFIG = flags.define_config()
_WORKDIR = absl_flags.DEFINE_string(
  'workdir', None, 'Folder of the run; created if it does not exist.'
)
_PROFILE = flags.define_profile()
flags.define_multihost()
plan_flags.define()


def main() -> None:
  """Trains and judges a run, or prints its plan."""
  if absl_flags.FLAGS.plan:
    if not plan_flags.print_plan(_CONFIG.value):
      sys.exit(flags.EXIT_USER_ERROR)
    return
  result = fit(_CONFIG.value, _WORKDIR.value, _PROFILE.value)
  if is_host0():
    modules = dict.fromkeys([*flags.imports(), *modules_of(_CONFIG.value)])
    print(run_summary(result, [*modules]))


if __name__ == '__main__':
  flags.run(main)
