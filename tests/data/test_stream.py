"""Documents to be tagged come one by one, from files and from pipes."""

import contextlib
import json
import os
import tracemalloc

import pytest

from xjax.core.errors import DataError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.load import stream_input

# As with_guesses returns it for lines of fastText.
PLAIN = OwnData(text=('text',), labels='labels', label_separator='__label__')


@contextlib.contextmanager
def open_pipe(path):
  """Makes a named pipe, and yields a function that writes to it at once."""
  os.mkfifo(path)
  pipe = os.open(path, os.O_RDWR)  # waits for no reader
  try:
    yield lambda data: os.write(pipe, data)
  finally:
    with contextlib.suppress(OSError):
      os.close(pipe)


@pytest.mark.parametrize(
  ('data', 'head', 'lines'),
  [
    (JsonlData(), b'', [b'{"text": "%d"}\n' % i for i in range(3)]),
    (OwnData(), b'\n\n', [b'{"text": "%d"}\r\n' % i for i in range(3)]),
    (OwnData(), b'\xef\xbb\xbfn,text\r\n', [b'9,%d\r\n' % i for i in range(3)]),
    (OwnData(), b'n\ttext\n', [b'0\t%d\n' % i for i in range(3)]),
    (PLAIN, b'', [b'%d\n' % i for i in range(3)]),
    (PLAIN, b'', [b'{"text": "%d"}\n' % i for i in range(3)]),
    (OwnData(text=('t',)), b'', [b'{"t": "%d"}\n' % i for i in range(3)]),
  ],
)  # fmt: skip
def test_a_document_of_a_pipe_waits_for_no_other(tmp_path, data, head, lines):
  with open_pipe(tmp_path / 'pipe') as write:
    write(head)
    documents = stream_input(data, str(tmp_path / 'pipe'))
    for i, line in enumerate(lines):
      write(line)
      assert next(documents).text() == str(i)
    documents.close()


@pytest.mark.parametrize(
  ('data', 'lines', 'what'),
  [
    (JsonlData(), b'{"text": "a"}\n{"text": 1}\n', ':2: text is a number'),
    (JsonlData(), b'{"text": "a"}\n\n{\n', ':3: not JSON'),
    (JsonlData(), b'{"text": "a", "id": 1}\n' * 2, ":2: duplicate id '1'"),
    (OwnData(), b'text,id\na,1\na\n', ':3: 1 cells, but 2 columns'),
    (OwnData(), 'text,id\né,1\n'.encode() + b'\xe9,2\n', ':3: not UTF-8'),
    (OwnData(), b'text,id\na,1\n\0,2\n', ':3: a NUL byte'),
  ],
)
def test_a_fault_of_a_pipe_is_said_at_once(tmp_path, data, lines, what):
  with open_pipe(tmp_path / 'pipe') as write:
    write(lines)
    documents = stream_input(data, str(tmp_path / 'pipe'))
    assert next(documents).text()[0] in 'aé'
    with pytest.raises(DataError, match=what):
      next(documents)


def test_faults_of_a_file_are_raised_together_at_its_end(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('{"text": "a"}\n{\n{"text": "b"}\n{"text": 1}\n')
  documents = stream_input(JsonlData(), str(path))
  assert next(documents).text() == 'a'
  with pytest.raises(DataError, match=r'(?s):2: not.*:4: text is'):
    next(documents)
  kept = stream_input(JsonlData(), str(path), skip_bad_lines=True)
  assert [document.text() for document in kept] == ['a', 'b']


@pytest.mark.parametrize('encoding', ['', 'cp1252'])
def test_lines_of_a_pipe_in_another_encoding(tmp_path, encoding):
  lines = 'text,id\nabc,1\né là,2\n'.encode('cp1252') + 'ç,3\n'.encode()
  data = OwnData(encoding=encoding)
  with open_pipe(tmp_path / 'pipe') as write:
    documents = stream_input(data, str(tmp_path / 'pipe'))
    write(lines)
    assert next(documents).text() == 'abc'
    if encoding:
      assert [next(documents).text() for _ in range(2)] == ['é là', 'ç']
    else:
      with pytest.raises(DataError, match=':3: not UTF-8.*data.encoding='):
        next(documents)


@pytest.mark.parametrize(
  'table',
  [
    'text,n\na,1\n"b \\"c, d\\"",2\nit\'s,3\n"e \\"f\\", g",4\n',
    'text,n\n"\\"",1\n"x\n\\"y\\" z",2\n"a ""b"" c",3\n',
    'text,n\n"C:\\",1\n"d:\\x",2\n',
    '"text","n"\n"1","it\'s, a",1\n"2","b\nc, d",2\n',
    'text\tn\n1\ta "b" c\t3\n2\td\t5\n',
    '"text" "n"\n"r1" "it\'s a ""b""" 1\n"r2" "c" 2\n',
    'n, text\n1, "a, b"\n2, "c ""d"", e"\n3, f\n',
    'text\n"a, b"\n"c \\"d\\" e"\nf\n\nit\'s, g\n',
    '文;text\n1;"它 \\"不; 是\\""\n2;"é"\n',
  ],
)
@pytest.mark.parametrize('ends', ['\n', '\r\n'])
def test_a_table_of_a_pipe_is_read_like_a_file(tmp_path, table, ends):
  data = table.replace('\n', ends).encode()
  (tmp_path / 'a.csv').write_bytes(data)
  expected = [*stream_input(OwnData(), str(tmp_path / 'a.csv'))]
  assert len(expected) >= 2
  with open_pipe(tmp_path / 'pipe') as write:
    write(data)
    documents = stream_input(OwnData(), str(tmp_path / 'pipe'))
    assert [next(documents) for _ in expected] == expected


def test_a_long_file_takes_little_memory(tmp_path):
  path = tmp_path / 'a.jsonl'
  with path.open('w') as file:
    for i in range(20_000):
      file.write(json.dumps({'id': f'doc {i}', 'text': f'{i} ' * 40}) + '\n')
  tracemalloc.start()
  try:
    assert sum(1 for _ in stream_input(JsonlData(), str(path))) == 20_000
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
  finally:
    tracemalloc.stop()
