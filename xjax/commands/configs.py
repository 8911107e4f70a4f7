"""Lists the configs that --config takes by name.

  xjax configs [WORD]

With WORD, the list has only the configs whose name or text contains the word.
NAME:VARIANT chooses a variant; without a variant, the first one is meant.
"""

from xjax.core.console import show
from xjax.core.errors import ConfigError


def main(arguments: list[str]) -> None:
  """Prints a table of the configs."""
  from xjax.report.terminal.config_lines import configs_text
  from xjax.run.named_configs import shipped_configs

  if len(arguments) > 1:
    raise ConfigError(f'give one word to search for, not {len(arguments)}')
  word = arguments[0].lower() if arguments else ''
  chosen = [
    config
    for config in shipped_configs().values()
    if word in ' '.join([config.name, *config.variants, config.text]).lower()
  ]
  if not chosen:
    raise ConfigError(f'no config contains {word!a}; `xjax configs` lists all')
  show(configs_text(chosen))
