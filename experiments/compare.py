"""Compares systems on the same documents, as the command `xjax compare`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('compare')
