"""Transfers a corpus to another form, as the command `xjax transfer`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('transfer')
