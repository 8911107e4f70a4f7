"""Checks slices by name: bins, levels of hierarchies, lists of labels."""

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.errors import ConfigError, DataError
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, LabelSpace
from xjax.judge.metrics.slices import judged_masks
from xjax.judge.request import JudgeRequest, check_slice_names, named_slices

LABELS = ('art', 'fish', 'law', 'sea', 'tuna')
COUNTS = (1000, 9, 0, 1, 10)
# Fish is below sea, and tuna is below fish; law stands alone.
PARENTS = {'sea': (), 'fish': ('sea',), 'tuna': ('fish',), 'law': ()}


def predictions(**fields):
  ids, gold = [[0, 1, 4], [2, 3, 1]], [[1, 4], [2]]
  parts = {'n_train': 2000, 'labels': LABELS, **fields}
  return system(ids, np.ones((2, 3)), gold, COUNTS, **parts)


def hierarchy(parents=PARENTS):
  concepts = [Label(id_, parents=above) for id_, above in parents.items()]
  described = {label.id: label for label in concepts}
  return Hierarchy.of([described.get(i) or Label(i) for i in LABELS], concepts)


def labels_in(name, above=None, **fields):
  ((_, mask),) = named_slices([name], predictions(**fields), above).items()
  assert mask.dtype == bool and mask.shape == (5,)
  return [id_ for id_, inside in zip(LABELS, mask) if inside]


@pytest.mark.parametrize(
  ('name', 'labels'),
  [
    ('bin:1-9', ['fish', 'sea']),
    ('bin:0-0', ['law']),
    ('bin:10-10', ['tuna']),
    ('bin:1000+', ['art']),
    ('bin:10+', ['art', 'tuna']),
    ('bin:0-1000', list(LABELS)),
    ('bin:2000+', []),
  ],
)
def test_bins(name, labels):
  assert labels_in(name) == labels


def test_levels():
  assert labels_in('level:2', hierarchy()) == ['fish']
  assert labels_in('level:3', hierarchy()) == ['tuna']
  # Art has no parents.
  assert labels_in('level:1', hierarchy()) == ['art', 'law', 'sea']
  # The way up leads through concepts that nobody predicts.
  through = hierarchy({'tuna': ('animal',), 'animal': ('life',), 'life': ()})
  assert labels_in('level:3', through) == ['tuna']


def test_slices_of_left_out_labels_are_refused(tmp_path):
  path = tmp_path / 'mine.txt'
  path.write_text('law\n')
  ids, scores = np.tile(np.arange(5), (2, 1)), np.ones((2, 5))
  whole = system(ids, scores, [[1, 4], []], COUNTS, n_train=2000, labels=LABELS)
  cut = whole.leaving_out(np.array([1, 2, 3]))  # all but art and tuna
  for name in ('level:2', 'bin:0-1', str(path)):
    with pytest.raises(ConfigError, match='all labels of .* are left out'):
      named_slices([name], cut, hierarchy())
  assert named_slices(['level:3'], cut, hierarchy())['level:3'].sum() == 1
  # A comparison has no such labels any more.
  judged = cut.of_judged_labels()
  with pytest.raises(ConfigError, match='all labels of level:2 are left out'):
    named_slices(['level:2'], judged, hierarchy().for_labels(judged.labels))


def test_levels_from_a_file(tmp_path):
  taxonomy = tmp_path / 'taxonomy'
  taxonomy.write_text('Root\tsea\tlaw\nsea\tfish\nfish\ttuna\n')
  request = JudgeRequest(slices=['level:1', 'level:2'], labels=str(taxonomy))
  masks = request.criteria(predictions()).slices
  at = {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()}
  assert at == {'level:1': [0, 2, 3], 'level:2': [1]}


def test_lists(tmp_path):
  path = tmp_path / 'marine.labels.txt'
  path.write_text('tuna\nsea\n')
  assert list(named_slices([str(path)], predictions(), None)) == ['marine']
  assert labels_in(str(path)) == ['sea', 'tuna']
  path.write_text('tuna\nship\ntuna\n')
  with pytest.raises(DataError) as error:
    labels_in(str(path))
  first, second = str(error.value).splitlines()[:2]
  assert first.startswith(f'{path}:2: ') and "'ship'" in first
  assert second.startswith(f'{path}:3: ') and 'duplicate' in second
  path.write_text('')
  with pytest.raises(DataError, match='marine.labels.txt: '):
    labels_in(str(path))


def test_names_are_given_once(tmp_path):
  one, other = tmp_path / 'rare.txt', tmp_path / 'new' / 'rare.csv'
  other.parent.mkdir()
  for path in (one, other):
    path.write_text('tuna\n')
  check_slice_names([str(one), 'bin:1-9', 'level:1'])
  with pytest.raises(ConfigError, match="rare.csv are both called 'rare'"):
    check_slice_names([str(one), str(other)])
  with pytest.raises(ConfigError, match="both called 'bin:1-9'"):
    check_slice_names(['bin:1-9', 'bin:1-9'])
  for name in ('all', 'frequent', 'few', 'zero', 'held_out'):
    path = tmp_path / f'{name}.txt'
    path.write_text('tuna\n')
    with pytest.raises(ConfigError, match=f'there is a slice {name!r} already'):
      check_slice_names([str(path)])
  hidden = tmp_path / '.rare'
  hidden.write_text('tuna\n')
  assert check_slice_names([str(hidden)]) == {'.rare': str(hidden)}


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('bin:5', "'bin:5' is neither bin:LOW-HIGH"),
    ('bin:1-', 'neither'),
    ('bin:-1-5', 'neither'),
    ('bin:9-1', 'bin:9-1 is empty: 9 is above 1'),
    ('level:', 'neither'),
    ('level:two', 'neither'),
    ('none.txt', "'none.txt' is neither"),
    ('', "'' is neither"),
  ],
)
def test_names_that_mean_nothing(name, message):
  with pytest.raises(ConfigError, match=message):
    check_slice_names([name])


def test_what_a_slice_takes():
  with pytest.raises(ConfigError, match='bin:1-9 needs the training labels'):
    labels_in('bin:1-9', n_train=0)
  for above in (None, hierarchy(dict.fromkeys(PARENTS, ()))):
    with pytest.raises(ConfigError, match='level:2 needs labels with parents'):
      labels_in('level:2', above)
  for level in (0, 4):
    says = f'no label is at level:{level}; the levels .* are 1 to 3'
    with pytest.raises(ConfigError, match=says):
      labels_in(f'level:{level}', hierarchy())


def test_masks_are_those_of_the_label_space():
  counts = np.array([100, 50, 49, 1, 0, 0], np.int32)
  labels = tuple(Label(f'l{i}') for i in range(6))
  space = LabelSpace(labels, counts, n_train=200, n_trained=4, n_held_out=1)
  masks = judged_masks(counts, np.array([4]))
  np.testing.assert_array_equal(masks.pop('all'), np.ones(6, bool))
  assert list(masks) == list(space.masks())
  for name, mask in space.masks().items():
    np.testing.assert_array_equal(masks[name], mask)
