"""Rows of a batch that lie apart on the mesh of two processes."""

import pathlib

from tests.multihost.conftest import finish, start

SCRIPT = pathlib.Path(__file__).with_name('rows_process.py')


def test_each_process_puts_and_gets_its_rows(free_port):
  finish(*(start(SCRIPT, free_port, process) for process in range(2)))
