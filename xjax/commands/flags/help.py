"""Prints the flags of a command, in groups: first what everybody needs."""

from collections.abc import Iterator, Sequence
import re
import sys
import textwrap

from absl import flags

_WIDTH = 80
_HELP = ('--help', '-help', '-h', '--helpfull', '--helpshort', '-?')


def asks_for_help(argv: Sequence[str]) -> bool:
  """Returns whether a command line has a flag such as --help."""
  return any(argument in _HELP for argument in argv[1:])


def help_text(command: str, description: str) -> str:
  """Returns a command's description and flags; a group per module's TITLE."""
  groups = flags.FLAGS.flags_by_module_dict()
  lines = [description.strip()]
  for module, members in groups.items():
    own = module == sys.argv[0]
    title = 'Flags' if own else getattr(sys.modules.get(module), 'TITLE', None)
    shown = [flag for flag in members if flag.name in flags.FLAGS]
    if title and shown:
      lines += ['', f'{title}:', *_group(shown)]
  return '\n'.join(lines)


def _group(members: Sequence[flags.Flag]) -> Iterator[str]:
  for flag in members:
    value = '' if flag.boolean else f'={_value(flag)}'
    yield f'  --{flag.name}{value}'
    yield textwrap.fill(
      re.sub(r'^<[^>]*>: ', '', ' '.join(flag.help.split())),
      _WIDTH,
      initial_indent=' ' * 6,
      subsequent_indent=' ' * 6,
      break_on_hyphens=False,
    )


def _value(flag: flags.Flag) -> str:
  """Returns the default of a flag, or the kind of value that it takes."""
  if choices := getattr(flag.parser, 'enum_values', None):
    return '|'.join(choices)
  if isinstance(flag.default, tuple | list) and flag.default:
    return ','.join(map(str, flag.default))
  if flag.default in (None, '', [], ()):
    return (flag.parser.flag_type() or 'value').split()[0].upper()
  return str(flag.default)
