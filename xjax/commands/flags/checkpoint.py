"""Defines --workdir and --step, which choose the checkpoint of a run."""

from absl import flags

TITLE = 'Model'


def define(
  required: bool,
) -> tuple[flags.FlagHolder[str | None], flags.FlagHolder[int | None]]:
  """Defines the flags, and returns what holds their values.

  Args:
    required: whether the command needs a workdir.
  """
  return (
    flags.DEFINE_string(
      'workdir', None, 'Folder of the run.', required=required
    ),
    flags.DEFINE_integer(
      'step', None, 'Step of the checkpoint (default: the best one).', 0
    ),
  )
