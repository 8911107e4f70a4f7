"""Records on disk by random access."""

import concurrent.futures
import json
import tempfile

import pytest

from xjax.core.errors import DataError, UserError
from xjax.data.formats.corpus_builder import RecordStore, text_digest
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData


def test_records_come_back(tmp_path):
  store = RecordStore(tmp_path / 'new')
  # Nothing is opened for nothing.
  assert list(store) == [] and not (tmp_path / 'new').exists()
  for data in (b'{"a": "x\\n"}', b'[1, null]', b'""'):
    store.append(data)
  assert list(store) == [{'a': 'x\n'}, [1, None], '']
  assert store[-1] == '' and list((tmp_path / 'new').iterdir()) == []
  with pytest.raises(IndexError):
    store[3]
  store.append(b'"late"')
  assert store[3] == 'late'


def test_threads_read_at_once():
  store = RecordStore()
  for i in range(500):
    store.append(b'[%s]' % b','.join([b'%d' % i] * (i % 17)))
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(store.__getitem__, range(500))) == list(store)


def test_an_impossible_folder_is_the_users_to_mend(tmp_path, monkeypatch):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='/file: .*data.cache_dir'):
    RecordStore(tmp_path / 'file').append(b'x')
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'gone'))
  with pytest.raises(UserError, match='/gone: .* variable TMPDIR'):
    RecordStore().append(b'x')


def test_a_full_disk(tmp_path, monkeypatch):
  def full(buffering, dir):
    return open('/dev/full', 'r+b', buffering)

  monkeypatch.setattr(tempfile, 'TemporaryFile', full)
  with pytest.raises(UserError, match=f'^{tmp_path}: .*No space left'):
    RecordStore(tmp_path).append(b'x')


FORMS = (
  'Santé publique',
  'Sante\u0301\xa0publique',
  'Santé\u200b  publique\xa0',
)


def written(tmp_path, form):
  """Writes a corpus whose documents have a label in each of its forms."""
  if form == 'json':
    rows = [{'text': f't{i}', 'labels': [name]} for i, name in enumerate(FORMS)]
    rows.append({'text': 'all', 'labels': FORMS})
    path = tmp_path / 'x.jsonl'
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  elif form == 'table':
    rows = [f't{i}\t{name}\n' for i, name in enumerate(FORMS)]
    path = tmp_path / 'x.tsv'
    all_ = f'all\t{";".join(FORMS)};\u200b;\n'
    path.write_text(''.join(['text\tlabels\n', *rows, all_]))
  else:
    path = tmp_path / 'x'
    for i, name in enumerate((*FORMS, FORMS[0])):
      (path / name).mkdir(parents=True, exist_ok=True)
      (path / name / f'{i}.txt').write_text(f't{i}')
  return path


@pytest.mark.parametrize('form', ['json', 'table', 'folder'])
def test_labels_without_descriptors_are_names_in_one_form(tmp_path, form):
  path = written(tmp_path, form)
  data = OwnData(dir=str(path), dev_share=0, test_share=0, label_separator=';')
  raw = data.read()
  assert raw.label_ids == FORMS[:1]
  assert raw.splits['train'].gold.lengths.tolist() == [1] * 4
  assert {x.labels for x in raw.splits['train'].documents} == {FORMS[:1]}


def test_ids_of_descriptors_stay_as_they_are(tmp_path):
  ids = FORMS[0], 'Sante\u0301 publique', 'c'
  labels = [{'id': x, 'name': f'{y} \u200b'} for x, y in zip(ids, FORMS)]
  labels[2]['alt'] = [FORMS[1], '\u200b']
  rows = [{'id': x, 'text': x, 'labels': [x]} for x in ids]
  rows.append({'id': 'new', 'text': 'x', 'labels': [FORMS[2]]})
  for name, values in ('labels', labels), ('train', rows):
    text = ''.join(json.dumps(value) + '\n' for value in values)
    (tmp_path / f'{name}.jsonl').write_text(text)
  raw = JsonlData(dir=str(tmp_path)).read()
  assert raw.label_ids == ids
  assert raw.splits['train'].gold.values.tolist() == [0, 1, 2, 0]
  assert [label.name for label in raw.labels] == [FORMS[0]] * 3
  assert raw.labels[2].alt == FORMS[:1]


def test_a_label_that_nobody_sees_is_a_fault(tmp_path):
  path = tmp_path / 'train.jsonl'
  path.write_text('{"id": "a", "text": "x", "labels": ["\\u200b"]}\n')
  with pytest.raises(DataError, match=':1: .*characters that nobody sees'):
    JsonlData(dir=str(tmp_path)).read()


def test_texts_in_other_forms_are_the_same_text():
  assert text_digest(['é', 'x']) == text_digest(['e\u0301 x'])
