"""Metrics of labels with parents: by hand, by sets, and in special cases."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.judge.reference import paths
from tests.judge.systems import lists_of, system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.judge import NOTES, judge
from xjax.judge.make_predictions import popularity
from xjax.judge.metrics import hierarchical
from xjax.judge.predictions import Predictions

# Geometry belongs to mathematics and to art; physics and music have one parent.
PARENTS = {'science': (), 'art': (), 'maths': ('science',)}
PARENTS |= {'physics': ('science',), 'music': ('art',)}
PARENTS |= {'geometry': ('maths', 'art')}


def predictions(predicted, gold, parents=PARENTS, labels=None, depth=None):
  """Lists of the predicted labels, which have probability 0.9.

  Labels without a descriptor among `labels` are concepts.
  """
  labels = list(labels or parents)
  described = {id_: Label(id_, parents=tuple(parents[id_])) for id_ in parents}
  rows = [[labels.index(label) for label in row] for row in predicted]
  depth = depth or 1 + max(map(len, rows))  # every list has all its labels
  ids = np.array([row + [PAD] * (depth - len(row)) for row in rows])
  return system(
    *(ids, np.where(ids == PAD, -np.inf, 0.9)),
    [sorted(map(labels.index, row)) for row in gold],
    np.zeros(len(labels)),
    score_kind=ScoreKind.PROBABILITY,
    n_train=0,
    labels=tuple(labels),
    hierarchy=Hierarchy.of(map(described.get, labels), described.values()),
  )


def values_of(system, **fields):
  return judge(system, Criteria((1,), **fields))['xjax']['all']


def test_by_hand():
  system = predictions(
    [['maths', 'science'], ['geometry'], [], ['music']],
    [['physics', 'science'], ['geometry', 'maths'], ['art'], []],
  )
  values = values_of(system)
  # With ancestors, the first document has maths, science against physics,
  # science; the second has geometry, maths, science, art on both sides, though
  # each is reached twice; the last has music, art against nothing.
  assert values['hP'] == (1 + 4 + 0 + 0) / (2 + 4 + 0 + 2)
  assert values['hR'] == (1 + 4 + 0 + 0) / (2 + 4 + 1 + 0)
  assert values['hF1'] == 2 * 5 / (8 + 7)
  assert values['micro-F1'] == 2 * 2 / (4 + 5)
  # Science has no parent; the parents of the others are not all predicted.
  assert values['consistency'] == (2 + 0 + 0 + 0) / 4
  assert values['n_labels[level=1]'] == 2 and values['n_gold[level=1]'] == 2
  # Geometry is at level 2, because art is a root.
  assert values['n_labels[level=2]'] == 4 and values['n_gold[level=2]'] == 3
  assert 'n_labels[level=3]' not in values
  assert values['micro-P[level=2]'] == 1 / 3
  assert values['micro-R[level=1]'] == 1 / 2
  assert values['micro-F1[level=2]'] == 2 * 1 / (3 + 3)


def test_as_hiclass_prints():
  # A tree of 4 x 3 x 3 labels; the label c201 is below b20, which is below a2.
  tree = {f'a{x}': () for x in '0123'}
  tree |= {f'b{a[1:]}{x}': (a,) for a in tree for x in '012'}
  tree |= {f'c{b[1:]}{x}': (b,) for b in tree if b[0] == 'b' for x in '012'}
  rows = (
    [['c000', 'c111'], ['c012'], ['c201', 'c202', 'c321'], ['c110']],
    [['c000', 'c112'], ['c022', 'c100'], ['c202'], ['c300']],
  )
  values = values_of(predictions(*rows, tree))
  # precision, recall and f1 of hiclass 5.0.8, average 'micro', from the paths
  # of these labels.
  assert values['hP'] == pytest.approx(0.47368421052631576)
  assert values['hR'] == 0.5
  assert values['hF1'] == pytest.approx(0.4864864864864865)


def test_a_concept_above_all_others_does_not_count():
  parents = {**PARENTS, 'science': ('thing',), 'art': ('thing',), 'thing': ()}
  rows = [['maths'], ['music']], [['physics'], ['maths']]
  as_concept = predictions(*rows, parents, labels=list(PARENTS))
  assert values_of(as_concept)['hF1'] == values_of(predictions(*rows))['hF1']
  assert values_of(as_concept)['hF1'] == 2 * 1 / (4 + 4)
  # A label that is above all others counts as every label does.
  as_label = predictions(*rows, parents)
  assert values_of(as_label)['hF1'] == 2 * 3 / (6 + 6)
  # So do concepts that are not above all others.
  labels = [label for label in PARENTS if label != 'science']
  values = values_of(predictions(*rows, labels=labels))
  assert values['hF1'] == 2 * 1 / (4 + 4)
  assert values['consistency'] == 0.5  # only science is above maths


SIZES = st.integers(1, 12)


def problem(seed, n_labels):
  """A random hierarchy with concepts, random decisions and gold."""
  rng = np.random.default_rng(seed)
  names = [f'n{i}' for i in range(n_labels + rng.integers(0, 5))]
  parents = {
    name: tuple(rng.choice(names[:i], rng.integers(0, min(i, 3) + 1), False))
    for i, name in enumerate(names)
  }
  labels = rng.permutation(names)[:n_labels].tolist()
  rows = [
    rng.permutation(labels)[: rng.integers(0, n_labels + 1)].tolist()
    for _ in range(14)
  ]
  return rows[:7], rows[7:], labels, parents


@hypothesis.given(st.integers(0, 10**6), SIZES)
@hypothesis.settings(max_examples=20, deadline=None)
def test_by_the_definitions(seed, n_labels):
  predicted, gold, labels, parents = problem(seed, n_labels)
  system = predictions(predicted, gold, parents, labels)
  top = paths.top_concept(labels, parents)
  wanted = paths.judge(predicted, gold, labels, parents, top)
  values = values_of(system)
  if not any(gold):
    wanted |= {n: None for n in wanted if not n.startswith('n_')}
  for metric, value in wanted.items():
    assert values[metric] == pytest.approx(value), metric


def test_many_documents_are_counted_block_by_block(monkeypatch):
  predicted, gold, labels, parents = problem(3, 12)
  system = predictions(predicted, gold, parents, labels)
  whole = values_of(system)
  monkeypatch.setattr(hierarchical, '_ROWS', 2)
  assert values_of(system) == whole


def test_only_labels_that_a_model_can_predict_are_asked_for():
  rows = [['music'], ['maths']], [['music'], ['art']]
  whole = predictions(*rows)
  order = 'music', 'maths', 'physics', 'geometry', 'science', 'art'
  moved = predictions(*rows, labels=order)
  assert values_of(moved) == values_of(whole)
  # Science and art are gold labels that the model does not know.
  outside = dataclasses.replace(moved, n_scored=4)
  assert values_of(outside)['consistency'] == 1
  assert values_of(outside)['hF1'] == values_of(whole)['hF1']


def test_a_slice_has_the_ancestors_of_its_labels():
  right = ['music', 'art']
  rows = [['maths', 'science'], right], [['physics', 'science'], right]
  found = predictions(*rows)
  by = Criteria((1,), slices={'second': np.arange(6) > 1})
  values = judge(found, by)['xjax']['second']
  # Maths and physics share science; music and art are right.
  assert values['hF1'] == 2 * (1 + 2) / (4 + 4)
  assert values['consistency'] == 1  # the slice has no parent of its labels
  assert not any('[level=' in name for name in values)
  # A level as a slice has the same F1 as the level of all labels.
  whole = values_of(found)
  assert values['micro-F1'] == whole['micro-F1[level=2]'] == 0.5


def test_lists_that_are_too_short_are_refused_with_their_number():
  whole = predictions([['maths', 'science'], ['art']], [['maths'], ['music']])
  lists = whole.lists['all']
  # The first document may have more labels at the threshold.
  short = dataclasses.replace(whole, lists={'all': lists.first(1)})
  metrics = judge(short, Criteria((1,)))
  values, notes = metrics['xjax']['all'], metrics[NOTES]['all']
  why = '2 of 2 documents may have more labels at or above the threshold than '
  for name in ('hF1', 'hR', 'consistency', 'micro-F1[level=1]', 'micro-F1'):
    assert values[name] is None and notes[name] == f'{why}the 1 saved'
  # Scores below the threshold show that no label is missing.
  lists = lists_of([[2, 0], [1, 3]], [[0.9, 0.49], [0.9, 0.4]])
  known = dataclasses.replace(short, lists={'all': lists})
  assert values_of(known)['hF1'] == 2 * (2 + 1) / (3 + 4)


def test_without_parents_there_are_no_such_metrics():
  system = predictions([['maths']], [['maths']])
  flat = dataclasses.replace(system, hierarchy=None)
  names = set(values_of(system)) - set(values_of(flat))
  assert {'hP', 'hR', 'hF1', 'consistency', 'n_gold[level=2]'} <= names
  assert all('[level=' in n for n in names if n[0] != 'h' and n[0] != 'c')
  # A metric that the user names gets a reason.
  metrics = judge(flat, Criteria((1,), kinds=('hF1',)))
  assert metrics['xjax']['all']['hF1'] is None
  assert 'no label has a parent' in metrics[NOTES]['all']['hF1']
  # Parents may come from elsewhere.
  assert values_of(flat, hierarchy=system.hierarchy) == values_of(system)


def test_the_hierarchy_is_saved(tmp_path):
  rows = [['maths'], ['music']], [['physics'], ['music']]
  system = predictions(*rows, labels=['music', 'maths', 'physics'])
  system.save(tmp_path / 'saved.npz')
  after = Predictions.load(tmp_path / 'saved.npz')
  assert list(after.hierarchy.ids) == list(system.hierarchy.ids)
  assert after.hierarchy.n_labels == 3 and len(after.hierarchy) == 6
  assert judge(after) == judge(system)
  flat = dataclasses.replace(system, hierarchy=None)
  flat.save(tmp_path / 'flat.npz')
  assert Predictions.load(tmp_path / 'flat.npz').hierarchy is None
  with np.load(tmp_path / 'flat.npz') as file:
    assert not {'parents/indptr', 'concepts/bytes'} & set(file.files)


@pytest.mark.parametrize(
  ('name', 'value', 'fault'),
  [
    ('parents/indices', [1, 0], 'its own ancestor'),
    ('parents/indices', [2, 3], r'not in 0\.\.2'),
    ('parents/indices', [2, -1], r'not in 0\.\.2'),
    ('parents/indptr', [0, 1, 2, 1], 'should go from 0 to 2'),
    ('concepts/bytes', list(b'a'), 'an id is a label, or occurs twice'),
    ('parents/indptr', None, 'missing'),
  ],
)
def test_a_damaged_hierarchy_is_an_error(tmp_path, name, value, fault):
  path = tmp_path / 'saved.npz'
  parents = {'a': ('b',), 'b': ('c',), 'c': ()}
  predictions([['a']], [['b']], parents, labels=['a', 'b']).save(path)
  with np.load(path) as file:
    arrays = dict(file)
  if value is None:
    del arrays[name]
  else:
    arrays[name] = np.array(value, arrays[name].dtype)
  np.savez(path, **arrays)
  with pytest.raises(DataError, match=f'{name}: .*{fault}'):
    Predictions.load(path)


def space(parents):
  labels = [Label(id_, parents=above) for id_, above in parents.items()]
  counts = np.arange(1, len(labels) + 1, dtype=np.int32)
  return LabelSpace(labels, counts, 9, len(labels))


def test_judging_a_split_knows_the_parents_of_the_corpus(caplog):
  split = Split('dev', ('d',), Ragged.of([[0]]), (), '')
  assert popularity(space(PARENTS), split, 2).hierarchy.levels[-1] == 2
  assert popularity(space({'a': (), 'b': ()}), split, 2).hierarchy is None
  assert not caplog.records
  cycle = popularity(space({'a': ('b',), 'b': ('a',)}), split, 2)
  assert cycle.hierarchy is None and 'its own ancestor' in caplog.text
  assert judge(cycle)['xjax']['all']['P@1'] == 0
