"""Judges a run or a file of predictions, as the command `xjax evaluate`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('evaluate')
