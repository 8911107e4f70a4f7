r"""Trains a model, judges it, and shows what it predicts.

  python -m experiments.train --config=FILE.py --workdir=DIR \
    [--config.FIELD=VALUE ...]

The same command again resumes; --profile=FIRST:LAST traces these steps with
jax.profiler, into DIR/profile. What a run will need, before anything is made:

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
  'workdir', None, 'Folder of the run; made where absent.'
)
_PROFILE = flags.define_profile()
flags.define_multihost()
plan_flags.define()


def main() -> None:
  """Runs what the flags say."""
  if absl_flags.FLAGS.plan:
    if not plan_flags.print_plan(_CONFIG.value):
      sys.exit(flags.EXIT_USER_ERROR)
    return
  result = fit(_CONFIG.value, _WORKDIR.value, _PROFILE.value)
  if is_host0():
    own = dict.fromkeys([*flags.imports(), *modules_of(_CONFIG.value)])
    print(run_summary(result, [*own]))


if __name__ == '__main__':
  flags.run(main)
