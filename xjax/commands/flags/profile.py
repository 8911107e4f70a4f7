"""Defines --profile, which traces steps of the training."""

import re

from absl import flags

TITLE = 'Profile'


class _StepsParser(flags.ArgumentParser):
  """Parses 'FIRST:LAST' into two integers."""

  syntactic_help = 'FIRST:LAST, two step numbers.'

  def parse(self, argument: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+):(\d+)', argument)
    if not match:
      raise ValueError('expected FIRST:LAST, such as 100:109')
    return int(match[1]), int(match[2])


def define() -> flags.FlagHolder[tuple[int, int] | None]:
  """Defines --profile=FIRST:LAST, which traces the steps FIRST to LAST."""
  return flags.DEFINE(
    _StepsParser(),
    'profile',
    None,
    'Steps to trace with jax.profiler; traces are saved in WORKDIR/profile.',
  )
