"""Trains a model and judges it, as the command `xjax train`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('train')
