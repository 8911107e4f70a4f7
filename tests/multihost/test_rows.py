"""Rows of a batch on the devices of two processes."""

import pathlib

from tests.multihost.conftest import finish, start

ROWS = pathlib.Path(__file__).with_name('rows_process.py')


def test_each_process_puts_and_gets_its_rows(free_port):
  finish(*(start(ROWS, free_port, process) for process in range(2)))
