"""Writes an encoder as a Hugging Face folder, as the command `xjax export`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('export')
