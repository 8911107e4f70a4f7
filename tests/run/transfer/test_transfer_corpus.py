"""Tests the transfer of corpora between hierarchical and flat form."""

import dataclasses
import json

import numpy as np
import pytest

from tests.fixtures.kills import kill
from tests.run.tagging import write_rows
from xjax.core.atomic import WriteError
from xjax.core.errors import ConfigError, DataError, Preempted
from xjax.data.formats.htc import HtcData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.load import load_corpus
from xjax.data.schema import Label, label_row
from xjax.data.tokens_config import TfidfConfig
from xjax.models.contract import Config
from xjax.run.transfer import transfer_corpus as module
from xjax.run.transfer.transfer_corpus import (
  KeptLabels,
  MetaLabelTree,
  clustering_features,
  labels_to_cluster,
  transfer,
)

ALL, CLOSED, LEAVES = KeptLabels
WORDS = ('reef', 'tide', 'loam', 'seed', 'ore', 'forge', 'choir', 'lute')
# A has two roots, several parents, a label of which no document has any, and a
# root without children.
TAXONOMY = (
  Label('sea', 'the sea', description='salt water'),
  Label('land', 'dry land', alt=('soil', 'earth')),
  Label('coast', 'coast', parents=('sea', 'land')),
  Label('reefs', 'reef', parents=('coast', 'sea')),
  Label('fields', 'fields', parents=('land',)),
  Label('unused', 'never seen', parents=('fields',)),
  Label('alone', 'a root without children'),
)
ROWS = {
  'train': [
    *(('reefs', 'coast'), ('fields',), ('alone', 'land', 'reefs')),
    *((), ('sea',), ('reefs',)),
  ],
  'dev': [('coast',), ('alone',)],
  'test': [('reefs', 'fields')],
}


def write_corpus(folder, rows, labels=(), zones=('text',), texts=None):
  """Writes a corpus; `rows` and `texts` are by split and by first label."""
  folder.mkdir()
  if labels:
    write_rows(folder / 'labels.jsonl', map(label_row, labels))
  for name, split in rows.items():
    records = []
    for i, row in enumerate(split):
      text = f'{" ".join(row)} {WORDS[i % 8]} {WORDS[(3 * i + 1) % 8]}'
      text = (texts or {}).get(row[0] if row else '', text)
      parts = {zone: f'{zone} {text}' for zone in zones}
      parts = {'text': text} if zones == ('text',) else {'zones': parts}
      records.append({'id': f'{i}', **parts, 'labels': row})
    write_rows(folder / f'{name}.jsonl', records)
  return folder


@pytest.fixture
def source(tmp_path):
  """A corpus with a hierarchy and two zones."""
  return write_corpus(tmp_path / 'source', ROWS, TAXONOMY, ('title', 'body'))


@pytest.fixture
def plain(tmp_path):
  """A corpus without descriptors and without zones, of 12 labels."""
  names = [f'l{i}' for i in range(12)]
  pairs = [(names[i % 11], names[(5 * i) % 7 + 3]) for i in range(30)]
  train = [tuple(dict.fromkeys(row)) for row in pairs]
  rows = {'train': train, 'test': [('l11', 'l2'), ()]}
  return write_corpus(tmp_path / 'plain', rows)


def config_of(folder, kind=JsonlData, **fields):
  tokens = TfidfConfig(min_count=1)
  return Config(data=kind(dir=str(folder), tokens=tokens, **fields))


@pytest.fixture
def moved(tmp_path):
  """Transfers a corpus, and returns the new folder and the printed lines."""

  def move(source, to, name='new', kind=JsonlData, data=None, splits=()):
    output = tmp_path / name
    config = config_of(source, kind, **(data or {}))
    return output, transfer(config, to, str(output), splits)

  return move


def contents(folder, kind=JsonlData, **fields):
  raw = config_of(folder, kind, **fields).data.read()
  splits = {
    name: [
      (id_, dict(document.zones), document.labels)
      for id_, document in zip(split.ids, split.documents, strict=True)
    ]
    for name, split in raw.splits.items()
  }
  return splits, {label.id: label for label in raw.labels}


def gold_of(splits, name='train'):
  return [labels for _, _, labels in splits[name]]


def ids_of(folder, kind, **fields):
  corpus = load_corpus(config_of(folder, kind, **fields).data, 0)
  return list(corpus.label_space.ids)


def test_all_labels_stay_and_forget_their_parents(source, moved):
  splits, labels = contents(source)
  flat, lines = moved(source, ALL)
  assert contents(flat) == (
    splits,
    {x: dataclasses.replace(y, parents=()) for x, y in labels.items()},
  )
  assert lines == [f'{flat}: 9 documents, 7 labels']


def test_leaves_alone_may_stay(source, moved):
  splits, labels = contents(moved(source, LEAVES)[0])
  assert labels.keys() == {'reefs', 'unused', 'alone'}
  few = [('reefs',), (), ('alone', 'reefs'), (), (), ('reefs',)]
  assert gold_of(splits) == few
  assert [len(x) for x in splits.values()] == [6, 2, 1]  # all documents stay


def test_ancestors_may_be_added(source, moved):
  splits, labels = contents(moved(source, CLOSED)[0])
  assert not any(label.parents for label in labels.values())
  assert set(gold_of(splits)[0]) == {'reefs', 'coast', 'sea', 'land'}
  assert gold_of(splits)[0][:2] == ('reefs', 'coast')
  assert gold_of(splits)[1] == ('fields', 'land')


def test_labels_above_those_that_stay_are_no_labels(tmp_path, moved):
  htc = tmp_path / 'htc'
  htc.mkdir()
  rows = [('reefs', 'sea'), ('fields', 'land')]
  records = [{'token': f'on {x[0]}', 'label': x} for x in rows]
  write_rows(htc / 'x_train.json', records)
  (htc / 'taxonomy.txt').write_text(
    'Root\tsea\tland\nsea\treefs\nland\tfields\n'
  )
  flat, _ = moved(htc, LEAVES, kind=HtcData)
  splits, labels = contents(flat)
  assert gold_of(splits) == [('reefs',), ('fields',)]
  assert labels.keys() == {'reefs', 'fields'}
  assert not any(label.parents for label in labels.values())


def tree_of(labels):
  """Returns the ids of meta-labels, and the children of each node."""
  meta = [id_ for id_ in labels if id_.startswith('meta_')]
  children = {}
  for label in labels.values():
    for parent in label.parents or ('',):
      children.setdefault(parent, []).append(label.id)
  return meta, children


def test_documents_get_the_clusters_above_their_labels(plain, moved):
  folder, lines = moved(plain, MetaLabelTree((2, 3)))
  splits, labels = contents(folder)
  meta, children = tree_of(labels)
  assert len(meta) == 2 + 6
  before = contents(plain)[0]
  for name, documents in splits.items():
    for (_, _, new), (_, _, old) in zip(documents, before[name], strict=True):
      assert new[: len(old)] == old
      above = set()
      for id_ in old:
        while labels[id_].parents:
          (id_,) = labels[id_].parents
          above.add(id_)
      assert set(new[len(old) :]) == above
      assert len(new) == len(set(new))
  assert lines == [
    f'{folder}: 32 documents, 12 labels, 8 meta-labels',
    'levels: 2 - 6 - 12',
    'children of a node, by level: 2 / 3 / 2',
  ]
  assert (folder / 'meta_labels.txt').read_text().split() == meta
  flat, _ = moved(folder, LEAVES, 'flat')  # the leaves are the labels again
  assert contents(flat)[0] == before
  assert set(contents(flat)[1]) == {f'l{i}' for i in range(12)}


def test_the_tree_has_the_branching_and_is_balanced(plain, moved):
  folder, _ = moved(plain, MetaLabelTree((5,)))
  meta, children = tree_of(contents(folder)[1])
  assert len(children['']) == len(meta) == 5
  assert sorted(len(children[id_]) for id_ in meta) == [2, 2, 2, 3, 3]


def test_the_seed_alone_decides(plain, moved):
  labels = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    folder, _ = moved(plain, MetaLabelTree((3, 2), seed=seed), name)
    labels.append((folder / 'labels.jsonl').read_bytes())
  assert labels[0] == labels[1] != labels[2]


def clustered(folder):
  """The corpus whose labels are clustered, and the features of each label."""
  config = config_of(folder)
  corpus = labels_to_cluster(config.data.read(), config)
  features_LD = clustering_features(corpus, config, 0).toarray()
  return corpus, dict(zip(corpus.label_space.ids, features_LD, strict=True))


def test_the_features_are_those_of_the_paper(source):
  corpus, place = clustered(source)
  documents = corpus.splits['train'].documents
  texts = [document.text().split() for document in documents]
  gold = gold_of(contents(source)[0])
  rows = [row for row, labels in enumerate(gold) if 'reefs' in labels]
  # Each row of TF-IDF has length 1, so the share of a document is at most
  # 1 / words, and exactly that in length.
  parts = [1 / len(texts[row]) for row in rows]
  length = np.linalg.norm(place['reefs'])
  assert max(parts) < length <= sum(parts) + 1e-6
  one = np.linalg.norm(place['fields'])
  assert one == pytest.approx(1 / len(texts[1]), rel=1e-6)


def test_labels_without_documents_are_placed_by_their_names(tmp_path, moved):
  names = 'reef tide', 'tide', 'forge ore', 'lute choir'
  labels = [Label(f'l{i}', name) for i, name in enumerate(names)]
  labels.append(Label('none', 'zyxw'))
  rows = {'train': [('l1',), ('l2',), ('l3',)] * 3, 'test': [('l0', 'none')]}
  texts = {'l1': 'reef tide', 'l2': 'ore forge', 'l3': 'choir lute'}
  folder = write_corpus(tmp_path / 'source', rows, labels, texts=texts)
  _, place = clustered(folder)
  # The name of l0 is the text of the three documents of l1.
  np.testing.assert_allclose(3 * place['l0'], place['l1'], rtol=1e-6)
  assert not place['none'].any()
  new = contents(moved(folder, MetaLabelTree((2,)))[0])[1]
  assert new['none'].parents and new['l0'].parents  # all labels are in the tree


def test_labels_that_no_document_has_are_in_the_tree_if_asked(source, moved):
  for labels in ('all', 'corpus'):
    data = {'labels': labels}
    tree, _ = moved(source, MetaLabelTree((2,)), labels, data=data)
    assert ('unused' in contents(tree)[1]) == (labels == 'all')


def test_ids_must_not_be_taken(tmp_path, moved):
  rows = {'train': [('meta_1_1',), ('b',), ('c',)]}
  source = write_corpus(tmp_path / 'source', rows)
  with pytest.raises(DataError, match="has a label 'meta_1_1'"):
    moved(source, MetaLabelTree((2,)))


def test_clusters_that_cannot_be_are_refused(plain, moved, tmp_path):
  for options, says in (
    ({'branching': ()}, 'branching is missing'),
    ({'branching': (4, 1)}, 'must be at least 2'),
    ({'branching': (4, 4)}, '4 x 4 = 16 clusters.* only 12 labels'),
  ):
    with pytest.raises(ConfigError, match=says):
      moved(plain, MetaLabelTree(**options))
    assert not (tmp_path / 'new').exists()
  rows = {'test': [('a',), ('b',), ('c',)]}
  with pytest.raises(DataError, match='has no split train'):
    moved(write_corpus(tmp_path / 'test', rows), MetaLabelTree((2,)))


def test_further_splits_are_transferred_if_named(tmp_path, moved):
  rows = {**ROWS, 'late': [('land', 'alone')]}
  source = write_corpus(tmp_path / 'source', rows, TAXONOMY)
  flat, _ = moved(source, ALL, 'a', splits=('late',))
  assert (flat / 'late.jsonl').exists()
  flat, _ = moved(source, ALL, 'b')
  assert not (flat / 'late.jsonl').exists()


def test_a_message_says_how_the_text_of_the_source_is_read(source, moved):
  _, lines = moved(source, ALL, data={'zones': ('body',)})
  assert lines[-1].endswith('give --config.data.zones=body')
  with pytest.raises(ConfigError, match="there is no zone 'abstract'"):
    moved(source, ALL, 'other', data={'zones': ('abstract',)})
  assert not (source.parent / 'other').exists()


def test_the_order_of_columns_can_be_kept(tmp_path, moved):
  columns = tmp_path / 'columns'
  columns.mkdir()
  rows = [
    {'uid': f'{i}', 'title': 'T', 'content': f'c{x}', 'target_ind': [x]}
    for i, x in enumerate((10, 2, 1, 10))
  ]
  write_rows(columns / 'trn.json', rows)
  write_rows(columns / 'dev.json', rows[:1])
  (columns / 'Y.txt').write_text(''.join(f'name {x}\n' for x in range(12)))
  before = ids_of(columns, XcRepoData)
  assert before == [f'{column}' for column in range(12)]
  flat, lines = moved(columns, ALL, 'flat', XcRepoData)
  assert 'give --config.data.labels=all' in lines[-1]
  assert ids_of(flat, JsonlData) == ['1', '10', '2']
  assert ids_of(flat, JsonlData, labels='all') == before
  assert ids_of(flat, OwnData) == before
  tree, lines = moved(columns, MetaLabelTree((2,)), 'tree', XcRepoData)
  assert 'give --config.data.labels=all' in lines[-1]
  meta = ['meta_1_0', 'meta_1_1']
  assert ids_of(tree, JsonlData, labels='all') == [*meta, *before]


def test_a_killed_transfer_leaves_no_folder_and_is_done_again(
  plain, tmp_path, monkeypatch, moved
):
  whole, _ = moved(plain, MetaLabelTree((3,)), 'whole')
  with monkeypatch.context() as patch:
    kill(patch, module, 'write_json_lines', 1)
    with pytest.raises(Preempted):
      moved(plain, MetaLabelTree((3,)))
  assert not (tmp_path / 'new').exists()
  (tmp_path / f'.new.xjax-{2**22 + 1}-x.tmp').mkdir()  # of a killed process
  output, _ = moved(plain, MetaLabelTree((3,)))
  for path in whole.iterdir():
    assert (output / path.name).read_bytes() == path.read_bytes()
  assert not [*tmp_path.glob('.new*')]


def test_the_files_of_others_stay_as_they_are(plain, moved, tmp_path):
  (tmp_path / 'file').write_text(json.dumps({}))
  for name in ('plain', 'file'):
    with pytest.raises(WriteError, match='exists already; choose a new'):
      moved(plain, ALL, name)
