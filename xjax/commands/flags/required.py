"""Checks which flags are set: those that a command needs, and no others."""

from collections.abc import Iterable

from absl import flags

from xjax.core.errors import ConfigError


def require(name: str, advice: str) -> None:
  """Makes a command fail with `advice` on what to give if a flag is not set."""

  def check(value: object) -> bool:
    if value in (None, ''):
      # absl would put all values of the flags before a ValidationError.
      raise ConfigError(f'--{name} is missing; {advice}')
    return True

  flags.register_validator(name, check)


def check_absent(names: Iterable[str], other: str) -> None:
  """Raises ConfigError if a flag in `names` is given, which needs `other`."""
  for name in names:
    if flags.FLAGS[name].present:
      raise ConfigError(f'--{name} works only with --{other}')
