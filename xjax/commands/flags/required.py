"""Checks that flags without which a command cannot run are set."""

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
