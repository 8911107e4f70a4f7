"""Writes a report page about systems, as the command `xjax report`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('report')
