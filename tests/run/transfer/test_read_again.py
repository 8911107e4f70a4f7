"""Tests that transferred corpora are read as the source, or say what to do."""

import json

import pytest

from tests.fixtures.eurlex57k import CONCEPTS, as_lines
from tests.run.tagging import read_rows, write_rows
from tests.run.transfer.conftest import (
  HTC,
  config_of,
  contents,
  gold_of,
  write_corpus,
)
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.data.formats.htc import HtcConfig, HtcData, HtcLabels
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own.own import OwnData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.load import load_corpus
from xjax.data.schema import Label

LEAVES = {'htc': HtcConfig(labels=HtcLabels.LEAVES)}


@pytest.fixture
def htc(tmp_path):
  """A corpus with a taxonomy, whose documents have all ancestors or none."""
  folder = tmp_path / 'htc'
  folder.mkdir()
  (folder / 'x_train.json').write_text(
    '{"token": "reefs at sea", "label": ["reefs", "sea"], "id": "1"}\n'
    '{"token": "a field", "label": ["fields", "land"], "id": "2"}\n'
  )
  (folder / 'taxonomy.txt').write_text(
    'Root\tsea\tland\nsea\treefs\nland\tfields\n'
  )
  return folder


@pytest.fixture
def eurlex57k(tmp_path):
  """A small EURLEX57K, with titles that are no part of the full text."""
  folder = tmp_path / 'eurlex57k'
  folder.mkdir()
  as_lines(folder)
  (folder / 'eurovoc_en.json').write_text(json.dumps(CONCEPTS))
  return folder


@pytest.fixture
def columns(tmp_path):
  """A corpus whose labels are columns: 2 comes before 10."""
  folder = tmp_path / 'columns'
  folder.mkdir()
  rows = [
    {'uid': f'{i}', 'title': 'T', 'content': f'c{x}', 'target_ind': [x]}
    for i, x in enumerate((10, 2, 1, 10))
  ]
  write_rows(folder / 'trn.json', rows)
  write_rows(folder / 'dev.json', rows[:1])
  names = [f'name {column}\n' for column in range(12)]
  (folder / 'Y.txt').write_text(''.join(names))
  return folder


def corpus_of(folder, kind, **fields):
  """The corpus as a model reads it."""
  return load_corpus(config_of(folder, kind, **fields).data, 0)


def texts_of(*arguments, **fields):
  splits = corpus_of(*arguments, **fields).splits
  return {name: [x.text() for x in s.documents] for name, s in splits.items()}


def ids_of(*arguments, **fields):
  return list(corpus_of(*arguments, **fields).label_space.ids)


@pytest.mark.parametrize(
  ('target', 'options'), [('flat', {}), ('hierarchical', {'branching': (2,)})]
)
def test_leaves_of_a_taxonomy_come_back_with_their_parents(
  htc, moved, target, options
):
  before = config_of(htc, HtcData, **LEAVES).data.read()
  assert list(before.labels.ids) == ['reefs', 'fields']
  first, _ = moved(htc, target, 'there', HtcData, LEAVES, **options)
  back, lines = moved(first, 'original', 'back')
  splits, labels = contents(back)
  assert gold_of(splits) == [('reefs',), ('fields',)]
  assert labels['reefs'] == Label('reefs', 'reefs', parents=('sea',))
  assert labels['fields'].parents == ('land',)
  assert set(labels) == {'reefs', 'fields', 'sea', 'land'}
  assert lines[0] == f'{back}: 2 documents, 2 labels'
  assert lines[-1].startswith('parents without a descriptor: 2;')
  assert ids_of(back, JsonlData) == ['fields', 'reefs']


def test_the_printed_zones_give_the_text_of_the_source(eurlex57k, moved):
  before = texts_of(eurlex57k, Eurlex57kData)
  flat, lines = moved(eurlex57k, 'flat', 'flat', Eurlex57kData)
  back, more = moved(flat, 'original', 'back')
  zones = 'header,recitals,main_body,attachments'
  for folder, printed in (flat, lines), (back, more):
    assert printed[-1].endswith(f'give --config.data.zones={zones}')
    record = json.loads((folder / 'transfer.json').read_text())
    assert record['result']['zones'] == zones.split(',')
    assert texts_of(folder, JsonlData) != before  # with the title
    fields = {'zones': tuple(zones.split(','))}
    assert texts_of(folder, JsonlData, **fields) == before


def test_a_taxonomy_has_the_text_that_models_of_the_source_read(
  eurlex57k, moved
):
  htc, lines = moved(eurlex57k, 'flat', 'htc', Eurlex57kData, form=HTC)
  assert texts_of(htc, HtcData) == texts_of(eurlex57k, Eurlex57kData)
  assert any(line.endswith('are lost: title') for line in lines)


def test_the_zones_of_the_config_count(source, moved):
  data = {'zones': ('body',)}
  flat, lines = moved(source, 'flat', 'flat', data=data)
  assert lines[-1].endswith('give --config.data.zones=body')
  htc, _ = moved(source, 'flat', 'htc', data=data, form=HTC)
  assert texts_of(htc, HtcData) == texts_of(source, JsonlData, **data)
  with pytest.raises(ConfigError, match="there is no zone 'boddy'"):
    moved(source, 'flat', 'other', data={'zones': ('boddy',)})


def test_a_document_without_the_joined_zones_is_an_error(tmp_path, moved):
  source = write_corpus(tmp_path / 'source', {'train': [('a',), ('b',)]})
  rows = read_rows(source / 'train.jsonl')
  rows[1]['zones']['body'] = ' '
  write_rows(source / 'train.jsonl', rows)
  data = {'zones': ('body',)}
  with pytest.raises(DataError, match=r"'1' has no text in the zones .*\(body"):
    moved(source, 'flat', 'htc', data=data, form=HTC)
  moved(source, 'flat', 'jsonl', data=data)


def test_a_taxonomy_has_no_names_and_a_message_says_so(source, moved):
  _, lines = moved(source, 'flat', 'htc', form=HTC)
  assert 'labels that lose them: 5; use --format=jsonl' in ' '.join(lines)
  flat, lines = moved(source, 'flat', 'flat')
  assert len(lines) == 1  # JSON lines lose nothing
  _, lines = moved(flat, 'original', 'back', form=HTC)
  assert 'labels that lose them: 5; use --format=jsonl' in ' '.join(lines)


def test_a_message_counts_the_labels_that_a_taxonomy_adds(source, moved):
  flat, _ = moved(source, 'flat', 'flat')
  back, lines = moved(flat, 'original', 'back', form=HTC)
  new, old = (
    [labels for split in splits.values() for _, _, labels in split]
    for splits in (contents(back, HtcData)[0], contents(source)[0])
  )
  n = sum(map(len, new)) - sum(map(len, old))
  assert n > 0
  assert f'labels that they will get: {n:,};' in ' '.join(lines)


def test_the_order_of_columns_can_be_kept(columns, moved):
  before = ids_of(columns, XcRepoData)
  assert before == [f'{column}' for column in range(12)]
  flat, lines = moved(columns, 'flat', 'flat', XcRepoData)
  back, more = moved(flat, 'original', 'back')
  for folder, printed in (flat, lines), (back, more):
    assert 'give --config.data.labels=all' in printed[-1]
    assert ids_of(folder, JsonlData) == ['1', '10', '2']
    assert ids_of(folder, JsonlData, labels='all') == before
    assert ids_of(folder, OwnData) == before
  options = {'branching': (2,), 'kind': XcRepoData}
  tree, lines = moved(columns, 'hierarchical', 'tree', **options)
  assert 'give --config.data.labels=all' in lines[-1]
  meta = ['meta_1_0', 'meta_1_1']
  assert ids_of(tree, JsonlData, labels='all') == [*meta, *before]
  _, lines = moved(columns, 'hierarchical', 'htc', form=HTC, **options)
  assert lines[-1].startswith('the order of labels is lost')
