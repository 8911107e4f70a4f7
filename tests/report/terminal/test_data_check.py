"""The check of data: tables, warnings, and whether a run would start."""

import re

import pytest

from tests.fixtures.vector_files import json_lines
from xjax.configs.own_documents import auto, own_best, own_linear
from xjax.core.errors import UserError
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import GivenFeaturesConfig, TfidfConfig
from xjax.models.contract import Config
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.trees.tree_model import LinearModel, LinearTrain
from xjax.report.terminal.data_check import check_data
from xjax.run.fit import fit
from xjax.train.train_config import NoTrain


def write(folder, name, *documents):
  json_lines(folder / f'{name}.jsonl', documents)
  return JsonlData(dir=str(folder), tokens=TfidfConfig(min_count=1))


def check(data):
  return check_data(Config(data=data, model=LinearModel(), train=LinearTrain()))


def document(id_, text, *labels):
  return {'id': id_, 'text': text, 'labels': labels}


def rows_of(text, first):
  """Returns {first cell: other cells} of the table with this first header."""
  lines = text[re.search(rf'(?m)^ *{first}  ', text).start() :].splitlines()
  table = [re.split(r' {2,}', line.strip()) for line in lines]
  ends = [i for i, row in enumerate(table) if len(row) < 3]
  return {name: rest for name, *rest in table[1 : ends[0]]}


def test_a_sound_corpus_is_accepted_without_a_duplicate():
  text, would_run = check(
    SyntheticData(n_train=90, n_dev=9, n_test=9, tokens=TfidfConfig())
  )
  assert would_run and text.endswith('A run would accept these data.')
  assert 'no text is in two splits, or twice in one split' in text
  assert max(map(len, text.splitlines())) <= 80 and text.isascii()
  splits = rows_of(text, 'split')
  counts = {name: row[0] for name, row in splits.items()}
  assert counts == {'train': '90', 'dev': '9', 'test': '9'}


def test_counts_of_a_small_corpus(tmp_path):
  write(
    tmp_path,
    'train',
    *(document(f't{i}', f'word {i} ' * 9, 'often') for i in range(10)),
    document('u', 'short', 'often', 'rare'),
    document('v', 'not so short'),
  )
  data = write(tmp_path, 'dev', document('d', 'one two three', 'new', 'rare'))
  text, would_run = check(data)
  assert would_run
  splits = rows_of(text, 'split')
  assert splits['train'] == ['12', '1', '1.00', '2', '18', '18', '18', '0', '1']
  assert splits['dev'] == ['1', '0', '2.00', '2', '3', '3', '3', '0', '0']
  labels = rows_of(text, 'training documents')
  assert labels['0'][:2] == ['1', '0%'] and labels['1'][:2] == ['1', '8%']
  assert labels['10-49'][:2] == ['1', '92%'] and labels['2-4'][0] == '0'
  words = rows_of(text, 'words')
  assert words['1'][:2] == ['1', '8%'] and words['16-31'][:2] == ['10', '77%']
  assert words['16-31'][2] == '#' * 40 and words['1'][2] == '#' * 4
  told = ' '.join(text.split())
  assert '3 labels, with 0 to 11 training documents' in told
  assert '! 1 of 12 documents of train has no label.' in told
  assert '! 1 label of dev or test has no training document.' in told


def test_warnings_say_what_to_do(tmp_path):
  write(
    tmp_path,
    'train',
    document('t1', 'a text', 'Tax'),
    document('t2', 'a  text', 'tax'),
    document('t3', 'other', 'x'),
  )
  data = write(tmp_path, 'test', document('t3', 'a text', 'x'))
  text, would_run = check(data)
  told = ' '.join(text.split())
  assert would_run
  assert "same text as a document of train, such as 't3' and 't1'" in told
  assert 'test and train share ids: 1 of 1 document of test has' in told
  earlier = "an earlier document of train, such as 't2' and 't1'. 1 of 1 has"
  assert f'{earlier} other labels than the earlier document. Make one' in told
  assert "'Tax' (1), 'tax' (1). Merge" in told
  assert '! there is no split dev' in told


def test_equal_names_below_different_parents_are_not_merged(tmp_path):
  data = write(tmp_path, 'train', document('t1', 'a text', 'T1', 'T2', 'T3'))
  rows = [('T1', 'Zip', ['A']), ('T2', 'Zip', ['B']), ('T3', 'Zip', ['B'])]
  rows += [('A', 'A', []), ('B', 'B', [])]
  fields = 'id', 'name', 'parents'
  json_lines(tmp_path / 'labels.jsonl', [dict(zip(fields, x)) for x in rows])
  told = ' '.join(check(data)[0].split())
  one, two, three = (f"'T{i}' 'Zip' (1)" for i in (1, 2, 3))
  assert f'documents): {two}, {three}. Merge the labels' in told
  assert f'documents): {one}, {two}, {three}. They stay apart' in told
  assert told.count('Merge') == 1


def test_faults_are_listed_and_refused(tmp_path):
  data = write(
    tmp_path,
    'train',
    document('t1', 'a text', 'a'),
    document('t1', 'b text', 'b'),
    {'id': 't3', 'text': 'c'},
  )
  text, would_run = check(data)
  assert not would_run and text.endswith('A run would refuse these data.')
  assert "train.jsonl:2: duplicate id 't1'" in text
  assert 'train.jsonl:3: no field' in text and '2 faults in all' in text


def test_data_that_cannot_be_read_or_learned_from_are_refused(tmp_path):
  text, would_run = check(
    JsonlData(dir=str(tmp_path / 'absent'), tokens=TfidfConfig())
  )
  assert not would_run and 'absent' in text
  data = write(tmp_path, 'dev', document('d', 'a text', 'a'))
  text, would_run = check(data)
  assert not would_run and "no split 'train'; it has: dev" in text
  write(tmp_path, 'train', document('t', 'b text'))
  text, would_run = check(data)
  assert not would_run and 'nothing to learn' in text
  assert rows_of(text, 'split')['train'][:2] == ['1', '1']


def test_files_of_features_have_no_words(tmp_path):
  (tmp_path / 'train.txt').write_text('2 3 2\n0,1 0:1 2:1\n1 1:1\n')
  (tmp_path / 'test.txt').write_text('1 3 2\n0 0:1 2:1\n')
  data = XcFeaturesData(dir=str(tmp_path), tokens=GivenFeaturesConfig())
  text, would_run = check(data)
  assert would_run and 'words' not in text and 'two splits' not in text
  splits = rows_of(text, 'split')
  assert splits['train'] == ['2', '0', '1.50', '2', '2', '2', '2', '0']
  assert rows_of(text, 'features')['2-3'][:2] == ['2', '67%']


CHARACTERS = 'between words: data.tokens.analyzer=characters'


def chinese(i):
  return ''.join(chr(0x4E00 + (i * 97 + j * 31) % 2000) for j in range(9))


def numbered(i):
  return f'word word{i % 4} only{i}'


def own_names() -> Config:
  config = own_linear('large')
  config.data.tokens = ExactMatchModel.reads[0]()
  config.model, config.train = ExactMatchModel(), NoTrain()
  return config


def one_fold():
  config = own_best()
  config.model.folds = 30
  return config


def of_stack(*values):
  return pytest.param(*values, marks=pytest.mark.lightgbm)


@pytest.mark.parametrize(
  ('config', 'text', 'label', 'message'),
  [
    (lambda: own_linear('large'), chinese, 'abcd', ''),
    (auto, lambda i: f'{i % 9} {i % 7}', 'abcd', CHARACTERS),
    of_stack(own_best, lambda i: f'only{i}', 'abcd', CHARACTERS),
    (own_linear, lambda i: ' '.join('añbж'[i % 3 :]), 'abcd', CHARACTERS),
    of_stack(
      own_best, numbered, 'a', 'every label that the proposers may list is'
    ),
    of_stack(
      own_best, numbered, 'a' + 50 * ' ', 'too few documents have labels'
    ),
    of_stack(
      one_fold, numbered, 'abcd', 'config.model.folds=30: must be at most'
    ),
    (own_names, numbered, '1234', 'contains a letter'),
    of_stack(own_best, numbered, 'abcd', ''),
    (auto, numbered, 'a', ''),
  ],
)
def test_a_run_refuses_what_the_check_refuses(
  tmp_path, config, text, label, message
):
  rows = [
    document(f'd{i}', text(i), *label[i % len(label)].split())
    for i in range(48)
  ]
  for name in ('train', 'dev', 'test'):
    write(tmp_path, name, *rows)
  config = config()
  config.data.dir = str(tmp_path)
  told, would_run = check_data(config)
  assert would_run == (not message) and message in told
  if message:
    assert rows_of(told, 'split')['train'][0] == '48'
    with pytest.raises(UserError, match=re.escape(message)):
      fit(config, tmp_path / 'run')
    assert not (tmp_path / 'run').exists()
  else:
    fit(config, tmp_path / 'run')
