"""Files of one's own in any encoding, with any quotes, and JSON of any form."""

import json
import logging

import pytest

from tests.data.files.test_csv_table import rows_with_quotes, table
from tests.data.files.test_encodings import TEXTS
from xjax.core.errors import DataError
from xjax.data.files.csv_table import Quoting
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.load import load_corpus, read_input


def corpus_texts(data):
  corpus = load_corpus(data, 0, log=False)
  return sorted(
    document.text()
    for split in corpus.splits.values()
    for document in split.documents
  )


@pytest.mark.parametrize(
  ('language', 'encoding'),
  [
    ('ru', 'cp1251'),
    ('pl', 'iso8859-2'),
    ('zh', 'gbk'),
    ('ja', 'shift_jis'),
    ('ko', 'euc_kr'),
    ('el', 'utf-16-le'),
  ],
)
@pytest.mark.parametrize('form', ['table', 'folder'])
def test_texts_in_other_encodings(tmp_path, caplog, form, language, encoding):
  caplog.set_level(logging.INFO)
  texts = sorted(f'{TEXTS[language]} {i}' for i in range(12))
  if form == 'table':
    path = tmp_path / 'a.csv'
    rows = ''.join(f'{text},{text[:3].strip()}\n' for text in texts)
    path.write_bytes(f'text,labels\n{rows}'.encode(encoding))
  else:
    path = tmp_path
    for i, text in enumerate(texts):
      file = path / TEXTS[language][i % 2 :][:3].strip() / f'{i}.txt'
      file.parent.mkdir(exist_ok=True)
      file.write_bytes(f'{text}\n'.encode(encoding))
  data = OwnData(dir=str(path))
  assert [text.strip() for text in corpus_texts(data)] == texts
  said = [m for m in caplog.messages if 'read as' in m]
  assert len(said) == (not encoding.startswith('utf'))
  assert all('train with --config.data.encoding=...' in m for m in said)
  tagged = read_input(data, str(path))
  assert sorted(d.text().strip() for d in tagged) == texts


def test_a_named_encoding_is_used(tmp_path):
  path = tmp_path / 'a.csv'
  rows = ''.join(f'õ û {i},b\n' for i in range(12))
  path.write_bytes(f'text,labels\n{rows}'.encode('latin-1'))
  data = OwnData(dir=str(path), encoding='iso8859-2')
  assert corpus_texts(data)[0] == 'ő ű 0'
  # New documents may be UTF-8.
  path.write_text('text\nõõ\n', 'utf-8')
  assert read_input(data, str(path))[0].text() == 'õõ'
  with pytest.raises(DataError, match=r'a.csv:2: not ascii'):
    path.write_bytes(b'text\n\xe9\n')
    corpus_texts(OwnData(dir=str(path), labels='text', encoding='ascii'))


@pytest.mark.parametrize(
  ('label', 'encoding', 'readings'),
  [
    ('νερό', 'cp1253', "cp1251: 'несь' on line 2, .* cp1253: 'νερό'"),
    ('文化', 'euc_jp', "iso8859-5: 'ЪИВН' on line 2, .* euc-jp: '文化'"),
  ],
)
def test_a_label_is_not_read_by_the_toss_of_a_coin(
  tmp_path, label, encoding, readings
):
  path = tmp_path / 'a.csv'
  rows = ''.join(f'a text {i},{label if i < 9 else "b"}\n' for i in range(20))
  path.write_bytes(f'text,labels\n{rows}'.encode(encoding))
  with pytest.raises(DataError, match=f'encoding is not clear: {readings}'):
    corpus_texts(OwnData(dir=str(path)))
  corpus = load_corpus(OwnData(dir=str(path), encoding=encoding), 0, log=False)
  documents = corpus.splits['train'].documents
  assert {x for document in documents for x in document.labels} == {label, 'b'}


@pytest.mark.parametrize(
  'language, encoding', [('fr', 'cp1252'), ('ru', 'cp1251')]
)
def test_letters_of_many_texts_are_guessed_together(
  tmp_path, language, encoding
):
  words = [word for word in TEXTS[language].split() if not word.isascii()]
  for i in range(40):
    path = tmp_path / 'ab'[i % 2] / f'{i}.txt'
    path.parent.mkdir(exist_ok=True)
    text = f'{"plain " * 250}{i}\n{words[i % len(words)]}'
    path.write_bytes(text.encode(encoding))
  texts = corpus_texts(OwnData(dir=str(tmp_path)))
  assert {text.split()[-1] for text in texts} == {*words}


@pytest.mark.parametrize('encoding', ['cp9999', 'rot13', 'no such', '\0'])
def test_an_unknown_encoding_is_a_fault_of_the_config(encoding):
  (fault,) = OwnData(encoding=encoding).faults(None, 'config.data')
  assert fault.startswith(f'config.data.encoding={encoding!r}: is no encoding')
  assert not [*OwnData(encoding='GBK').faults(None, 'config.data')]


@pytest.mark.parametrize('delimiter', ['\t', ','])
def test_rows_do_not_vanish(tmp_path, delimiter):
  path = tmp_path / 'a.tsv'
  path.write_text(table(rows_with_quotes(7, 27), delimiter))
  for read in corpus_texts, lambda data: read_input(data, str(path)):
    with pytest.raises(DataError, match='a.tsv:9: a quote .* on line 29'):
      read(OwnData(dir=str(path)))
    assert len(read(OwnData(dir=str(path), quoting=Quoting.NONE))) == 40


@pytest.mark.parametrize('indent', [None, 2])
@pytest.mark.parametrize(
  'wrap',
  [
    list,
    lambda rows: {'data': rows},
    lambda rows: {'info': {'data': [{'id': 1}]}, 'data': rows},
    lambda rows: {'info': [{'data': []}, {'data': rows[:2]}], 'data': rows},
  ],
)
def test_json_that_is_not_in_lines(tmp_path, wrap, indent):
  rows = [
    {'id': i, 'text': f'text {i}', 'labels': ['ab'[i % 2]]} for i in range(12)
  ]
  path = tmp_path / 'train.json'
  path.write_text(json.dumps(wrap(rows), indent=indent))
  texts = sorted(row['text'] for row in rows)
  assert corpus_texts(OwnData(dir=str(path))) == texts
  path.rename(tmp_path / 'train.jsonl')
  labels = json.dumps([{'id': 'a'}, {'id': 'b', 'name': 'B'}], indent=indent)
  (tmp_path / 'labels.jsonl').write_text(labels)
  assert corpus_texts(JsonlData(dir=str(tmp_path))) == texts
  documents = read_input(JsonlData(), str(tmp_path / 'train.jsonl'))
  assert sorted(d.text() for d in documents) == texts
