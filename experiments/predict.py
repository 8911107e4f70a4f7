"""Predicts labels for new documents, as the command `xjax predict`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('predict')
