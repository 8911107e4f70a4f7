"""Defines --workdir and --step, which choose the checkpoint of a run."""

from absl import flags

from xjax.commands.flags.required import require

TITLE = 'Model'


def define(
  required: bool,
) -> tuple[flags.FlagHolder[str | None], flags.FlagHolder[int | None]]:
  """Defines the flags, and returns what holds their values."""
  workdir = flags.DEFINE_string('workdir', None, 'Folder of the run.')
  if required:
    require('workdir', 'give the folder of a run that `xjax train` has written')
  step = flags.DEFINE_integer(
    'step', None, 'Step of the checkpoint (default: the best one).', 0
  )
  return workdir, step
