"""Lines of text and of JSON, and the fields of their objects."""

import gzip
import io
import os

import pytest

from tests.fixtures.pipes import piped
from xjax.core.errors import ConfigError, DataError
from xjax.data.config import OnError
from xjax.data.files import json_lines
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  check_rereadable,
  find_files,
  find_folder,
  numbered_lines,
  only_file,
  open_text,
  parse_object,
  read_rows,
)


def rows(data: bytes):
  faults = Faults()
  found = list(read_rows(io.BytesIO(data), faults, 'f'))
  return found, faults.shown


def test_rows_keep_their_line_numbers():
  found, faults = rows(b'\xef\xbb\xbf{"a": 1}\n\n  {"b": "\xc3\xa9"} \r\n')
  assert found == [(1, {'a': 1}), (3, {'b': 'é'})]
  assert not faults


def test_a_faulty_line_does_not_hide_the_next():
  found, faults = rows(b'{"a": 1\n{"b": 2}\n[3]\nnull\n')
  assert found == [(2, {'b': 2})]
  assert faults == [
    "f:1: not JSON: Expecting ',' delimiter at column 8",
    'f:3: a list, not a JSON object {...}',
    'f:4: null, not a JSON object {...}',
  ]


@pytest.mark.parametrize(
  ('text', 'what'),
  [
    (b'{"a": NaN}', 'not JSON: NaN; write a finite number'),
    (b'{"a": -Infinity}', 'not JSON: -Infinity; write a finite number'),
    (b'{"a": ' + b'[' * 100_000, 'not JSON: nested too deeply'),
    (b'{"a": ' + b'9' * 5000 + b'}', 'not JSON: a number is too long'),
    (b'{"a": 1, "a": 2}', "field 'a' occurs twice in one object"),
    (b'{"a": {"b": 1, "b": 1}}', "field 'b' occurs twice in one object"),
    (b'{"a": "\xe9"}', 'not UTF-8: invalid continuation byte at byte 8'),
    (b'3', 'a number, not a JSON object {...}'),
    (b'true', 'true or false, not a JSON object {...}'),
    (b'"a"', 'text, not a JSON object {...}'),
  ],
)
def test_what_is_no_object(text, what):
  with pytest.raises(Fault) as caught:
    parse_object(text)
  assert str(caught.value) == what


def test_a_repeated_field_among_very_many_is_told_at_once():
  fields = ','.join(f'"{i}": 0' for i in (*range(100_000), 99_999))
  with pytest.raises(Fault, match="'99999' occurs twice"):
    parse_object('{' + fields + '}')


def test_a_fault_knows_its_line():
  for data, line in (b'"b": 2\n"c": 3}', 3), (b'"b": "\xff"}', 2):
    with pytest.raises(Fault) as caught:
      parse_object(b'{"a": 1,\n' + data)
    assert caught.value.line == line


def test_files_are_found_by_name(tmp_path):
  for name in ('b.jsonl', 'a.jsonl.gz', '.c.jsonl', 'd.json', 'e.jsonl.bak'):
    (tmp_path / name).write_bytes(b'')
  (tmp_path / 'f.jsonl').mkdir()
  (tmp_path / 'b.jsonl.gz').write_bytes(b'')
  found = find_files(tmp_path)
  assert {k: [p.name for p in paths] for k, paths in found.items()} == {
    'a': ['a.jsonl.gz'],
    'b': ['b.jsonl', 'b.jsonl.gz'],
  }
  faults = Faults()
  assert only_file(found['a'], faults).name == 'a.jsonl.gz'
  assert not faults.count
  assert only_file(found['b'], faults).name == 'b.jsonl'
  assert faults.shown == [
    f'{tmp_path}/b.jsonl.gz: the folder has b.jsonl too; keep one of the two'
  ]


def test_folders(tmp_path):
  assert find_folder(str(tmp_path)) == tmp_path
  with pytest.raises(ConfigError, match='--config.data.dir'):
    find_folder('')
  with pytest.raises(DataError, match='no such folder'):
    find_folder(str(tmp_path / 'absent'))
  (tmp_path / 'file').write_text('')
  with pytest.raises(DataError, match='not a folder'):
    find_files(tmp_path / 'file')


def cut(data):
  return data[: len(data) // 2]


def damaged(data):
  return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]  # the checksum


@pytest.mark.parametrize(
  ('change', 'says'),
  [
    (cut, 'the gzip file is cut short: get it again'),
    (lambda data: data[:-12], 'the gzip file is cut short'),
    (damaged, 'the file is damaged: CRC'),
    (lambda data: data[:-5] + b'\0' * 5, 'the file is damaged'),
  ],
)
def test_what_stops_a_file_is_fatal_and_keeps_what_came_before(
  tmp_path, change, says
):
  lines = [b'{"id": "%d", "x": "%d"}\n' % (i, i**9) for i in range(20_000)]
  path = tmp_path / 'a.jsonl.gz'
  path.write_bytes(change(gzip.compress(b''.join(lines))))
  faults = Faults(OnError.SKIP)
  found = list(read_rows(path, faults))
  assert len(found) > 5_000 and (change is not cut or len(found) < 20_000)
  (shown,) = faults.shown
  assert shown.startswith(f'{path}:{len(found) + 1}: {says}')
  assert faults.count == 1
  with pytest.raises(DataError, match=says):
    faults.check()


def test_a_byte_order_mark_before_a_name_is_told():
  fields = Fields({'\ufeffid': 'x'})
  fields.identifier('id')
  assert fields.faults == [
    "no field 'id': the field's name starts with a byte order mark, which must "
    'be removed'
  ]


def test_fields_note_all_that_is_wrong():
  several = ['a', True, 'a', ' b', 7]
  fields = Fields({'id': 3.5, 't': None, 'l': 'u', 'm': several, 's': '\ud800'})
  fields.identifier('id')
  fields.text('t')
  fields.texts('l')
  assert fields.identifiers('m') == ('a', '', 'a', '', '7')
  fields.text('s')
  fields.text('absent')
  assert fields.faults == [
    'id is a decimal number, not text or an integer',
    't is null, not text',
    'l is text, not a list',
    'm[1] is true or false, not text or an integer',
    "m[3] ' b' has spaces around it or control characters in it",
    "'a' occurs twice in m",
    's holds a broken Unicode character (half of a surrogate pair)',
    "no field 'absent'",
  ]


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
