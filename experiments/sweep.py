"""Searches for values of config fields, as the command `xjax sweep`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('sweep')
