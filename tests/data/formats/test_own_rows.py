"""Rows, files and shards that are parts of a corpus of one's own."""

from itertools import permutations
import json
import re
import unicodedata

import pyarrow as pa
from pyarrow import parquet
import pytest

from tests.fixtures.error_text import error_text
from tests.fixtures.own_corpus import write_csv
from xjax.data.formats.own import OwnData
from xjax.data.load import read_input
from xjax.data.tokens_config import OnError

WHOLE = {'dev_share': 0.0, 'test_share': 0.0}


def read(path, **fields):
  return OwnData(dir=str(path), **fields).with_guesses().read()


def labels_by_id(path, **fields):
  documents = read(path, **WHOLE, **fields).splits['train'].documents
  return {document.id: document.labels for document in documents}


def long_rows(n=4, **more):
  """Rows of documents; the last label of all comes after the other rows."""
  rows = [(i, label) for i in range(n) for label in 'ab'[: i % 2 + 1]]
  rows += [(i, 'last') for i in range(n)]
  return [
    {'id': f'd{i}', 'text': f'text {i}', 'label': label, **more}
    for i, label in rows
  ]


LONG = {f'd{i}': (*'ab'[: i % 2 + 1], 'last') for i in range(4)}


def write(path, rows):
  if path.suffix == '.parquet':
    parquet.write_table(pa.Table.from_pylist(rows), path)
  elif path.suffix == '.jsonl':
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  else:
    write_csv(path, rows, encoding='utf-8')


@pytest.mark.parametrize('form', ['csv', 'jsonl', 'parquet'])
def test_rows_of_one_id_and_text_are_one_document(tmp_path, logged, form):
  path = tmp_path / f'long.{form}'
  write(path, long_rows())
  assert labels_by_id(path) == LONG
  assert '6 records with the id and text of an earlier record' in logged.text
  (split,) = read(path, **WHOLE).splits.values()
  assert len(split) == len(split.gold) == len(split.text_digests) == 4
  assert split.gold.lengths.tolist() == [2, 3, 2, 3]
  other = [{'id': 'd0', 'text': 'another', 'label': 'a'}]
  write(path, long_rows() + other)
  assert f':{12 if form == "csv" else 11}: duplicate id' in error_text(
    read, path, folder=tmp_path
  )
  assert labels_by_id(path, on_error=OnError.SKIP) == LONG


@pytest.mark.parametrize('form', ['csv', 'jsonl'])
def test_ids_of_users_are_no_ids_of_documents(tmp_path, form):
  rows = [{'id': i % 3, 'text': f'text {i}', 'label': 'a'} for i in range(9)]
  path = tmp_path / f'users.{form}'
  write(path, rows)
  message = error_text(read, path)
  assert "duplicate id '0'; give --config.data.id=none if" in message
  data = OwnData(dir=str(path), id='none', **WHOLE).with_guesses()
  first = 1 + (form == 'csv')
  assert data.read().splits['train'].ids[0] == f'line-{first}'
  new = tmp_path / 'new.jsonl'
  write(new, [{'id': 5, 'text': 'x'}, {'id': 5, 'text': 'y'}])
  assert [x.id for x in read_input(data, str(new))] == ['line-1', 'line-2']


def test_a_column_of_ids_may_have_capitals(news):
  path = news([{'Key': f'k{i}', 'text': 'x', 'label': 'a'} for i in range(3)])
  assert [*labels_by_id(path, id='Key')] == ['k0', 'k1', 'k2']


@pytest.mark.parametrize('texts', ['text {}', 'Текст {}', '文本 {}'])
def test_rows_of_one_text_without_ids_are_a_warning(news, logged, texts):
  rows = [
    {'text': texts.format(i % 12), 'label': 'abc'[i % 3] if i < 12 else 'z'}
    for i in range(24)
  ]
  path = news([{**row, 'text': row['text'].encode().hex()} for row in rows])
  read(path)
  assert '12 with the text of an earlier one' in logged.text
  assert '--config.data.id=COLUMN' in logged.text
  assert set(labels_by_id(path, id='text').values()) == {
    ('a', 'z'),
    ('b', 'z'),
    ('c', 'z'),
  }


TWINS = {
  'case': str.upper,
  'space': lambda text: f'  {text}\n'.replace(' ', '\u00a0 '),
  'form': lambda text: unicodedata.normalize('NFD', text),
  'sharp': lambda text: text.replace('ß', 'SS').title(),
}


@pytest.mark.parametrize('twin', TWINS)
@pytest.mark.parametrize('form', ['fußnote é {}', 'ἀρχή ß {}', 'Ёлка ǅ {}'])
def test_texts_that_are_nearly_equal_are_drawn_together(tmp_path, twin, form):
  texts = [form.format('ab' * i) for i in range(60)]
  rows = [{'text': text, 'label': 'a'} for text in texts]
  others = [{**row, 'text': TWINS[twin](row['text'])} for row in rows]
  write(tmp_path / 'x.jsonl', rows + others)
  splits = read(tmp_path / 'x.jsonl').splits
  parts = {
    name: {int(id_.removeprefix('line-')) % 60 for id_ in split.ids}
    for name, split in splits.items()
  }
  assert sorted(map(len, parts.values())) == [6, 6, 48]


@pytest.mark.parametrize('form', ['csv', 'parquet', 'jsonl'])
@pytest.mark.parametrize('inner', ['', 'data'])
def test_shards_are_read_together(tmp_path, form, inner):
  folder = tmp_path / inner
  folder.mkdir(exist_ok=True)
  (tmp_path / 'README.md').write_text('# A corpus')
  rows = [{'text': f'text {i}', 'label': 'ab'[i % 2]} for i in range(30)]
  for i in range(3):
    name = f'train-0000{i}-of-00003.{form}'
    write(folder / name, rows[10 * i : 10 * i + 10])
  write(folder / f'validation-00000-of-00001.{form}', rows[:2])
  splits = read(tmp_path).splits
  texts = [document.text() for document in splits['train'].documents]
  assert texts == [row['text'] for row in rows]
  assert len(set(splits['train'].ids)) == 30 and len(splits['dev']) == 2
  assert f'train-00001-of-00003.{form}/line-3' in splits['train'].ids
  (folder / f'train-00001-of-00003.{form}').unlink()
  message = error_text(read, tmp_path, folder=folder)
  assert 'expected the shards 0 to 2 of 3, but found train-00000-of' in message


def test_shards_of_one_name_are_train(tmp_path):
  for i in range(2):
    rows = [{'text': f'{i} {j}', 'label': 'a'} for j in range(8)]
    write(tmp_path / f'news.{i}-of-2.csv', rows)
  assert len(read(tmp_path, **WHOLE).splits['train']) == 16


def test_equal_files_of_label_folders_are_one_document(tmp_path, logged):
  for label in ('health', 'law', '法律'):
    for i in range(5):
      path = tmp_path / label / 'in' / f'{i}.txt'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text('both' if i == 0 else f'{label[0]} {i}')
  (tmp_path / 'law' / 'in' / '0.txt').write_text('BOTH')
  (tmp_path / 'law' / 'notes.md').write_text('x')
  (tmp_path / 'law' / 'doc.v2').write_text('x')
  (tmp_path / 'README.html').write_text('x')
  found = labels_by_id(tmp_path)
  assert len(found) == 14 and found['health/in/0.txt'] == ('health', '法律')
  assert found['law/in/0.txt'] == ('law',)
  assert '1 file equal to a file of that name of another label' in logged.text
  assert re.search('an ending, but not 1 .(md, 1 .v2|v2, 1 .md)', logged.text)


@pytest.mark.parametrize(
  ('column', 'given'),
  [
    ('text, clean', ('text', 'clean')),
    ('text, clean', ('text, clean',)),
    ('a,b,c', ('a', 'b', 'c')),
    ('длинный, текст', ('длинный', 'текст')),
  ],
)
def test_a_column_may_have_a_comma_in_its_name(tmp_path, column, given, logged):
  path = tmp_path / 'x.csv'
  write(path, [{column: f'text {i}', 'label': 'a'} for i in range(3)])
  data = OwnData(dir=str(path), text=given, **WHOLE).with_guesses()
  assert data.text == (column,)
  assert data.read().splits['train'].documents[0].zones == {column: 'text 0'}
  if given != data.text:
    assert f'--config.data.text=\'"{column}"\'' in logged.text


CATS = {'fish': 1, 'law': 0.0, 'Zoll': True}


@pytest.mark.parametrize('name', ['cats', 'labels', 'label'])
@pytest.mark.parametrize('form', ['jsonl', 'parquet'])
def test_an_object_of_zeros_and_ones_has_the_labels(tmp_path, name, form):
  path = tmp_path / f'x.{form}'
  rows = [{'text': f'text {i}', name: {**CATS, 'law': i % 2}} for i in range(4)]
  if form == 'parquet':
    for row in rows:
      row[name] = {key: int(value) for key, value in row[name].items()}
  write(path, rows)
  assert {*map(frozenset, labels_by_id(path).values())} == {
    frozenset({'fish', 'Zoll'}),
    frozenset({'fish', 'law', 'Zoll'}),
  }


@pytest.mark.parametrize(
  ('value', 'key'),
  [
    ([{'start': 1, 'label': 'a'}], 'label'),
    ([{'score': 0.5, 'id': 7, 'name': 'é'}], 'id'),
    ([{'étiquette 1': 'a'}], r'"\u00e9tiquette 1"'),
    ({'a': 0.7}, ''),
    ({'choices': ['a']}, ''),
  ],
)
@pytest.mark.parametrize('name', ['labels', 'annotations'])
def test_other_objects_are_an_error_with_the_way_out(
  tmp_path, name, value, key
):
  path = tmp_path / 'x.jsonl'
  write(path, [{'text': f'text {i}', name: value} for i in range(3)])
  fields = {'labels': name, 'text': ('text',)} if name != 'labels' else {}
  message = error_text(read, path, folder=tmp_path, **fields)
  assert (
    f'x.jsonl:1: {name} has objects that are not {{label: 0 or 1}}' in message
  )
  hint = f', as jq does with `.{name} |= map(.{key})`' * bool(key)
  assert f'write a list of the labels{hint}\n' in message


@pytest.mark.parametrize(
  ('value', 'labels'), [('a;b', ('a', 'b')), (None, ()), ('b', ('b',))]
)
def test_labels_of_json_lines_may_be_a_text(tmp_path, value, labels):
  rows = [{'text': 'x', 'labels': x} for x in ('a;b', 'b;c', 'a', 'c;a')]
  path = tmp_path / 'x.jsonl'
  write(path, [*rows, {'text': 'last', 'labels': value}])
  assert labels_by_id(path)['line-5'] == labels


ARXIV = ['cs.LG', 'stat.ML', 'math.OC', 'hep-th']


@pytest.mark.parametrize(
  ('texts', 'mark'),
  [
    ([' '.join(x) for n in (1, 2, 3) for x in permutations(ARXIV, n)], ' '),
    (['law, tax', 'tax, oil', 'oil, law'], ','),
    (['法律；税', '税；油', '油；法律'], '；'),
  ],
)
def test_lists_of_one_text_may_have_several_labels(tmp_path, texts, mark):
  rows = [{'text': f't {i}', 'tags': [x]} for i, x in enumerate(texts * 9)]
  path = tmp_path / 'news.jsonl'
  path.write_text(
    '\n'.join(map(json.dumps, [*rows, {'text': 't', 'tags': []}]))
  )
  message = error_text(read, path)
  assert 'tags has lists of one text' in message
  assert f'.["tags"] |= map(split({json.dumps(mark)})[])' in message
  assert {*read(path, label_separator='list').label_ids} == {*texts}


@pytest.mark.parametrize(
  ('form', 'train', 'other', 'labels'),
  [
    ('csv', '0.0 1.0 2.0'.split(), ['0.0', 'a', '2.05'], {'0', 'a', '2.05'}),
    ('csv', ['2.0'] * 1_100 + ['2.1'], ['2.0'], {'2.0'}),
    ('csv', ['0', '1'], ['0.0', '1.0', '1'], {'0', '1'}),
    ('csv', ['0', '1.0', '1'], ['1', '0.00'], {'0', '1'}),
    ('csv', ['10,0', '2,0', '10,0'], ['2,0', '10'], {'2', '10'}),
    ('csv', ['0', '1', 'x'], ['1.0'], {'1.0'}),
    ('csv', ['1,000', '2,000'], ['1,000', '2.5'], {'1,000', '2.5'}),
    ('jsonl', ['0.0', '1.0'], ['1.0', 'x', ['0.0']], {'0', '1', 'x'}),
    ('jsonl', ['a;b', 'b;a'], ['a;c', ['a;b']], {'a', 'c', 'a;b'}),
    ('jsonl', [['a']], [['b', 'c'], 'd', None], {'b', 'c', 'd'}),
    ('jsonl', [[0], [1], [0, 1]], [[0, 1], [1, 0]], {'0', '1'}),
  ],
)
def test_train_tells_the_form_of_labels(tmp_path, form, train, other, labels):
  for name, cells in ('train', train), ('test', other):
    rows = [
      {'title': 't', 'text': f'{name} {i}', 'labels': cell}
      for i, cell in enumerate(cells * 12)
    ]
    write(tmp_path / f'{name}.{form}', rows)
  raw = read(tmp_path)
  gold = raw.splits['test'].gold.values
  assert {raw.label_ids[i] for i in gold} == labels
  assert raw.zones == (('text',) if form == 'jsonl' else ('title', 'text'))
  data = OwnData(dir=str(tmp_path)).with_guesses()
  found = read_input(data, str(tmp_path / f'test.{form}'))
  assert {x for d in found for x in d.labels or ()} == labels


def test_zones_may_have_labels_in_a_text(tmp_path):
  rows = [
    {
      'id': f'{i}',
      'zones': {'é': f'text {i}'},
      'labels': 'law;fish' if i % 2 else 'fish',
    }
    for i in range(20)
  ]
  write(tmp_path / 'x.jsonl', rows)
  found = labels_by_id(tmp_path / 'x.jsonl')
  assert {*found.values()} == {('law', 'fish'), ('fish',)}


PAIRS = [(';', '|'), ('|', ', '), (',', ' / '), ('、', '，'), (' ', ',')]


@pytest.mark.parametrize(('mark', 'other'), [*PAIRS, (';', "', '")])
def test_a_file_with_another_separator_is_one_error(tmp_path, mark, other):
  for name, separator in (('train', mark), ('test', other)):
    rows = [
      {'text': f'{name} {i}', 'labels': separator.join(labels)}
      for i, labels in enumerate(['ab', 'bc', 'ac', 'a', 'abc', 'c'] * 4)
    ]
    write(tmp_path / f'{name}.csv', rows)
  message = error_text(read, tmp_path, folder=tmp_path)
  assert '--config.data.label_separator=' in message and 'test.csv' in message
  raw = read(tmp_path, label_separator=mark)
  assert 'c' in raw.label_ids


@pytest.mark.parametrize(
  ('mark', 'other'), [(';', '|'), (',', ' '), ('|', '-')]
)
def test_rare_labels_with_another_separator_are_one_error(
  tmp_path, mark, other
):
  """Few labels of test are in train."""
  for name, separator, start in ('train', mark, 0), ('test', other, 700):
    ids = [f'{i * i % 1009}' for i in range(start, start + 300)]
    cells = [separator.join(ids[i : i + 3]) for i in range(0, 300, 3)]
    rows = [{'text': f'{name} {i}', 'tags': x} for i, x in enumerate(cells)]
    write(tmp_path / f'{name}.csv', rows)
  assert 'label_separator=' in error_text(read, tmp_path, folder=tmp_path)


@pytest.mark.parametrize('form', ['csv', 'jsonl', 'parquet'])
@pytest.mark.parametrize('mark', [';', ', ', '、', '\n'])
@pytest.mark.parametrize('late', [['a;b', 'c;d'], ['a;b', '', 'b;c;d']])
def test_labels_that_come_late_are_divided(tmp_path, form, mark, late):
  """All rows of all files tell the separator, not the first ones of train."""
  cells = [*'abcd' * 300, *(cell.replace(';', mark) for cell in late)]
  rows = [{'text': f'text {i}', 'label': x} for i, x in enumerate(cells)]
  write(tmp_path / f'x.{form}', rows)
  assert {*read(tmp_path).label_ids} == {*'abcd'}
  write(tmp_path / f'test.{form}', rows[1100:])
  write(tmp_path / f'x.{form}', rows[:1100])
  assert {*read(tmp_path).label_ids} == {*'abcd'}


@pytest.mark.parametrize(
  ('first', 'last', 'said'),
  [
    (['a;b', 'b;c', 'a', 'c'], 'a|b', "such as 'a;b' and 'a|b'"),
    (['a', 'b'], '[a, b]', 'it is not clear what separates labels'),
    (['a', 'b'], "['a', 'b']", "x.jsonl:1: labels is 'a', not a list"),
    (["['a', 'b']"], 'a', "x.jsonl:601: labels is 'a', not a list"),
    ([['a'], ['b']], 'a;b', "x.jsonl:1201: labels is 'a;b', but the first"),
    ([['a'], ['b']], 'a、b', '--config.data.label_separator='),
  ],
)
def test_another_form_that_comes_late_is_an_error(tmp_path, first, last, said):
  rows = [
    {'text': f'text {i}', 'labels': cell}
    for i, cell in enumerate([*first * 600, last])
  ]
  write(tmp_path / 'x.jsonl', rows)
  assert said in error_text(read, tmp_path, folder=tmp_path)


@pytest.mark.parametrize('form', ['csv', 'jsonl'])
@pytest.mark.parametrize(
  ('cells', 'given'),
  [
    (['010', '110'], ''),
    (['0 1 0', '1 1 0'], ''),
    (['no;yes;no', 'yes;yes;no'], ''),
    (['[-1, 1, -1]', '[1, 1, -1]'], ''),
    ([[False, True, False], [True, True, False]], ''),
    ([[-1, 1, -1], [1, 1, -1]], ''),
    (['010', '010'], '0/1'),
  ],
)
def test_zeros_and_ones_have_the_names_of_a_file(tmp_path, cells, given, form):
  rows = [{'text': f'text {i}', 'labels': x} for i, x in enumerate(cells * 20)]
  write(tmp_path / f'train.{form}', rows)
  fields = {'label_separator': given, **WHOLE}
  message = error_text(read, tmp_path, folder=tmp_path, **fields)
  assert 'but no names of labels: put a file labels.jsonl' in message
  write(tmp_path / 'labels.jsonl', [{'id': x, 'name': x} for x in 'xyz'])
  documents = [*read(tmp_path, **fields).splits['train'].documents]
  last = ('y',) if given else ('x', 'y')
  assert [x.labels for x in documents[:2]] == [('y',), last]
