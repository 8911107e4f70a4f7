"""Lines of text files, gzipped or not."""

import gzip
import os

import pytest

from tests.fixtures.pipes import piped
from xjax.core.errors import DataError
from xjax.data.files import json_lines
from xjax.data.files.json_lines import (
  check_rereadable,
  numbered_lines,
  open_text,
)


def lines(path):
  with open_text(path) as file:
    return list(numbered_lines(file, path))


def test_blank_lines_count(tmp_path):
  path = tmp_path / 'f'
  for data in (text := b'\xef\xbb\xbfa \r\n\n b', gzip.compress(text)):
    path.write_bytes(data)
    assert lines(path) == [(1, b'a '), (2, b''), (3, b' b')]
  path.write_bytes(b'')
  assert lines(path) == []


@pytest.mark.parametrize('data', [b'', b'a'])
def test_a_short_pipe_ends(tmp_path, data):
  with piped(tmp_path / 'pipe', data) as path:
    assert lines(path) == ([(1, b'a')] if data else [])


@pytest.mark.parametrize('pack', [bytes, gzip.compress])
def test_a_line_without_end_is_refused(tmp_path, monkeypatch, pack):
  monkeypatch.setattr(json_lines, 'LONGEST_LINE', 1 << 20)
  path = tmp_path / 'f'
  path.write_bytes(pack(b'a\n' + b'b' * ((1 << 20) - 1) + b'\nc\n'))
  assert len(lines(path)) == 3
  path.write_bytes(pack(b'a\n' + b'b' * (1 << 22)))
  with pytest.raises(DataError, match='f:2: the line is longer than 1 MiB'):
    lines(path)


def test_an_endless_device_is_refused():
  with pytest.raises(DataError, match='/dev/zero:1: the line is longer than'):
    lines('/dev/zero')


def test_a_pipe_cannot_be_read_again(tmp_path):
  check_rereadable(tmp_path / 'absent')
  os.mkfifo(tmp_path / 'pipe')
  with pytest.raises(DataError, match='pipe: is a pipe or a device'):
    check_rereadable(tmp_path / 'pipe')
