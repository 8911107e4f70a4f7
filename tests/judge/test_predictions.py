"""predictions.npz: what is saved is loaded; what is damaged is refused."""

import io
import zipfile

import numpy as np
import pytest

from tests.fixtures.error_text import error_text
from tests.judge.systems import lists_of
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.judge.files.saved_predictions import labels_sha256
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions

COUNTS = np.array([60, 50, 49, 1, 0, 0], np.int32)
NONE = -np.inf

# The labels that are scored, best first, of each document.
RANKED = np.array([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 4, 2, 3]])


def lists(*rows):
  ids = np.array(rows, np.int32)
  places = np.argsort(RANKED[: len(ids)], axis=1)
  scores = -np.take_along_axis(places, np.maximum(ids, 0), axis=1)
  return LabelLists(ids, np.where(ids == PAD, NONE, scores).astype(np.float32))


def predictions(**changes):
  # Labels 4 and 5 are held out; label 5 is not scored.
  parts = {
    'score_kind': ScoreKind.LOGIT,
    'n_scored': 5,
    'n_train': 100,
    'doc_ids': ('31979D0509', 'ä/β', ''),
    'labels': ('l0', 'l1', 'étiquette', 'l3', 'l4', 'l5'),
    'train_counts': COUNTS,
    'lists': {
      'all': lists([0, 1, 2], [4, 3, 2], [1, 0, 4]),
      'frequent': lists([0, 1, PAD], [1, 0, PAD], [1, 0, PAD]),
      'few': lists([2, 3, PAD], [3, 2, PAD], [2, 3, PAD]),
      'zero': lists([4, PAD, PAD], [4, PAD, PAD], [4, PAD, PAD]),
      'held_out': lists([4, PAD, PAD], [4, PAD, PAD], [PAD, PAD, PAD]),
    },
    'gold': Ragged.of([[0, 5], [], [1, 2, 3]]),
    'held_out': np.array([4, 5], np.int32),
  }
  return Predictions(**(parts | changes))


@pytest.fixture
def path(tmp_path):
  predictions().save(tmp_path / 'predictions.npz')
  return tmp_path / 'predictions.npz'


def saved(path, **changes):
  predictions(**changes).save(path)
  return Predictions.load(path)


def test_round_trip(path):
  before, after = predictions(), Predictions.load(path)
  for name in ('score_kind', 'n_scored', 'n_train', 'doc_ids', 'labels'):
    assert getattr(after, name) == getattr(before, name)
  for name in ('train_counts', 'held_out'):
    np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
  np.testing.assert_array_equal(after.gold.indptr, before.gold.indptr)
  np.testing.assert_array_equal(after.gold.values, before.gold.values)
  assert list(after.lists) == list(after.masks) == list(before.lists)
  for name, each in before.lists.items():
    np.testing.assert_array_equal(after.lists[name].ids, each.ids)
    np.testing.assert_array_equal(after.lists[name].scores, each.scores)
  assert len(after) == 3


def test_how_labels_were_searched_is_kept(path):
  assert Predictions.load(path).selected_by == ''
  for kind, said in (
    ('exact', 'exact search'),
    ('beam=10', 'beam search of width 10'),
    ('recall=0.95', 'approximate search of recall 0.95'),
    ('recall=0.9999999', 'approximate search of recall 0.9999999'),
    ('recall=1e-05', 'approximate search of recall 1e-05'),
    ('trees=3', 'exact search of the best labels of each of 3 trees'),
    ('shortlist=500', 'a shortlist of 500 labels'),
    ('clusters=10', 'the labels of 10 clusters'),
    ('runs=3', 'average of the lists of 3 runs'),
  ):
    after = saved(path, selected_by=kind)
    assert (after.selected_by, after.selection) == (kind, said)
    assert after.is_approximate == (kind != 'exact')
  assert predictions().selection == 'search not recorded'
  assert not predictions().is_approximate
  with pytest.raises(DataError, match="selected_by: is 'luck', which is unkn"):
    saved(path, selected_by='luck')


def test_recalls_are_kept(path):
  assert Predictions.load(path).recalls == {}  # also in files without them
  steps = 'shortlist recall@20', 'level 0 recall@4'
  shares = {'all': (0.1, 0.75), 'few': (0.0, 1.0)}
  recalls = {name: dict(zip(steps, each)) for name, each in shares.items()}
  after = saved(path, selected_by='shortlist=20', recalls=recalls)
  assert after.recalls == recalls
  said = 'shortlist recall@20 0.100, level 0 recall@4 0.750'
  assert after.selection_with_recalls == f'a shortlist of 20 labels ({said})'
  assert predictions().selection_with_recalls == predictions().selection
  # Means over all documents are not those of some.
  assert after.of_documents(np.array([True, False, True])).recalls == {}


@pytest.mark.parametrize(
  ('name', 'array', 'fault'),
  [
    ('few/recalls', np.array([0.5]), r'few/recalls: is float64 \[1\], should'),
    ('few/recalls', np.array([0.5, 1.5]), 'few/recalls: a recall is not from'),
    ('few/recalls', np.array([0.5, np.nan]), 'a recall is not from 0 to 1'),
    ('recalls/bytes', None, 'recalls/bytes: missing'),
    ('odd/recalls', np.array([0.5, 0.5]), 'odd/recalls: unknown array'),
  ],
)
def test_damaged_recalls_are_refused(path, name, array, fault):
  steps = {'shortlist recall@20': 0.5, 'level 0 recall@4': 1.0}
  saved(path, recalls={'few': steps})
  changed(path, name, array)
  with pytest.raises(DataError, match=fault):
    Predictions.load(path)


def test_a_label_has_one_score_in_all_lists_of_a_document(path):
  changed(path, 'few/scores', at((1, 0), -1.5))
  message = error_text(Predictions.load, path)
  assert "predictions.npz: document '\\xe4/\\u03b2': label 'l3' has " in message
  assert '(-1 in all, -1.5 in few)' in message
  # By rounding, they may differ; lists of a strategy have other scores.
  near, chosen = predictions().lists, predictions().lists
  near['few'].scores[1, 0] *= 1 + 1e-6
  assert len(saved(path, lists=near)) == 3
  chosen['all'].scores[:] -= 7
  after = saved(path, lists=chosen, strategy='coverage(k=3)')
  assert (after.strategy, predictions().strategy) == ('coverage(k=3)', '')


def test_two_scores_are_found_in_any_block_of_documents(monkeypatch):
  monkeypatch.setattr('xjax.judge.predictions._ENTRIES', 1)
  assert predictions().fault() == ''
  other = predictions()
  other.lists['zero'].scores[2, 0] = 0.25
  assert "document '': label 'l4'" in other.fault()


def test_without_gold_and_held_out(path):
  few = {k: v for k, v in predictions().lists.items() if k != 'held_out'}
  after = saved(path, gold=None, held_out=np.zeros(0, np.int32), lists=few)
  assert after.gold is None
  assert 'held_out' not in after.lists and not len(after.held_out)


def test_what_is_assigned_is_kept(path):
  assert saved(path, assigned_above=0.1).assigned_above == 0.1
  assert saved(path).assigned_above is None
  with pytest.raises(DataError, match='assigned_above: is nan, but must be'):
    saved(path, assigned_above=float('nan'))


def test_the_digest_is_that_of_ids_and_newlines(path):
  # printf 'a\nb\n' | sha256sum
  expected = '911169ddaaf146aff539f58c26c489af3b892dff0fe283c1c264c65ae5aa59a2'
  assert labels_sha256(['a', 'b']) == expected
  with np.load(path, allow_pickle=False) as file:
    assert str(file['labels_sha256']) == labels_sha256(predictions().labels)


def changed(path, name, array):
  with np.load(path) as file:
    arrays = dict(file)
  arrays[name] = array(arrays[name]) if callable(array) else array
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


def at(index, value):
  def change(array):
    array = array.copy()
    array[index] = value
    return array

  return change


ARRAYS = (
  'schema score_kind n_scored n_train labels_sha256 train_counts '
  'doc_ids/bytes doc_ids/offsets labels/bytes labels/offsets all/ids '
  'all/scores frequent/ids few/scores zero/ids held_out/ids gold/indptr '
  'gold/indices'
).split()


@pytest.mark.parametrize('name', ARRAYS)
@pytest.mark.parametrize(
  ('change', 'says'),
  [
    (None, 'missing'),
    (lambda array: np.zeros(array.shape, np.complex64), 'is complex64'),
    (lambda array: array[None], r'is .* \[1'),
  ],
)
def test_a_missing_array_another_type_or_shape_is_named(
  path, name, change, says
):
  changed(path, name, change)
  with pytest.raises(DataError, match=f'predictions.npz: {name}: {says}'):
    Predictions.load(path)


@pytest.mark.parametrize(
  ('name', 'change', 'what'),
  [
    ('schema', np.int64(2), 'is 2, but this version reads 1'),
    ('score_kind', np.str_('odds'), "is 'odds', which is unknown"),
    ('n_scored', np.int64(-1), 'should not be negative'),
    ('n_scored', np.int64(7), 'but there are 6 labels'),
    ('n_train', np.int64(59), None),
    ('train_counts', at(0, -3), r'not in 0..100 \(at \[0\]\)'),
    ('train_counts', lambda a: a[:5], r'is int32 \[5\], should be int32 \[6\]'),
    ('labels_sha256', np.str_('0' * 64), 'is not the digest of the labels'),
    ('labels/bytes', at(1, ord('7')), None),
    ('labels/bytes', at(3, ord('0')), 'the same string twice'),
    ('labels/bytes', at(4, 0xFF), 'not UTF-8'),
    ('labels/offsets', at(0, 1), 'should go from 0 to'),
    ('labels/offsets', at(1, -5), 'falls'),
    ('doc_ids/offsets', at(-1, 3), 'should go from 0 to'),
    ('doc_ids/offsets', lambda a: a[:0], 'should go from 0 to'),
    ('doc_ids/offsets', lambda a: a[[0, 1, 3]], None),
    ('all/ids', at((0, 0), -2), r'neither -1 nor in 0..4 \(at \[0, 0\]\)'),
    ('all/ids', at((1, 0), 5), 'neither -1 nor in 0..4'),
    ('all/ids', at((1, 0), 3), r'the list at \[1\] has a label twice'),
    ('all/ids', at((1, 1), -1), r'a label comes after -1'),
    ('all/ids', lambda a: a[:, :0], 'the lists have length 0'),
    ('all/ids', lambda a: a[:2], r'int32 \[2, 3\], should be int32 \[3, any'),
    ('few/ids', at((0, 1), 0), r'a label is outside the slice \(at \[0, 1\]\)'),
    ('all/scores', at((2, 1), np.nan), r'a score is NaN \(at \[2, 1\]\)'),
    ('all/scores', at((2, 0), np.inf), 'a score is infinite'),
    ('all/scores', at((2, 2), NONE), 'a score is infinite'),
    ('few/scores', at((0, 2), -9), 'the score of -1 is not -inf'),
    ('all/scores', at((0, 2), 0.5), 'a score is higher than the score before'),
    ('all/scores', lambda a: a[:, :2], r'should be float32 \[3, 3\]'),
    ('all/scores', lambda a: a.astype(np.float64), 'is float64'),
    ('gold/indices', at(0, 6), 'not in 0..5'),
    ('gold/indices', at(1, 0), 'does not ascend'),
    ('gold/indptr', lambda a: a[:-1], r'should be int64 \[4\]'),
    ('gold/indptr', at(1, 9), 'falls'),
    ('held_out/labels', at(0, 6), 'not in 0..5'),
    ('held_out/labels', at(0, 5), 'no label twice'),
    ('held_out/labels', lambda a: a[:0], 'at least one label'),
    ('bin:1-9/ids', np.zeros((3, 3), np.int32), 'unknown array'),
  ],
)
def test_the_impossible_is_refused(path, name, change, what):
  changed(path, name, change)
  # None: the fault shows in another array, which depends on this one.
  expected = f'predictions.npz: {name}: .*{what}' if what else 'npz: .*: '
  with pytest.raises(DataError, match=expected):
    Predictions.load(path)


def test_pickled_objects_are_refused(path):
  changed(path, 'doc_ids/bytes', np.array([{'a': 1}], object))
  with pytest.raises(DataError, match='doc_ids/bytes: cannot be read'):
    Predictions.load(path)


def test_other_files_are_refused(tmp_path):
  path = tmp_path / 'p.npz'
  assert 'no such file' in error_text(Predictions.load, path)
  assert 'cannot be read' in error_text(Predictions.load, tmp_path)
  array = io.BytesIO()
  np.save(array, np.zeros(3))
  for content in (b'', b'{"id": 1}\n', b'PK\x03\x04', array.getvalue()):
    path.write_bytes(content)
    assert 'cannot be read' in error_text(Predictions.load, path)
  for name, content, says in (
    ('schema.npy', b'\x93NUMPY\x01\x00\xff\xff{', 'schema: cannot be read'),
    ('schema', b'1', 'schema'),
  ):
    with zipfile.ZipFile(path, 'w') as zipped:
      zipped.writestr(name, content)
    assert says in error_text(Predictions.load, path)


def test_a_truncated_file_is_refused(path):
  content = path.read_bytes()
  for size in range(0, len(content), 101):
    path.write_bytes(content[:size])
    with pytest.raises(DataError):
      Predictions.load(path)


def test_probabilities_are_from_0_to_1(path):
  changed(path, 'score_kind', np.str_('probability'))
  said = '/scores: a score is not from 0 to 1 (at [0, '
  assert said in error_text(Predictions.load, path)


def test_merged_lists_have_no_label_twice():
  one = lists_of([[3, 1]], [[2, 1]])
  # Another score, and 3 stands between the two entries of 1.
  other = lists_of([[1, 0]], [[3, 0.5]])
  merged = LabelLists.merge([one, other])
  assert merged.ids.tolist() == [[1, 3, 0, PAD]]
  assert merged.scores.tolist() == [[3, 2, 0.5, NONE]]
