"""Many documents, those of pipes, and tables are predicted in blocks."""

import csv
import json
import os
import pathlib
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from tests.fixtures.kinds import KINDS
from tests.run.tagging import contents, read_rows, write_rows
from xjax.core.errors import ConfigError
from xjax.report.page.explanation_page import explanation_page
from xjax.run import tagger as module
from xjax.run.predict_file import predict_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = [
  {'id': f'é{n}', 'text': f'nipa mani gipu {n} ' * n} for n in range(1, 12)
]
ROWS[1]['labels'], ROWS[7]['labels'] = ['c07', 'z'], ['a', 'c11']


@pytest.fixture(scope='module')
def linear(fit_once):
  return fit_once('linear', KINDS['linear']([])).workdir


@pytest.fixture
def tag(linear, tmp_path):
  def run(rows=ROWS, output='out/x.jsonl', k=3, **options):
    source, out = write_rows(tmp_path / 'in.jsonl', rows), tmp_path / output
    predict_file(linear, str(source), str(out), k, **options)
    return out

  return run


@pytest.mark.parametrize('limit', [('_BLOCK', 2), ('_CHARACTERS', 150)])
def test_blocks_change_no_byte(tag, limit, monkeypatch):
  options = {'explain': 2, 'page': explanation_page, 'threshold': '0.02'}
  monkeypatch.setattr(module, '_SHOWN', 5)
  before = contents(tag(**options).parent)
  assert {'x.html', 'x.npz', 'x.metrics.json'} < before.keys()
  monkeypatch.setattr(module, *limit)
  assert contents(tag(**options).parent) == before


@pytest.mark.parametrize('output', ['x.jsonl', 'x.csv', '-'])
def test_only_a_block_of_texts_is_in_memory(linear, tag, output, monkeypatch):
  alive, most = weakref.WeakValueDictionary(), 0

  def watched(*arguments):
    nonlocal most
    for document in read(*arguments):
      alive[document.id] = document
      most = max(most, len(alive))
      yield document

  read = module.stream_input
  monkeypatch.setattr(module, 'stream_input', watched)
  monkeypatch.setattr(module, '_BLOCK', 5)
  rows = [{'id': str(n), 'text': f'nipa {n}'} for n in range(60)]
  if output == '-':
    source = write_rows(tag([rows[0]]).parent / 'in.jsonl', rows)
    most = 0
    predict_file(linear, str(source), '-', 2)
  else:
    tag(rows, output)
  assert 5 <= most <= 15


def test_a_table_has_a_row_per_label(tag):
  plain = read_rows(tag())
  path = tag(output='out/x.csv', explain=2)
  with path.open(encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  assert [*rows[0]] == ['id', 'rank', 'label', 'name', 'score', 'why']
  assert [(r['id'], r['rank'], r['label'], r['name']) for r in rows] == [
    (row['id'], str(at), label['id'], label['name'])
    for row in plain
    for at, label in enumerate(row['labels'], 1)
  ]
  scores = [label['score'] for row in plain for label in row['labels']]
  np.testing.assert_allclose([float(r['score']) for r in rows], scores, 1e-5)
  assert {len(row['why'].split(', ')) for row in rows} <= {1, 2}
  # The other form of the same name stays, and the files beside are replaced.
  listed = json.loads(path.with_suffix('.judged.json').read_text())['files']
  assert {*listed} == {'x.csv', 'x.npz', 'x.metrics.json'}
  assert path.with_suffix('.jsonl').exists()


def test_a_document_without_labels_has_a_row_and_no_cell_is_a_formula(tag):
  odd = [{'id': '=1+1', 'text': 'nipa'}, {'id': 'a,"b', 'text': 'mani'}]
  with tag(odd, 'x.csv', threshold='1').open(newline='') as file:
    assert list(csv.reader(file))[1:] == [
      ["'=1+1", '', '', '', ''],
      ['a,"b', '', '', '', ''],
    ]


def test_other_names_of_output_are_refused(tag):
  with pytest.raises(ConfigError, match=r'must end in \.jsonl or \.csv, or be'):
    tag(output='x.tsv')


class Coprocess:
  """A process that answers lines, in a locale without most characters."""

  def __init__(self, workdir, *flags):
    locale = {'LC_ALL': 'C', 'PYTHONIOENCODING': 'cp1252', 'PYTHONUTF8': '0'}
    words = 'predict', f'--workdir={workdir}', '--k=2', *flags
    self.process = subprocess.Popen(
      [sys.executable, '-m', 'xjax', *words],
      cwd=ROOT,
      env={**os.environ, **locale, 'PYTHONCOERCECLOCALE': '0'},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
    )
    self.late = threading.Timer(100, self.process.kill)
    self.late.start()

  def write(self, text):
    self.process.stdin.write(text.encode())
    self.process.stdin.flush()

  def read(self):
    """The id of the next document that is answered."""
    return json.loads(self.process.stdout.readline().decode())['id']

  def end(self):
    out, error = self.process.communicate()
    self.late.cancel()
    return out.decode(), error.decode(), self.process.returncode


def line(id_):
  return json.dumps({'id': id_, 'text': f'nipa {id_}'}, ensure_ascii=False)


@pytest.mark.parametrize('skip', [False, True])
def test_a_line_is_answered_before_the_next_one_comes(linear, skip):
  process = Coprocess(linear, *['--skip_bad_lines'] * skip)
  for id_ in ('é', 'हि', '中'):
    process.write(line(id_) + '\n')
    assert process.read() == id_
  # A part of a line, lines at once, and a fault after them.
  process.write(line('d') + '\n' + line('e')[:9])
  assert process.read() == 'd'
  process.write(line('e')[9:] + '\n\n' + line('f') + '\n{"txt": 1}\n')
  assert [process.read(), process.read()] == ['e', 'f']
  if skip:
    process.write(line('g') + '\n')
    assert process.read() == 'g'
    process.write(line('h'))  # without an end
  out, error, code = process.end()
  assert code == (0 if skip else 1)
  assert "standard input:8: no field 'text'" in error
  assert 'Traceback' not in error
  assert [json.loads(x)['id'] for x in out.splitlines()] == ['h'] * skip


def test_a_reader_may_go_before_the_input_ends(linear):
  process = Coprocess(linear)
  with process.process as child:
    process.write(line('a') + '\n')
    assert process.read() == 'a'
    child.stdout.close()
    process.write(line('b') + '\n')
    assert child.wait() == 0  # although more lines might come
    assert child.stderr.read() == b''
  process.late.cancel()
