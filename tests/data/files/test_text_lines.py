"""Lines of text files, gzipped or not."""

import gzip

import pytest

from xjax.core.errors import DataError
from xjax.data.files.json_lines import numbered_lines, open_text


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


def test_damage_has_a_line(tmp_path):
  path = tmp_path / 'f'
  data = bytearray(gzip.compress(b'a\nb\n'))
  data[-8] ^= 1
  path.write_bytes(data)
  with pytest.raises(DataError, match='f:3: the file is damaged: CRC'):
    lines(path)
