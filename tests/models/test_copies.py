"""Temporary folders of models."""

import os

from xjax.models.copies import TemporaryFolder


def test_a_forked_process_leaves_the_folder_of_its_parent(monkeypatch):
  holder = TemporaryFolder()
  path = holder.path
  with monkeypatch.context() as patch:  # as in a forked process
    patch.setattr(os, 'getpid', lambda: -1)
    del holder
  assert path.is_dir()
  path.rmdir()
