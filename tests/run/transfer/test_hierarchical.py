"""Tests the transfer of flat corpora to hierarchical form, and back."""

import gzip
import json

import numpy as np
import pytest

from tests.run.transfer.conftest import (
  HTC,
  LEAVES,
  ROWS,
  TAXONOMY,
  config_of,
  contents,
  gold_of,
  write_corpus,
)
from xjax.core.errors import ConfigError, DataError
from xjax.data.formats.htc import HtcData
from xjax.data.schema import Label
from xjax.run.transfer.clusters import clustering_features, labels_to_cluster
from xjax.run.transfer.request import Target, TransferRequest
from xjax.run.transfer.transfer import transfer


def tree_of(labels):
  """Returns the ids of meta-labels, and the children of each node."""
  meta = [id_ for id_ in labels if id_.startswith('meta_')]
  children = {}
  for label in labels.values():
    for parent in label.parents or ('',):
      children.setdefault(parent, []).append(label.id)
  return meta, children


def test_documents_get_the_clusters_above_their_labels(plain, moved):
  folder, lines = moved(plain, 'hierarchical', 'tree', branching=(2, 3))
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
    *lines[3:],
  ]
  assert (folder / 'meta_labels.txt').read_text().split() == meta


def test_the_tree_has_the_branching_and_is_balanced(plain, moved):
  folder, _ = moved(plain, 'hierarchical', 'tree', branching=(5,))
  meta, children = tree_of(contents(folder)[1])
  assert len(children['']) == len(meta) == 5
  sizes = sorted(len(children[id_]) for id_ in meta)
  assert sizes == [2, 2, 2, 3, 3]


def test_and_back_the_corpus_is_as_before(source, plain, moved):
  for name, folder, branching in (('a', source, (2,)), ('b', plain, (3, 2))):
    tree, _ = moved(folder, 'hierarchical', f'{name}1', branching=branching)
    back, _ = moved(tree, 'original', f'{name}2')
    assert contents(back) == contents(folder)
  assert not (back / 'labels.jsonl').exists()  # the second corpus had none


def test_leaves_are_the_labels_again(plain, moved):
  tree, _ = moved(plain, 'hierarchical', 'tree', branching=(2, 2))
  flat, _ = moved(tree, 'flat', 'flat', kept=LEAVES)
  assert contents(flat)[0] == contents(plain)[0]
  assert set(contents(flat)[1]) == {f'l{i}' for i in range(12)}


def test_a_taxonomy_is_written_and_read_back(plain, moved):
  tree, _ = moved(plain, 'hierarchical', 'tree', branching=(2, 3), form=HTC)
  theirs, _ = moved(plain, 'hierarchical', 'other', branching=(2, 3))
  splits, labels = contents(tree, HtcData)
  same, described = contents(theirs)
  assert {id_: x.parents for id_, x in labels.items()} == {
    id_: x.parents for id_, x in described.items()
  }
  for name, documents in splits.items():
    for (_, text, new), (_, zones, old) in zip(documents, same[name]):
      assert (text, set(new)) == (zones, set(old))
  back, _ = moved(tree, 'original', 'back', kind=HtcData)
  assert contents(back) == contents(plain)


def test_the_seed_alone_decides(plain, moved):
  labels = []
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    options = {'branching': (3, 2), 'seed': seed}
    folder, _ = moved(plain, 'hierarchical', name, **options)
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


def test_labels_without_documents_are_placed_by_their_names(tmp_path):
  names = 'reef tide', 'tide', 'forge ore', 'lute choir'
  labels = [Label(f'l{i}', name) for i, name in enumerate(names)]
  labels.append(Label('none', 'zyxw'))
  rows = {'train': [('l1',), ('l2',), ('l3',)] * 3, 'test': [('l0', 'none')]}
  texts = {'l1': 'reef tide', 'l2': 'ore forge', 'l3': 'choir lute'}
  folder = tmp_path / 'source'
  write_corpus(folder, rows, labels, zones=('text',), texts=texts)
  _, place = clustered(folder)
  # The name of l0 is the text of the three documents of l1.
  np.testing.assert_allclose(3 * place['l0'], place['l1'], rtol=1e-6)
  assert not place['none'].any()
  output = tmp_path / 'tree'
  request = TransferRequest(Target.HIERARCHICAL, str(output), branching=(2,))
  transfer(config_of(folder), request)
  new = contents(output)[1]
  assert new['none'].parents and new['l0'].parents  # all labels are in the tree


def test_labels_that_no_document_has_are_in_the_tree_if_asked(source, moved):
  options = {'branching': (2,), 'data': {'labels': 'all'}}
  tree, _ = moved(source, 'hierarchical', 'all', **options)
  assert contents(tree)[1]['unused'].parents
  tree, _ = moved(source, 'hierarchical', 'corpus', branching=(2,))
  assert 'unused' not in contents(tree)[1]
  assert 'unused' in (tree / 'original' / 'labels.jsonl').read_text()


def test_ids_must_not_be_taken(tmp_path, moved):
  rows = {'train': [('meta_1_1',), ('b',), ('c',)]}
  source = write_corpus(tmp_path / 'source', rows, zones=('text',))
  options = {'branching': (2,)}
  with pytest.raises(ConfigError, match="has a label 'meta_1_1'"):
    moved(source, 'hierarchical', 'tree', **options)
  tree, _ = moved(source, 'hierarchical', 'tree2', prefix='c ', **options)
  assert (tree / 'meta_labels.txt').read_text() == 'c 1_0\nc 1_1\n'


@pytest.mark.parametrize('prefix', [' m', 'a\nb', 'a\tb', '\x7f'])
def test_a_prefix_makes_ids_that_xjax_can_read(plain, moved, tmp_path, prefix):
  with pytest.raises(ConfigError, match='spaces around it or control'):
    moved(plain, 'hierarchical', 'tree', branching=(2,), prefix=prefix)
  assert not (tmp_path / 'tree').exists()


def test_there_are_at_most_as_many_clusters_as_labels(plain, moved, tmp_path):
  with pytest.raises(ConfigError, match='4 x 4 = 16 clusters.* only 12 labels'):
    moved(plain, 'hierarchical', 'tree', branching=(4, 4))
  assert not (tmp_path / 'tree').exists()
  tree, _ = moved(plain, 'hierarchical', 'tree', branching=(4, 3))
  meta, children = tree_of(contents(tree)[1])
  lowest = [children[m] for m in meta if not set(children[m]) & set(meta)]
  assert [len(labels) for labels in lowest] == [1] * 12


def test_train_is_needed(tmp_path, moved):
  rows = {'test': [('a',), ('b',), ('c',)]}
  source = write_corpus(tmp_path / 'source', rows, zones=('text',))
  with pytest.raises(DataError, match='has no split train'):
    moved(source, 'hierarchical', 'tree', branching=(2,))


def test_files_may_be_gzipped(plain, moved):
  options = {'branching': (2,), 'gzip': True}
  tree, _ = moved(plain, 'hierarchical', 'tree', **options)
  same, _ = moved(plain, 'hierarchical', 'same', **options)
  names = sorted(path.name for path in tree.glob('*.gz'))
  assert names == ['labels.jsonl.gz', 'test.jsonl.gz', 'train.jsonl.gz']
  for name in names:
    assert (tree / name).read_bytes() == (same / name).read_bytes()
  first = gzip.decompress((tree / 'train.jsonl.gz').read_bytes())
  assert json.loads(first.splitlines()[0])['id'] == '0'
  back, _ = moved(tree, 'original', 'back')
  assert contents(back) == contents(plain)


def test_further_splits_are_transferred_if_named(tmp_path, moved):
  rows = {**ROWS, 'late': [('land', 'alone')]}
  source = write_corpus(tmp_path / 'source', rows, TAXONOMY)
  flat, _ = moved(source, 'flat', 'flat', splits=('late',))
  assert (flat / 'late.jsonl').exists()
  flat, _ = moved(source, 'flat', 'usual')
  assert not (flat / 'late.jsonl').exists()
  with pytest.raises(ConfigError, match='only the splits train, dev, test'):
    moved(source, 'flat', 'htc', splits=('late',), form=HTC)
