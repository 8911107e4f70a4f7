"""Labels that judging leaves out, against a corpus that never had them."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.dense_lists import Table, rows_of
from tests.judge.systems import system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, LabelSpace, Split
from xjax.judge.criteria import Criteria
from xjax.judge.judge import document_lines, judge, tune_threshold
from xjax.judge.make_predictions import predict
from xjax.judge.metrics.protocols import LMTC, NAPKINXC, XJAX
from xjax.judge.predictions import Predictions

N, DEPTH = 40, 6
# Trained labels, then two held out, then one outside the label space.
COUNTS = np.array([90, 12, 60, 50, 0, 49, 3, 12, 100, 70, 0, 0, 0], np.int32)
L, TRAINED, HELD_OUT = 13, 10, 2
META = np.array([2, 8, 9, 11])  # one of these is held out
KEPT = np.setdiff1d(np.arange(L), META)
# An inner label, a root, a leaf and a held-out child are left out. The concept
# c is below the root.
PARENTS = {
  **dict.fromkeys(('l1', 'l2'), ['l0']),
  **dict.fromkeys(('l3', 'l9'), ['l2']),
  **dict.fromkeys(('l5', 'l10'), ['l3']),
  **dict.fromkeys(('l6', 'c'), ['l8']),
  'l4': ['l2', 'l8'],
  'l7': ['c'],
  'l11': ['l1'],
  'l12': ['l2', 'l6'],
}
# The same paths in a corpus that never had the labels.
SHORT = PARENTS | {'l3': ['l0'], 'l4': ['l0'], 'l12': ['l0', 'l6']}
SHORT |= {'l6': [], 'c': []}


def labels_of(rows, parents):
  return tuple(Label(f'l{i}', parents=parents.get(f'l{i}', ())) for i in rows)


def space_of(left_out=()):
  return LabelSpace(
    labels_of(range(L), PARENTS),
    *(COUNTS, 100, TRAINED, HELD_OUT),
    concepts=[Label('c', parents=PARENTS['c'])],
    left_out_ids=[f'l{i}' for i in left_out],
  )


def small_space():
  """The space of a corpus that never had the labels."""
  counts = COUNTS[KEPT], 100, TRAINED - 3, HELD_OUT - 1
  concepts = [Label('c', parents=SHORT['c'])]
  return LabelSpace(labels_of(KEPT, SHORT), *counts, concepts=concepts)


def scores_of(labels):
  """Scores of every document, drawn once, of these labels that are scored."""
  scores_NL = np.random.default_rng(0).normal(size=(N, L)).astype(np.float32)
  return scores_NL[:, labels[labels < TRAINED + HELD_OUT]]


def gold_rows():
  rng = np.random.default_rng(1)
  return [
    sorted(rng.choice(L, rng.integers(0, 6), replace=False).tolist())
    for _ in range(N)
  ]


def split_of(labels):
  place = {label: i for i, label in enumerate(labels.tolist())}
  rows = [[place[x] for x in row if x in place] for row in gold_rows()]
  ids = [f'd{i}' for i in range(N)]
  return Split('dev', ids, Ragged.of(rows), rows_of(N).items, '')


def predicted(labels, space, depth=DEPTH):
  return predict(Table(scores_of(labels)), split_of(labels), space, depth)


@pytest.fixture
def ours():
  return predicted(np.arange(L), space_of(META))


@pytest.fixture
def theirs():
  return predicted(KEPT, small_space())


def without_levels(metrics):
  """Metrics that do not depend on the places of labels that are left out."""
  if not isinstance(metrics, dict):
    return metrics
  placed = '[level=', 'consistency'
  return {
    name: without_levels(value)
    for name, value in metrics.items()
    if not any(text in name for text in placed)
  }


def same(ours, theirs):
  """Returns whether metrics are equal, up to the order of sums over labels."""
  ours, theirs = without_levels(ours), without_levels(theirs)
  if isinstance(ours, dict):
    return ours.keys() == theirs.keys() and all(
      same(value, theirs[name]) for name, value in ours.items()
    )
  if isinstance(ours, list):
    return len(ours) == len(theirs) and all(map(same, ours, theirs))
  return ours == (
    pytest.approx(theirs, rel=1e-12) if isinstance(ours, float) else theirs
  )


CONVENTIONS = XJAX, LMTC, NAPKINXC  # all of their kinds
ALL = Criteria(ks=(1, 3), protocols=CONVENTIONS, replicates=5)
# Fewer protocols and no intervals, which take longer.
SOME = Criteria(ks=(1, 3, 5))


def test_no_list_has_a_left_out_label_and_no_list_is_shorter(ours, theirs):
  for name, lists in ours.lists.items():
    assert not np.isin(lists.ids, META).any(), name
    other = theirs.lists[name]
    np.testing.assert_array_equal(lists.scores, other.scores)
    kept = np.append(KEPT, PAD)
    np.testing.assert_array_equal(lists.ids, kept[other.ids])
  assert not np.isin(ours.gold.values, META).any()


def test_all_metrics_are_those_of_a_corpus_without_them(ours, theirs):
  exact = judge(ours.of_judged_labels(), ALL, 0.3)
  ours, theirs = (judge(p, ALL, 0.3) for p in (ours, theirs))
  assert without_levels(exact) == without_levels(theirs)
  assert same(ours, theirs) and same(exact, ours)
  assert any('[' in name for name in ours['xjax']['all'])  # bins as well


def test_ancestors_are_those_of_a_corpus_without_them():
  # These lists have all labels, so that none above the threshold is missing.
  ours = predicted(np.arange(L), space_of(META), depth=20)
  theirs = predicted(KEPT, small_space(), depth=20)
  cut = ours.of_judged_labels()
  tables = [judge(p, ALL, 0.3)['xjax']['all'] for p in (ours, cut, theirs)]
  values, others, flat = tables
  assert same(values, flat) and same(others, flat)
  assert values['hF1-tuned'] > values['micro-F1-tuned'] > 0
  # Labels keep their levels and their parents.
  placed = {name for name in values if 'level=' in name} | {'consistency'}
  assert len(placed) > 20 and 0 < values['consistency'] < 1
  for name in placed:
    assert values[name] == others[name], name
  # Level 1 has l0; level 2 has l1, l4 and l6; level 3 l3, l7 and l12.
  counts = [values[f'n_labels[level={level}]'] for level in (1, 2, 3, 4)]
  assert counts == [1, 3, 3, 2]


def test_left_out_labels_are_no_shared_ancestors():
  # The root m is left out; its children a and b have no other ancestor. The
  # label d is below the label c, with the left-out label n between them.
  labels = 'a', 'b', 'c', 'd', 'e', 'm', 'n'
  parents = {'a': 'm', 'b': 'm', 'n': 'c', 'd': 'n', 'e': 'n'}
  nodes = [Label(x, parents=tuple(parents.get(x, ''))) for x in labels]
  whole = system(
    *([[0, PAD], [3, PAD]], [[0.9, -np.inf]] * 2, [[1], [4]], np.zeros(7)),
    score_kind=ScoreKind.PROBABILITY,
    n_train=0,
    labels=labels,
    left_out=np.array([5, 6], np.int32),
    hierarchy=Hierarchy.of(nodes),
  )
  cut = whole.of_judged_labels()
  flat = dataclasses.replace(whole, hierarchy=None)
  for p, hierarchy in (
    (whole, None),
    (cut, None),
    # A file of descriptors has the left-out labels as well.
    (flat, whole.hierarchy),
    (flat.of_judged_labels(), cut.hierarchy),
  ):
    values = judge(p, Criteria((1,), hierarchy=hierarchy))['xjax']['all']
    # a against b, and d, c against e, c.
    assert values['hF1'] == 2 * 1 / (3 + 3)
    assert values['hP'] == values['hR'] == 1 / 3
    assert values['micro-F1'] == 0
    assert values['n_labels[level=3]'] == 2


def test_thresholds_and_documents_are_so_too(ours, theirs):
  assert tune_threshold(ours) == tune_threshold(theirs)
  lines = [list(document_lines(p, SOME)) for p in (ours, theirs)]
  assert lines[0] == lines[1]


def test_the_file_says_which_labels_were_left_out(ours, theirs, tmp_path):
  ours.save(tmp_path / 'p.npz')
  loaded = Predictions.load(tmp_path / 'p.npz')
  np.testing.assert_array_equal(loaded.left_out, META)
  assert tuple(loaded.labels) == tuple(f'l{i}' for i in range(L))
  assert same(judge(loaded, SOME), judge(theirs, SOME))
  theirs.save(tmp_path / 'q.npz')
  assert 'left_out/labels' not in np.load(tmp_path / 'q.npz').files
  assert not len(Predictions.load(tmp_path / 'q.npz').left_out)


@pytest.mark.parametrize(
  ('left_out', 'message'),
  [
    ([0], 'all/ids.*a label is outside the slice'),
    ([12], 'gold/indices.*a gold label is left out of judging'),
    ([L], 'left_out/labels.*not in 0..12'),
    ([2, 2], 'left_out/labels.*no label twice'),
    ([], 'left_out/labels.*at least one label'),
    (list(range(L)), 'left_out/labels.*no label is judged'),
  ],
)
def test_a_damaged_file_is_refused(ours, tmp_path, left_out, message):
  ours.save(tmp_path / 'p.npz')
  arrays = dict(np.load(tmp_path / 'p.npz'))
  for name in ('frequent', 'few', 'zero', 'held_out'):
    arrays.pop(f'{name}/ids'), arrays.pop(f'{name}/scores')
  arrays['left_out/labels'] = np.array(left_out, np.int32)
  np.savez(tmp_path / 'p.npz', **arrays)
  with pytest.raises(DataError, match=message):
    Predictions.load(tmp_path / 'p.npz')


def test_saved_lists_become_shorter_but_not_wrong(theirs):
  whole = predicted(np.arange(L), space_of())
  cut = whole.leaving_out(META)
  depth = cut.lists['all'].ids.shape[1]
  assert 1 <= depth < DEPTH  # the shortest full list decides
  np.testing.assert_array_equal(
    cut.lists['all'].scores, theirs.lists['all'].scores[:, :depth]
  )
  criteria = Criteria(ks=(1, depth), kinds=('P@k', 'nDCG@k', 'PSP@k'))
  slices = [judge(p, criteria)['xjax']['all'] for p in (cut, theirs)]
  assert slices[0] == slices[1] and slices[0]['P@1'] is not None
  # Lists with all labels lose nothing but the labels.
  whole = predicted(np.arange(L), space_of(), depth=20)
  other = predicted(KEPT, small_space(), depth=20)
  assert same(judge(whole.leaving_out(META), SOME), judge(other, SOME))


def test_lists_of_left_out_labels_alone_are_an_error():
  part = system([[1], [2]], [[0], [0]], [[1, 3], [2]], [0] * 4, n_train=0)
  with pytest.raises(DataError, match='only labels that are left out'):
    part.leaving_out(np.array([1]))
  with pytest.raises(DataError, match='no label is left to judge'):
    part.leaving_out(np.arange(4))
  cut = part.leaving_out(np.array([3]))
  assert [cut.gold[i].tolist() for i in range(2)] == [[1], [2]]


def test_further_slices_lose_the_labels_too(ours, theirs):
  mask = np.zeros(L, bool)
  mask[[0, 1, 2, 3, 8]] = True
  criteria = dataclasses.replace(SOME, slices={'mine': mask})
  others = dataclasses.replace(SOME, slices={'mine': mask[KEPT]})
  assert same(judge(ours, criteria), judge(theirs, others))
