"""Runs the command `xjax`, as `python -m xjax`."""

from xjax.commands.main import main

if __name__ == '__main__':
  main()
