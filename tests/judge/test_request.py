"""Checks what the words of a user's request become, and which are refused."""

import json

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import Ragged
from xjax.data.schema import Label
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.protocols import PYXCLIB, XJAX
from xjax.judge.request import JudgeRequest, Similarity, read_described

LABELS = ('a', 'b', 'c')


def predictions():
  return system([[0, 1]], [[1, 1]], [[0]], [55, 9, 0], labels=LABELS)


def criteria(asked, **given):
  return asked.criteria(predictions(), **given)


def test_nothing_in_particular():
  ours, usual = criteria(JudgeRequest()), Criteria()
  for field in ('ks', 'kinds', 'protocols', 'propensity', 'slices', 'seed'):
    assert getattr(ours, field) == getattr(usual, field)
  assert ours.vectors_LD is ours.ranks_LK is ours.weights_L is None
  assert not ours.replicates
  # What a run is judged by is usual.
  usual = Criteria(ks=(2, 7), propensity=(0.6, 2.6))
  found = criteria(JudgeRequest(kinds=('P',)), usual=usual)
  assert (found.ks, found.propensity) == ((2, 7), (0.6, 2.6))
  found = criteria(JudgeRequest(ks=(3,), propensity=(0.5, 0.4)), usual=usual)
  assert (found.ks, found.propensity) == ((3,), (0.5, 0.4))


def test_what_is_said_arrives(tmp_path):
  np.save(tmp_path / 'w.npy', np.ones((3, 4), np.float32))
  asked = JudgeRequest(
    ks=(4, 1),
    protocols=('pyxclib', 'xjax', 'pyxclib'),
    propensity=(0.6, 2.6),
    slices=('bin:1-9',),
    rank_weights=str(tmp_path / 'w.npy'),
    alphas=(0.25,),
    draws=(9, 99),
    replicates=7,
    seed=3,
  )
  found = criteria(asked, weights_L=np.arange(3.0))
  assert found.ks == (1, 4)
  assert found.protocols == (PYXCLIB, XJAX)
  assert found.propensity == (0.6, 2.6)
  assert found.slices['bin:1-9'].tolist() == [False, True, False]
  assert found.weights_L.tolist() == [0, 1, 2]
  assert (found.settings.alphas, found.settings.draws) == ((0.25,), (9, 99))
  assert found.ranks_LK.shape == (3, 4) and found.ranks_LK.dtype == np.float64
  assert (found.replicates, found.seed) == (7, 3)


@pytest.mark.parametrize(
  ('name', 'kinds'),
  [
    ('P', {'P@k'}),
    ('P@k', {'P@k'}),
    ('R-Precision', {'R-Precision'}),
    ('macro-F1', {'macro-F1', 'macro-F1@k'}),
    ('macro-F1@k', {'macro-F1@k', 'macro-F1@k[]'}),
    ('coverage', {'coverage@k'}),
    ('coverage[a]', {'coverage[a]@k'}),
  ],
)
def test_metrics_by_name(name, kinds):
  assert set(criteria(JudgeRequest(kinds=(name, name))).kinds) == kinds


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('ks', (0, 1), 'cut-offs must be positive and distinct'),
    ('ks', (5, 5), 'cut-offs must be positive and distinct'),
    ('ks', (1, 10**9), 'cut-offs must be at most 1,000,000'),
    ('kinds', ('Q',), "'Q' is unknown; known metrics .* P@k, "),
    ('kinds', ('P@5',), "'P@5' is unknown; .*set cut-offs with --ks"),
    ('kinds', ('ILD',), 'ILD@k needs --similarity'),
    ('kinds', ('weighted',), 'weighted@k needs --rank_weights'),
    ('protocols', (), 'give at least one protocol'),
    (
      'protocols',
      ('lmct',),
      "'lmct' is unknown; known protocols: all, xjax, lmtc",
    ),
    ('alphas', (0.5, 1.1), 'recalls must be from 0 to 1'),
    ('alphas', (float('nan'),), 'recalls must be from 0 to 1'),
    ('draws', (0,), 'numbers of documents must be positive'),
    *(
      ('propensity', numbers, 'two numbers, A >= 0 and B > 0')
      for numbers in (
        *((0.5,), (0.5, 1.5, 2.5), (-0.1, 1.5), (0.5, 0.0)),
        *((float('nan'), 1.5), (0.5, float('inf'))),
      )
    ),
    ('slices', ('bin:9',), "'bin:9' is neither bin:LOW-HIGH"),
    ('labels', 'gone.jsonl', '--labels=gone.jsonl: no such file'),
  ],
)
def test_what_is_refused_at_once(field, value, message):
  with pytest.raises(ConfigError, match=message):
    JudgeRequest(**{field: value})


def test_what_would_change_nothing_is_refused(tmp_path):
  path = tmp_path / 'labels.txt'
  path.write_text('Root\ta\n')
  with pytest.raises(ConfigError, match='labels.txt: no label has a parent'):
    criteria(JudgeRequest(labels=str(path)))
  with pytest.raises(ConfigError, match='pecos, lmtc print none of these'):
    JudgeRequest(kinds=('PSP',), protocols=('pecos', 'lmtc'))
  JudgeRequest(kinds=('PSP',), protocols=('pecos', 'pyxclib'))


@pytest.mark.parametrize(
  ('array', 'message'),
  [
    (np.ones((2, 9)), r'float \[3, 5 or more\], but is float64 \[2, 9\]'),
    (np.ones((3, 4)), r'but is float64 \[3, 4\]'),
    (np.ones(3), r'but is float64 \[3\]'),
    (np.ones((3, 5), np.int64), r'but is int64 \[3, 5\]'),
    (np.full((3, 5), np.nan), 'W of weighted@k must be finite'),
    (None, 'cannot be read as .npy'),
    (b'not an array', 'cannot be read as .npy'),
  ],
)
def test_rank_weights_that_do_not_fit(tmp_path, array, message):
  path = tmp_path / 'w.npy'
  if isinstance(array, bytes):
    path.write_bytes(array)
  elif array is not None:
    np.save(path, array)
  with pytest.raises(DataError, match=message):
    criteria(JudgeRequest(ks=(1, 5), rank_weights=str(path)))


def test_descriptors_of_all_kinds_of_files(tmp_path):
  rows = {'id': 'a', 'name': 'air'}, {'id': 'b', 'name': 'b', 'parents': ['a']}
  concepts = {
    'a': {'label': 'air', 'alt_labels': [], 'parents': []},
    'b': {'label': 'b', 'alt_labels': ['x'], 'parents': ['a']},
  }
  found = {}
  for name, text in {
    'labels.jsonl': '\n'.join(map(json.dumps, rows)),
    'eurovoc_en.json': json.dumps(concepts),
    'taxonomy.txt': 'Root\ta\na\tb\n',
    'taxonomy.tsv': 'Root\ta\na\tb\n',
    'labels.tsv': 'id\tname\tparent\na\tair\t\nb\t\ta\n',
  }.items():
    (tmp_path / name).write_text(text)
    found[name] = read_described(tmp_path / name)
    assert set(found[name]) == {'a', 'b'}
    assert found[name]['b'].parents == ('a',) and not found[name]['a'].parents
  assert found['eurovoc_en.json']['b'].alt == ('x',)
  (tmp_path / 'labels.jsonl').write_text('{"id": "a"}\n{"id": "a"}\n')
  with pytest.raises(DataError, match='labels.jsonl:2: duplicate label'):
    read_described(tmp_path / 'labels.jsonl')


def test_parents_from_a_file(tmp_path):
  path = tmp_path / 'taxonomy.txt'
  path.write_text('Root\tx\nx\tc\ty\ny\ta\n')
  tree = criteria(JudgeRequest(labels=str(path))).hierarchy
  # The labels come first; b is in no line of the file.
  assert list(tree.ids) == ['a', 'b', 'c', 'x', 'y'] and tree.n_labels == 3
  assert tree.levels.tolist() == [3, 1, 2, 1, 2]
  assert criteria(JudgeRequest()).hierarchy is None
  path.write_text('Root\tx\nx\tc\ta\na\tx\n')
  says = 'taxonomy.txt:2: label .* its own ancestor'
  with pytest.raises(DataError, match=says):
    criteria(JudgeRequest(labels=str(path)))


def test_labels_alike_by_their_descriptors(tmp_path):
  asked = JudgeRequest(similarity=Similarity.DESCRIPTORS)
  given = Label('a', 'sea fish'), Label('b', 'fish'), Label('c', 'law')
  vectors = criteria(asked, labels=given).vectors_LD.toarray()
  assert 0 < vectors[0] @ vectors[1] < 1
  assert vectors[0] @ vectors[2] == 0
  # A file's descriptors take the place of those of the run.
  path = tmp_path / 'labels.jsonl'
  path.write_text('{"id": "c", "name": "fish"}\n')
  asked = JudgeRequest(similarity=Similarity.DESCRIPTORS, labels=str(path))
  vectors = criteria(asked, labels=given).vectors_LD.toarray()
  assert vectors[1] @ vectors[2] == pytest.approx(1)


def test_labels_alike_by_documents_they_share():
  asked = JudgeRequest(similarity=Similarity.CO_OCCURRENCE)
  gold = Ragged.of([[0, 1], [0], [2]])
  vectors = criteria(asked, train_gold=lambda: gold).vectors_LD.toarray()
  assert vectors[0] @ vectors[1] == pytest.approx(1 / np.sqrt(2))
  assert vectors[0] @ vectors[2] == 0


def test_similarities_that_take_more_than_is_there():
  with pytest.raises(ConfigError, match='co_occurrence needs --train_labels'):
    criteria(JudgeRequest(similarity=Similarity.CO_OCCURRENCE))
  asked = JudgeRequest(similarity=Similarity.DESCRIPTORS)
  with pytest.raises(ConfigError, match='descriptors needs --labels'):
    criteria(asked)
  with pytest.raises(ConfigError, match='has no label of the predictions'):
    criteria(asked, labels=[Label('elsewhere', 'x')])
  with pytest.raises(DataError, match='have no words'):
    criteria(asked, labels=[Label('a', '--')])
