"""Lines of text and of JSON, and the fields of their objects."""

import bz2
import gzip
import io
import json
import lzma
import os
import re

import pytest

from tests.fixtures.pipes import piped
from xjax.core.errors import DataError
from xjax.data.files import json_lines
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
  check_rereadable,
  find_files,
  numbered_lines,
  only_file,
  open_text,
  parse_object,
  read_records,
  read_rows,
)
from xjax.data.tokens_config import OnError

PACKERS = gzip.compress, bz2.compress, lzma.compress


def rows(data: bytes, encoding: str = ''):
  faults = Faults()
  found = list(read_rows(io.BytesIO(data), faults, 'f', encoding=encoding))
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
    (b'{"a": NaN}', 'not JSON: NaN; write null or a finite number'),
    (b'{"a": -Infinity}', 'not JSON: -Infinity; write null or a finite number'),
    (b'{"a": ' + b'[' * 100_000, 'not JSON: nested too deeply'),
    (b'{"a": ' + b'9' * 5000 + b'}', 'not JSON: a number is too long'),
    (b'3', 'a number, not a JSON object {...}'),
    (b'true', 'true or false, not a JSON object {...}'),
    (b'"a"', 'text, not a JSON object {...}'),
  ],
)
def test_what_is_no_object(text, what):
  with pytest.raises(Fault) as caught:
    parse_object(text)
  assert str(caught.value) == what


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


def test_a_file_is_no_folder(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(DataError, match='not a folder'):
    find_files(tmp_path / 'file')


def test_what_is_found_out_about_a_record_is_a_fault_of_its_line():
  faults = Faults(OnError.SKIP)
  for _, fields in read_records(
    io.BytesIO(b'a\n\xff\n\nb\n'), faults, 'f', 'x'
  ):
    fields.faults.append(f'odd {fields.row["x"]}')
  assert [fault.partition(';')[0] for fault in faults.shown] == [
    'f:1: odd a',
    'f:2: not UTF-8: invalid start byte at byte 1',
    'f:4: odd b',
  ]


def test_lines_in_another_encoding_are_read_if_it_is_named():
  data = '{"a": "Слова"}\n{"a": "é"}\n{"a": "слово"}\n'
  data = b'\n'.join(
    line.encode('utf-8' if 'é' in line else 'cp1251')
    for line in data.splitlines()
  )
  texts = [row['a'] for _, row in rows(data, 'cp1251')[0]]
  assert texts == ['Слова', 'é', 'слово']
  assert rows(data, 'ascii')[1][0] == (
    'f:1: not UTF-8 or ascii: invalid continuation byte at byte 8; save it as '
    'UTF-8 (documents of own_* configs may be in another encoding: '
    '--config.data.encoding=cp1252)'
  )


@pytest.mark.parametrize('lost', [8, 100])
@pytest.mark.parametrize('pack', PACKERS)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, pack, lost):
  path = tmp_path / 'a.gz'
  path.write_bytes(pack(b''.join(b'%d\n' % i for i in range(999)))[:-lost])
  with pytest.raises(
    DataError, match=r'a.gz: the compressed file is cut short'
  ):
    lines(path)


def test_a_line_without_an_end_is_an_error(monkeypatch):
  monkeypatch.setattr(json_lines, '_LONGEST', 1 << 20)
  with pytest.raises(DataError, match='/dev/zero:1: the line is longer than'):
    lines('/dev/zero')


def test_fields_note_all_that_is_wrong():
  several = ['a', True, 'a', ' b', 7]
  fields = Fields({'id': 3.5, 't': None, 'l': 'u', 'm': several, 's': '\ud800'})
  fields.identifier('id')
  fields.text('t')
  fields.texts('l')
  assert fields.identifiers('m') == ('a', '', '7')
  fields.text('s')
  fields.text('absent')
  assert fields.faults == [
    'id is a decimal number, not text or an integer',
    't is null, not text',
    'l is text, not a list',
    'm[1] is true or false, not text or an integer',
    "m[3] ' b' has spaces around it or control characters in it",
    's holds a broken Unicode character (half of a surrogate pair)',
    "no field 'absent'",
  ]


def lines(path):
  with open_text(path) as file:
    return list(numbered_lines(file, path))


def test_blank_lines_count(tmp_path):
  path = tmp_path / 'f'
  text = b'\xef\xbb\xbfa \r\n\n b'
  for data in text, *(pack(text) for pack in PACKERS):
    path.write_bytes(data)
    assert lines(path) == [(1, b'a '), (2, b''), (3, b' b')]
  path.write_bytes(b'')
  assert lines(path) == []


@pytest.mark.parametrize('data', [b'', b'a'])
def test_a_short_pipe_ends(tmp_path, data):
  with piped(tmp_path / 'pipe', data) as path:
    assert lines(path) == ([(1, b'a')] if data else [])


def test_a_pipe_cannot_be_read_again(tmp_path):
  check_rereadable(tmp_path / 'absent')
  os.mkfifo(tmp_path / 'pipe')
  with pytest.raises(DataError, match='pipe: is a pipe or a device'):
    check_rereadable(tmp_path / 'pipe')


ROWS = [{'text': 'é\n{', 'n': [1, {'a': 2}]}, {'text': 'b'}, {'text': 'c'}]


@pytest.mark.parametrize('indent', [None, 0, 2, '\t'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
@pytest.mark.parametrize('head', ['', '\ufeff', '\n\n'])
@pytest.mark.parametrize(
  'wrap',
  [
    lambda rows: rows,
    lambda rows: {'data': rows},
    lambda rows: {'version': {'data': [1]}, 'documents': rows, 'n': 3},
  ],
)
def test_json_that_is_not_in_lines(wrap, head, end, indent):
  text = json.dumps(wrap(ROWS), indent=indent, ensure_ascii=False)
  found, faults = rows((head + text.replace('\n', end) + end).encode())
  assert [row for _, row in found] == ROWS and not faults
  lines = text.count('\n') + 1 + head.count('\n')
  numbers = [number for number, _ in found]
  assert numbers == sorted(set(numbers)) and numbers[-1] <= max(lines, 5)
  if indent:
    opened = re.sub(r'(?m)^\s+[\]}],?$', '', text).split('\n')
    starts = [i for i, line in enumerate(opened, 1) if line.strip() == '{']
    starts = [i + head.count('\n') for i in starts]
    assert set(numbers) <= set(starts)


def test_objects_of_several_lines_in_a_row():
  text = '\n'.join(json.dumps(row, indent=2) for row in ROWS)
  found, faults = rows(text.encode())
  assert [row for _, row in found] == ROWS and not faults
  assert [number for number, _ in found] == [1, 10, 13]


def test_objects_in_a_row_on_the_line_of_an_array():
  found, _ = rows(b'[{"a": 1}, {"a": 2},\n{"a": 3}, {"a": 4}]')
  assert [number for number, _ in found] == [1, 2, 3, 4]


def test_an_object_may_have_a_field_data():
  data = b'{"data": [{"a": 1}], "b": 1}\n{"data": [{"a": 2}], "b": 2}\n'
  assert [row['b'] for _, row in rows(data)[0]] == [1, 2]
  data = b'{"text": "x", "data": [{"a": 1}]}\n'
  assert [row['text'] for _, row in rows(data)[0]] == ['x']


@pytest.mark.parametrize(
  ('data', 'found', 'faults'),
  [
    (b'[\n{"a": 1},\n{"a": 2}\n{"a": 3}\n]', 2, ["4: not JSON: Expecting ','"]),
    (b'[\n{"a": 1},\n{"a": x}]', 1, ['3: not JSON: names and texts']),
    (b'[\n{"a": 1},\n{"a": NaN}]', 1, ['1: not JSON: NaN']),
    (b'[{"a": 1},\n3,\n{"a": 2}]', 2, ['2: a number, not a JSON object']),
    (b'[{"a": 1}]\n[{"a": 2}]', 0, ['1: a list, not']),
    (b'[\n{"a": 1}\n]\n[]', 1, ['4: not JSON: Extra data']),
    (b'{\n"a": 1,\n"b": }', 0, ['3: not JSON: Expecting value']),
    (b'[\n{"a": "\xe9"}]', 0, ['2: not UTF-8']),
    (b'[]', 0, []),
    (b'[', 0, ['1: not JSON']),
  ],
)
def test_faults_of_json_that_is_not_in_lines(data, found, faults):
  objects, shown = rows(data)
  assert len(objects) == found and len(shown) == len(faults)
  for fault, expected in zip(shown, faults, strict=True):
    assert fault.startswith(f'f:{expected}')


@pytest.mark.parametrize(
  ('value', 'program'),
  [(ROWS * 50, '.[]'), ({'data': ROWS * 50}, '.[][]'), ({'a': ROWS * 50}, '.')],
)
def test_large_json_that_is_not_in_lines_is_refused(
  monkeypatch, value, program
):
  monkeypatch.setattr(json_lines, '_LARGEST', 1 << 10)
  monkeypatch.setattr(json_lines, '_LONGEST', 1 << 10)
  for indent, what in ((2, 'is not JSON lines'), (None, 'is longer than')):
    with pytest.raises(DataError, match=what) as error:
      rows(json.dumps(value, indent=indent).encode())
    assert str(error.value).endswith(f'per line, by `jq -c {program}`')


COLUMNS = {'text': {'0': 'a', '1': 'b'}, 'labels': {'0': ['x'], '1': []}}
DOCUMENT = {'text': 'a', 'labels': ['x']}


@pytest.mark.parametrize('indent', [None, 2])
@pytest.mark.parametrize(
  ('value', 'way'),
  [
    (COLUMNS, 'pandas.read_json(FILE).to_json('),
    ({'text': ['a', 'b'], 'labels': [['x'], []]}, 'pandas.read_json(FILE).to_'),
    ({'0': DOCUMENT, '1': DOCUMENT}, "`jq -c '.[]' FILE"),
    ({'columns': ['text'], 'index': [0], 'data': [['a']]}, "orient='split')."),
    ([['a', ['x']], ['b', []]], 'set_axis('),
    (
      {'train': [DOCUMENT], 'test': [DOCUMENT]},
      '`jq -c \'.["train"][]\' FILE > train.jsonl`, and so on for test',
    ),
  ],
)
def test_json_that_holds_all_documents_names_the_way_out(value, way, indent):
  found, faults = rows(json.dumps(value, indent=indent).encode())
  assert not found and len(faults) == 1 and way in faults[0]


@pytest.mark.parametrize(
  ('line', 'hint'),
  [
    ("{'text': 'a', 'labels': ['b']}", 'ast.literal_eval'),
    ('{"text": "a", "labels": [\'b\']}', 'ast.literal_eval'),
    ('{text: "a"}', 'double quotes'),
    ('{“text”: “a”}', 'double quotes'),
    ('{"text": "a", "n": None}', 'write null'),
    ('{"text": "a", "n": NaN}', 'write null'),
    ('{"text": "a", "labels": ["x", ]}', 'no comma stands before'),
    ('{"text": "a",}', 'no comma stands before'),
    ('{"text": "a"},', 'no comma stands between'),
    ('{"text": "a"} // b', 'comments'),
    ('# b', 'comments'),
  ],
)
def test_what_is_nearly_json_is_one_fault_with_a_hint(line, hint):
  found, faults = rows(f'{line}\n{line}\n'.encode())
  assert not found and len(faults) == 1 and hint in faults[0]


def test_several_objects_on_a_line():
  found, faults = rows(b'{"a": 1}{"a": 2} {"a": 3}\n{"a": 4}{"a": 5}')
  assert [row['a'] for _, row in found] == [1, 2, 3, 4, 5] and not faults
  found, faults = rows(b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n{"a": 3}{"a": 4}')
  assert [row['a'] for _, row in found] == [1, 2]
  assert 'several objects; `jq -c .`' in faults[0]
