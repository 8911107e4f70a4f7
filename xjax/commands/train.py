r"""Trains a model, judges it, and shows some of its predictions.

  xjax train --config=NAME --workdir=DIR \
    [--config.FIELD=VALUE ...]

If you start the same command again, it resumes the run. --profile=FIRST:LAST
traces the steps FIRST to LAST with jax.profiler and saves the traces in
DIR/profile. To plan the memory and time of a run without training:

  xjax train --config=NAME --plan \
    [--chip=CHIP] [--devices=N | --topology=4x4 [--slices=N]] \
    [--plan_labels=L --plan_documents=N]
"""

import sys

from absl import flags

from xjax.commands.flags import (
  compile_cache,
  config,
  imports,
  plan,
  processes,
  profile,
  program,
)
from xjax.core.console import show

_CONFIG = config.define()
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run; created if it does not exist.'
)
_PROFILE = profile.define()
processes.define()
plan.define()
compile_cache.define()


def main() -> None:
  """Trains and judges a run, or prints its plan."""
  if flags.FLAGS.plan:
    if not plan.print_plan(_CONFIG.value):
      sys.exit(program.EXIT_USER_ERROR)
    return
  from xjax.core.config_part import modules_of
  from xjax.core.distributed import is_host0
  from xjax.report.card import write_card
  from xjax.report.terminal.run_summary import run_summary
  from xjax.run.fit import fit

  result = fit(_CONFIG.value, _WORKDIR.value, _PROFILE.value)
  if is_host0():
    modules = dict.fromkeys([*imports.imports(), *modules_of(_CONFIG.value)])
    write_card(result, program.WORDS)
    show(run_summary(result, [*modules]))
