"""Tables of predictions and of gold labels are read as those of training."""

import gzip
import logging
import unicodedata

import pytest

from tests.judge.files.given import read, refused

NAMES = 'Öl', 'वन', "l'eau"
GOLD = [['Öl', 'वन'], ["l'eau"], [], ['Öl', "l'eau"]]
LISTED = [['Öl', "l'eau"], ["l'eau", 'Öl'], [], ['वन', 'Öl']]


def rows(labels, join):
  return ''.join(f'd{i}{join(x)}\n' for i, x in enumerate(labels))


def cells(mark, end=''):
  return lambda x: f'{mark}{";".join(x)}{end}'


def in_json(x):
  return ',"' + str(x).replace('"', '""') + '"'


def objects(labels, form):
  lines = (f'{{"id": "d{i}", "labels": {form(x)}}}\n' for i, x in labels)
  return ''.join(lines)


def texts(x):
  return '[' + ', '.join(f'"{name}"' for name in x) + ']'


FORMS = {
  'CSV': lambda x: 'id,labels\n' + rows(x, cells(',')),
  'TSV': lambda x: 'doc_id\ttags\n' + rows(x, cells('\t')),
  'lists': lambda x: 'id,text,topics\n' + rows(x, lambda y: ',' + in_json(y)),
  'fastText': lambda x: ''.join(
    ' '.join(f'__label__{name}' for name in y) + ' text\n' for y in x
  ),
  'lines': lambda x: objects(enumerate(x), texts),
  'texts': lambda x: objects(enumerate(x), lambda y: f'"{";".join(y)}"'),
  'array': lambda x: '[\n' + objects(enumerate(x), texts).replace(
    '}\n', '},\n'
  )[:-2] + ']\n',
}  # fmt: skip
INDICATORS = "id,Öl,वन,l'eau\nd0,1,1,0\nd1,0,0,1\nd2,0,0,0\nd3,1,0,1\n"


def found_labels(found):
  lists = found.lists['all']
  return [[found.labels[i] for i in x if i >= 0] for x in lists.ids]


@pytest.mark.parametrize('gold', [*FORMS, 'indicators'])
@pytest.mark.parametrize('form', FORMS)
def test_labels_without_scores_are_ranked_as_listed(files, form, gold):
  files['scores'].write_text(FORMS[form](LISTED))
  text = INDICATORS if gold == 'indicators' else FORMS[gold](GOLD)
  files['gold'].write_text(text)
  found, _ = read(files, 'gold')
  assert {*found.labels} == {*NAMES} and found_labels(found) == LISTED
  gold = [{found.labels[i] for i in row} for row in found.gold]
  assert gold == [*map(set, GOLD)]


@pytest.mark.parametrize('encoding', ['utf-8-sig', 'utf-16', 'cp1252'])
def test_tables_have_any_encoding_of_training(files, encoding):
  table = 'id,labels\nd0,"Straße;Öl und Gas für Käufer"\nd1,Öl und Gas\n'
  data = table.encode(encoding)
  for name in ('scores', 'gold'):
    files[name].write_bytes(data)
    data = gzip.compress(data)
  found, _ = read(files, 'gold')
  names = {'Straße', 'Öl und Gas für Käufer', 'Öl und Gas'}
  assert {*found.labels} == names and len(found) == 2


def test_scores_may_be_a_list_beside_the_labels(files):
  line = '{"id": "a", "labels": ["Öl", "वन"], "scores": [0.25, 0.5]}'
  files['scores'].write_text(line)
  found, _ = read(files)
  assert found_labels(found) == [['वन', 'Öl']]
  assert found.lists['all'].scores.tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize('form', ['NFC', 'NFD'])
@pytest.mark.parametrize('names', ['é ü', '한 각', 'ờ ặ', 'ά ό'])
def test_names_of_labels_match_in_any_unicode_form(files, names, form):
  other = {'NFC': 'NFD', 'NFD': 'NFC'}[form]
  lines = [f'd{i},{x}\n' for i, x in enumerate(names.split())]
  lines = 'id,labels\n' + ''.join(lines)
  files['scores'].write_text(unicodedata.normalize(form, lines))
  files['gold'].write_text(unicodedata.normalize(other, lines))
  files['train'].write_text(unicodedata.normalize(other, lines))
  found, _ = read(files, 'gold', 'train')
  assert len(found.labels) == 2 and found.train_counts.tolist() == [1, 1]
  assert [[i] for i in found.gold.values] == found.lists['all'].ids.tolist()


def test_ids_that_a_file_has_in_two_unicode_forms_stay_two(files):
  files['scores'].write_text('id,labels\na,e\u0301\n')
  files['gold'].write_text('id,labels\na,e\u0301;é\n')
  assert len(read(files, 'gold')[0].labels) == 2


LONG = (
  'id,rank,label,name,score\nb,1,a;1,x,0.5\na,1,x,X,0.9\n"\'=c",,,,\n'
  "a,2,'-y,Y,0.25\n"
)


def test_a_row_for_each_label_as_predict_writes_it(files, caplog):
  files['scores'].write_text(LONG)
  files['gold'].write_text('{"id": "a", "labels": ["-y"]}\n'
                           '{"id": "b", "labels": []}\n'
                           '{"id": "=c", "labels": []}\n')  # fmt: skip
  found, _ = read(files, 'gold')
  assert found.doc_ids == ('b', 'a', '=c')
  lists = found.lists['all']
  listed = [
    {found.labels[i]: float(s) for i, s in zip(*row) if i >= 0}
    for row in zip(lists.ids, lists.scores)
  ]
  assert listed[0] == {'a;1': 0.5} and listed[2] == {}
  assert listed[1] == {'x': pytest.approx(0.9), '-y': 0.25}
  caplog.set_level(logging.INFO, logger='absl')
  files['scores'].write_text(LONG.replace('score', 'x'))  # the order is left
  assert found_labels(read(files)[0]) == [['a;1'], ['x', '-y'], []]
  assert 'no scores: labels are in order of rank' in caplog.text


@pytest.mark.parametrize(
  ('order', 'values'),
  [('rank', '2 1 1'), ('rank', '10 9 1'), ('score', '.5 .9 1')],
)
def test_rows_of_labels_may_be_in_any_order(files, order, values):
  values = values.split()
  table = f'id,label,{order}\na,Öl,{values[0]}\n'
  files['scores'].write_text(
    f'{table}b,वन,{values[2]}\na,"Gas, roh",{values[1]}\n'
  )
  assert found_labels(read(files)[0]) == [['Gas, roh', 'Öl'], ['वन']]


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('doc,stuff\n1,a\n', 'hold the labels; the columns are: doc, stuff'),
    ('id,labels\na,x\nb\n', 'scores:3: 1 cells, but 2 columns'),
    ('id,labels\na,x\n,y\n', 'scores:3: id is empty'),
    (LONG.replace('0.5', 'nan'), 'scores:2: the score is not a finite number'),
    (
      LONG.replace('score', 'x').replace('a,1', 'a,one'),
      'scores:3: the rank is not a finite number',
    ),
    (
      'id,labels,Scores\na,x;y,.1;.9\n',
      "scores: the column 'Scores' would not be read: write a row for each",
    ),
    ('doc_id,label,score\na,x,.1\na,y,.9\n', "the column 'score' would not"),
    (LONG.replace('0.25', '1,5'), 'scores:5: 6 cells, but 5 columns'),
    (LONG.replace("'-y", 'x'), "scores:5: label 'x' occurs twice"),
    ('id,labels\n', 'has no document'),
    ('id,labels\na,"[0, 1, 1]"\n', 'lists of zeros and ones'),
    ('{"id": "a", "labels": [0, 1, 1]}\n', 'lists of zeros and ones'),
    ('[{"labels": [true, true]}]', 'lists of zeros and ones'),
    (
      '{"id": "a", "labels": [{"id": "x", "score": 1}, "y"]}\n',
      "scores:1: label 'y' has no score, but others have",
    ),
    (
      '{"id": "a", "labels": ["x"], "scores": [1, 2]}\n',
      'scores:1: scores is not a list of a number for each label',
    ),
    (
      '{"id": "a", "labels": {"x": 1}}\n',
      'scores:1: labels is not a list of {',
    ),
    (
      'id,labels\n' + ''.join(f'{i},"{i}9 7_{i}, x{i}"\n' for i in range(30)),
      'Put a semicolon between them, or write lists of JSON',
    ),
  ],
)
def test_faults_are_told(files, text, message):
  files['scores'].write_text(text)
  told = refused(files)
  assert message in told and '--config' not in told
