"""Tables and lines to be tagged: texts without words, and those of pipes."""

import contextlib
import csv
import gzip
import json
import os
import sys
import types

import pytest

import xjax
from xjax.core.errors import DataError
from xjax.data.files.tables import original
from xjax.judge.files.judge_files import JudgeFiles, read_judged
from xjax.run.fit import fit
from xjax.run.named_configs import named_config
from xjax.run.predict_file import predict_file

WORDS = 'ball team goal', 'market price tariff', 'sea, "net" and boat'
TEXTS = [f'{WORDS[i % 3]} {i} {i // 2}' for i in range(60)]
# Ids and names of labels that CSV must quote, or keep from spreadsheets.
LABELS = [
  xjax.Label('a,b;"c"', 'line\nbreak'),
  xjax.Label('=1+1', "it's\r\n-x"),
  xjax.Label("'-z", 'ré,"sumé"\rx'),
]


@pytest.fixture(scope='module')
def models(tmp_path_factory):
  """Runs on a table, on lines of fastText and on JSON lines."""
  folder, models = tmp_path_factory.mktemp('tagged'), {}
  ids = [label.id for label in LABELS] * 20
  with (folder / 'table.csv').open('w', newline='') as file:
    csv.writer(file).writerows([('text', 'labels'), *zip(TEXTS, 'xyz' * 20)])
  lines = [f'__label__{x} {text}\n' for x, text in zip('xyz' * 20, TEXTS)]
  (folder / 'lines.txt').write_text(''.join(lines))
  for name in ('table.csv', 'lines.txt'):
    config = named_config('own_linear')
    config.data.dir = str(folder / name)
    models[name] = fit(config, folder / f'run-{name}').workdir
  names = {'label_names': LABELS, 'workdir': folder / 'run-json'}
  xjax.fit(TEXTS, [[x] for x in ids], 'own_linear', **names)
  return models | {'json': folder / 'run-json'}


@pytest.fixture
def opened():
  with contextlib.ExitStack() as stack:
    yield stack


@pytest.fixture
def tag(models, tmp_path, monkeypatch, capsys, opened):
  def run(kind, data, name='in.csv', is_pipe=False, output='-', **options):
    source = tmp_path / name
    if is_pipe:
      ends, source = os.pipe(), '-'
      os.write(ends[1], data)
      os.close(ends[1])
      pipe = opened.enter_context(os.fdopen(ends[0], 'rb'))
      stdin = types.SimpleNamespace(buffer=pipe)
      monkeypatch.setattr(sys, 'stdin', stdin)
    else:
      source.write_bytes(data)
    predict_file(models[kind], str(source), output, 2, **options)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

  return run


def labels_of(rows):
  return [[label['id'] for label in row['labels']] for row in rows]


# The content of a file, and the texts of its documents.
EMPTY = {
  'strings': (b'{"text": ""}\n{"text": " \\u3000"}\n{"text": "ball"}\n', '--b'),
  'null': (b'{"text": null}\n{"text": "ball"}\n{"text": "?!"}\n', '-b-'),
  'zones': (b'{"zones": {"text": null}, "id": "x"}\n{"zones": {}}\n', '--'),
  'cells': (b'text,labels\n"",x\n  ,y\nball,\n', '--b'),
  'rows': (b'text,labels\n,\n , \nball,x\n,\n"",\n', '--b--'),
  'ids': (b'id,text\n1,\n2,ball\n3,"\n"\n', '-b-'),
  'column': (b'text\n""\n\nball\n\n\nball\n', '--b--b'),
  'TSV': ('text\tn\n\t1\nball\t3\n\u00a0\t2'.encode('utf-16'), '-b-'),
}


@pytest.mark.parametrize('is_pipe', [False, True])
@pytest.mark.parametrize(('data', 'texts'), EMPTY.values(), ids=EMPTY)
def test_documents_without_words_are_answered(
  tag, models, data, texts, is_pipe
):
  found = tag('table.csv', data, 'in', is_pipe)
  texts = ['ball' if text == 'b' else '' for text in texts]
  labels = xjax.load(models['table.csv']).predict(texts, k=2)
  assert labels_of(found) == [[x.id for x in row] for row in labels]


@pytest.mark.parametrize('is_pipe', [False, True])
def test_each_line_of_plain_text_is_answered(tag, models, is_pipe):
  rows = tag('lines.txt', b'\nball\n\n \n__label__x\nsea\n\n', 'in', is_pipe)
  assert [row['id'] for row in rows] == [f'line-{i}' for i in range(1, 8)]
  texts = ['', 'ball', '', '', '', 'sea', '']
  labels = xjax.load(models['lines.txt']).predict(texts, k=2)
  assert labels_of(rows) == [[x.id for x in row] for row in labels]


def test_a_folder_has_an_answer_for_each_file(models, tmp_path, capsys):
  for name, text in (('a', ''), ('b', '\n'), ('c', 'ball')):
    (tmp_path / f'{name}.txt').write_text(text)
  predict_file(models['table.csv'], str(tmp_path), '-', 2)
  assert capsys.readouterr().out.count('\n') == 3


def test_a_document_that_has_no_field_is_a_fault(tag):
  with pytest.raises(DataError, match=r"in:2: no field 'text'"):
    tag('json', b'{"text": ""}\n{"id": "x"}\n', 'in')


FORMS = {
  'names of rows': b'"text","n"\n"1","ball, sea","x"\n"2","it\'s price",""',
  'spaces': b'"text" "labels"\n"1" "ball, sea" "x"\n"2" "it\'s price" "y"\n',
  'backslashes': b'text,labels\n"a \\"ball, sea\\", ok",x\nit\'s a price,y\n',
  'quotes': b'labels,text\nx,"ball ""team"", \n goal"\ny,\'price\'\n',
  'spaces before quotes': b'labels, text\n"x", "ball, sea"\n"y", "price"\n',
  'Excel': b'sep=;\ntext;labels\nball, sea;x\nprice;y\n',
  'one column': b"text\r\nball\r\nit's, a price\r\n",
  'gzip': gzip.compress(b'"text","n"\n"a","ball","1"\n"b","price","2"\n'),
}


@pytest.mark.parametrize('data', FORMS.values(), ids=FORMS)
def test_a_table_of_a_pipe_is_read_like_a_file(tag, data):
  from_file = tag('table.csv', data)
  assert tag('table.csv', data, is_pipe=True) == from_file
  assert [x[0] for x in labels_of(from_file)] == ['x', 'y']


@pytest.mark.parametrize(
  'data', [b'text,n\nball\nprice,1,2\n', b'text,text\na,b\n', b'"text,n\na,b\n']
)
def test_the_first_fault_of_a_table_of_a_pipe_is_that_of_a_file(
  tag, data, tmp_path
):
  found = []
  for is_pipe in (False, True):
    with pytest.raises(DataError) as error:
      tag('table.csv', data, is_pipe=is_pipe)
    found.append(str(error.value).partition('\n')[0])
  assert (
    found[0].replace(str(tmp_path / 'in.csv'), 'standard input') == found[1]
  )


def test_a_table_that_is_written_can_be_read_back(tag, tmp_path):
  rows = ('=d', 'ball'), ('e', 'price, net'), ('f', '')
  data = '\n'.join(json.dumps({'id': id_, 'text': x}) for id_, x in rows)
  path = tmp_path / 'x.csv'
  tag('json', data.encode(), output=str(path), threshold='0.68')
  with path.open(newline='') as file:
    table = [[*map(original, row)] for row in csv.reader(file)]
  lines = tag('json', data.encode(), threshold='0.68')
  assert [row[:4] for row in table[1:]] == [
    [row['id'], str(at), label['id'], label['name']]
    for row in lines
    for at, label in enumerate(row['labels'], 1)
  ] + [['f', '', '', '']]
  gold = tmp_path / 'gold.csv'
  gold.write_text("id,labels\nf,\ne,=1+1\n=d,'-z\n")
  found, _ = read_judged(JudgeFiles(path, gold))
  assert found.doc_ids == ('=d', 'e', 'f')
  gold_ids = [[found.labels[i] for i in row] for row in found.gold]
  assert gold_ids == [["'-z"], ['=1+1'], []]
  lists = found.lists['all']
  assert [[found.labels[i] for i in x if i >= 0] for x in lists.ids] == [
    *labels_of(lines)
  ]
  assert len(lines) == 3 and len(table) > 3 and not lines[2]['labels']
