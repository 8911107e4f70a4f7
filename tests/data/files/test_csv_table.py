"""Quotes in tables: what they hold, and when they swallow rows."""

import csv
import io

from hypothesis import given, strategies as st
import pytest

from xjax.core.errors import DataError
from xjax.data.files.csv_table import Quoting
from xjax.data.files.faults import Faults
from xjax.data.files.tables import read_table
from xjax.data.tokens_config import OnError

NAMES = 'fish trade rain wine'.split()


def read(text, quoting=Quoting.AUTO, on_error=OnError.RAISE):
  faults = Faults(on_error)
  file = io.BytesIO(text.encode())
  table = read_table(file, 'x.csv', faults, quoting=quoting)
  return list(table.rows), faults


def table(rows, delimiter=',', header='text,labels', end='\n'):
  lines = [header, *(','.join(row) for row in rows)]
  return end.join(lines).replace(',', delimiter) + end


def texts_of(rows):
  return [row['text'] for _, row in rows]


def rows_with_quotes(first, last, count=40, text=0):
  """Returns rows; a quote begins the text of one and ends that of another."""
  rows = [[f'text {i} of this', NAMES[i % 4]] for i in range(count)]
  rows[first][0] = f'"{rows[first][0]}'
  rows[last][0] += ' 5"'
  return [row[::-1] if text else row for row in rows]


@pytest.mark.parametrize('end', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('delimiter', [',', '\t', ';', '|'])
@pytest.mark.parametrize(('first', 'last'), [(7, 27), (7, 8), (0, 1), (0, 2)])
@pytest.mark.parametrize('text', [0, 1])
def test_a_quote_that_swallows_rows(first, last, delimiter, end, text):
  header = 'labels,text' if text else 'text,labels'
  rows = rows_with_quotes(first, last, text=text)
  data = table(rows, delimiter, header, end)
  _, faults = read(data)
  assert len(faults.shown) == 1
  assert faults.shown[0].startswith(
    f'x.csv:{first + 2}: a quote opens here, and closes on line {last + 2}, '
  )
  assert '--config.data.quoting=none' in faults.shown[0]
  found, faults = read(data, Quoting.NONE)
  assert not faults.count
  assert texts_of(found) == [row[text] for row in rows]
  found, faults = read(data, Quoting.CSV)
  assert not faults.count and len(found) == 40 - (last - first)


def test_rows_with_numbers_and_names_of_their_own():
  rows = [[f'd{i}', f'it has {i}', f'n{i}'] for i in range(12)]
  rows[3][1], rows[4][1] = '"it is', 'not 5"'
  _, faults = read(table(rows, ',', 'id,text,labels'))
  assert faults.shown[0].startswith('x.csv:5: a quote opens here, and closes')


def test_lost_rows_cannot_be_skipped():
  data = table(rows_with_quotes(7, 27))
  _, faults = read(data, on_error=OnError.SKIP)
  with pytest.raises(DataError, match='x.csv:9: a quote opens'):
    faults.raise_or_log()


@pytest.mark.parametrize('end', ['\n', '\r\n'])
@pytest.mark.parametrize(
  'text',
  [
    'one\ntwo',
    'one, two\nthree',
    'one, two\nthree, four',
    'one, two\nthree, four\nfive, six\n\nseven, eight',
    'He said "it, is"\nso, I went',
    'one,\ntwo',
    '\n\n',
    'fish\ntrade',
    '\n'.join(f'line {i}' for i in range(30)),
    '\n'.join(f'line {i}, and, more' for i in range(30)),
  ],
)
@pytest.mark.parametrize('header', ['text,labels', 'labels,text', 'text'])
def test_texts_of_several_lines_are_read(text, end, header):
  text = text.replace('\n', end)
  quoted = '"' + text.replace('"', '""') + '"'
  columns = header.split(',')
  rows = [{'text': f'"text, {i}"', 'labels': NAMES[i % 4]} for i in range(20)]
  rows[5]['text'] = rows[9]['text'] = quoted
  data = table([[row[c] for c in columns] for row in rows], ',', header, end)
  found, faults = read(data)
  assert not faults.shown
  assert texts_of(found)[5] == texts_of(found)[9] == text
  assert len(found) == 20


@pytest.mark.parametrize(('header', 'last'), [('text', 9), ('text,labels', 4)])
def test_a_cell_that_may_hold_rows_is_warned_of(caplog, header, last):
  rows = [[f'text {chr(65 + i)} of this', chr(97 + i)] for i in range(20)]
  rows[2][0], rows[last][0] = '"It begins', 'it ends 5"'
  rows = [row[: header.count(',') + 1] for row in rows]
  found, faults = read(table(rows, header=header))
  assert len(found) == 22 - last and not faults.count
  assert f': a quote opens here, and closes on line {last + 2}' in caplog.text


@pytest.mark.parametrize(
  ('data', 'what'),
  [
    ('"text,labels\na,b\nc,d 5"\ne,f\n', ':1: .*ends on line 3: if quotes'),
    ('text,labels\na,b\n"c,d\ne,f\n', ':3: .*never closed; if quotes'),
    ('text,labels\n"He said \\"a\\".",b\nx\n', ':2: .*quoting=backslash'),
    ('text,labels\n"a,b\nc "d" e,f\n', ':2: .*on line 3, in a row that beg'),
    ('text,labels\n"a\nb",c,d\n', ':2: 3 cells, but 2 columns in the row that'),
  ],
)
def test_other_quotes_name_the_way_out(data, what):
  with pytest.raises(DataError, match=what):
    read(data)[1].raise_or_log()


def test_quotes_with_a_backslash():
  data = 'text,labels\n"He said \\"a, b\\".",c\n"x\ny",d\n'
  found, faults = read(data, Quoting.BACKSLASH)
  assert texts_of(found) == ['He said "a, b".', 'x\ny'] and not faults.count


def test_a_quote_within_a_cell_is_ordinary():
  data = 'text,labels\n5" screen,a\nthe 3" and 4" pipes,b\n'
  assert texts_of(read(data)[0]) == ['5" screen', 'the 3" and 4" pipes']


@pytest.mark.parametrize(
  ('data', 'rows'),
  [
    # A space before a quote, which is no part of a label.
    ('text, labels\nx, "a;b"\ny, a\n', [('x', 'a;b'), ('y', 'a')]),
    ('text; labels\n"x; 1"; "a, b"\n', [('x; 1', 'a, b')]),
    ('text\tlabels\nx,  "y"\t "a"\n', [('x,  "y"', 'a')]),
    (
      'text, labels\nx, "a,b"\nélève,  "ü ""a"""\n',
      [
        ('x', 'a,b'),
        ('élève', 'ü "a"'),
      ],
    ),  # fmt: skip
    # Not all are closed, so these are no quotes.
    ('text\tlabels\nx\t "Hi" he said\n', [('x', ' "Hi" he said')]),
    # Delimiters at the end of the header, or of all rows, or of some.
    ('text,labels,,,\nx,a,,,\ny,b\n', [('x', 'a'), ('y', 'b')]),
    ('text;labels\nx;a;\ny;b; \n', [('x', 'a'), ('y', 'b')]),
    ('text\tlabels\t\nx\ta\t\t\ny\tb\t\n', [('x', 'a'), ('y', 'b')]),
    # Rows of empty cells.
    (',\ntext,labels\nx,a\n,\ny,b\n , \n,,,\n""\n', [('x', 'a'), ('y', 'b')]),
    ('text\nx\n""\n\ny\n', [('x',), ('',), ('y',)]),
    ('text\t\nx\t\n\t\n', [('x',)]),
    # The line of Excel that names the delimiter.
    ('sep=;\ntext;labels\nx, y, z;a,b\n', [('x, y, z', 'a,b')]),
    ('"sep=,"\r\ntext,labels\r\nx,a\r\n', [('x', 'a')]),
    ('sep=\t\ntext\tlabels\nx,y\ta\n', [('x,y', 'a')]),
    ('SEP=;\ntext;labels\nx, y;a,b\n', [('x, y', 'a,b')]),
    ('sep=^\ntext^labels\nx,y^a\n', [('x,y', 'a')]),
    # A backslash before a quote.
    (
      'text,labels\n"say \\"a, b\\", x",c\ny,d\n',
      [
        ('say "a, b", x', 'c'),
        ('y', 'd'),
      ],
    ),  # fmt: skip
    ('text\tlabels\n"\\"ü\\"\t1"\t"c;d"\n', [('"ü"\t1', 'c;d')]),
    ('text,labels\n"C:\\",c\n"5\\""",d\n', [('C:\\', 'c'), ('5\\"', 'd')]),
    # Apostrophes are no quotes.
    ("text,labels\nrock 0,'n'\n'y','b'\n", [('rock 0', "'n'"), ("'y'", "'b'")]),
    ("text,labels\n'twas,a\nit's,b\n", [("'twas", 'a'), ("it's", 'b')]),
    # R has spaces between cells.
    ('"text" "labels"\n"1" "x \\"y\\"" "a;b"\n', [('1', 'x "y"', 'a;b')]),
    # A number as the name of a column.
    ('text,2020,labels\nx,1,a\n', [('x', '1', 'a')]),
  ],
)
def test_rows_as_other_programs_write_them(data, rows):
  found, faults = read(data)
  assert [tuple(row.values()) for _, row in found] == rows
  assert not faults.count


@pytest.mark.parametrize(
  ('data', 'columns'),
  [
    ('"text","labels"\n"1","x","a"\n"2","y","b"\n', ('text', 'labels')),
    ('"text";"labels"\n"Åse";"x";"a"\n"Bo";"y";"b"\n', ('text', 'labels')),
    ('text\tlabels\n1\tx\ta\n2\ty\tb\n', ('text', 'labels')),
  ],
)
def test_row_names_of_r(data, columns):
  rows = [row for _, row in read(data)[0]]
  assert tuple(rows[0]) == ('column-1', *columns)
  assert [[row[c] for c in columns] for row in rows] == [['x', 'a'], ['y', 'b']]


@pytest.mark.parametrize(
  ('data', 'what'),
  [
    ('text,labels\nHi, you,a\nx, y,b\n', '^x.csv:2: 3 cells, but 2 columns'),
    ('text,labels,\nx,a,b\n', '^x.csv:2: 3 cells, but 2 columns'),
    ('text,é,é\nx,a,b\n', "the name '.xe9' occurs twice in it"),
    ('# of 2024\n# by us, too\ntext,labels\nx,a\n', '^x.csv:1: begins with #'),
    ('text,labels\nx,a\ntext,labels\n', '^x.csv:3: the header again'),
    ('text,labels\nx,a\n\ufefftext,labels\n', '^x.csv:3: the header again'),
    ('2020,2021,text\nx,a,b\n', "header.* its cell 1 is '2020'"),
  ],
)
def test_what_is_no_such_table(data, what):
  with pytest.raises(DataError, match=what):
    read(data)[1].raise_or_log()


def test_unusual_quotes_are_said_and_can_be_refused(caplog):
  text = '"\\"x\\", y",a'
  caplog.set_level('INFO', 'absl')
  assert len(read(f'text,labels\n{text}\n')[0]) == 1
  assert 'guessed; if not, train with --config.data.quoting=csv' in caplog.text
  assert read(f'text,labels\n{text}\n', Quoting.CSV)[1].count


CELL = st.lists(st.sampled_from([*'ab é日", \t;|#\'\\5', '\r\n', '\n', '\r']))


@given(
  st.lists(st.tuples(*[CELL.map(''.join)] * 2), max_size=9),
  st.sampled_from(',;\t|'),
  st.sampled_from(['\n', '\r\n', '\r']),
  st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_what_is_read_was_written(rows, delimiter, end, quoting):
  if any('\r' in cell or '\n' in cell for row in rows for cell in row):
    quoting = csv.QUOTE_ALL  # older csv writers leave these without quotes
  file = io.StringIO()
  form = {'delimiter': delimiter, 'lineterminator': end, 'quoting': quoting}
  csv.writer(file, **form).writerows([('text', 'labels'), *rows])
  try:
    found, faults = read(file.getvalue())
  except DataError:
    return
  expected = [row for row in rows if any(map(str.strip, row))]
  assert faults.count or [tuple(row.values()) for _, row in found] == expected
