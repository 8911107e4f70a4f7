"""How deep labels lie."""

import numpy as np

from xjax.data.formats.taxonomy import NO_LEVEL, label_levels
from xjax.data.schema import Label


def label(id_: str, *parents: str) -> Label:
  return Label(id_, parents=parents)


def test_a_tree_in_any_order():
  labels = [label('c', 'b'), label('b', 'a'), label('a'), label('d', 'a')]
  levels = label_levels(labels)
  assert levels.tolist() == [3, 2, 1, 2] and levels.dtype == np.int32


def test_the_shortest_way_of_several():
  labels = [
    label('a'),
    label('b', 'a'),
    label('c', 'b'),
    label('d', 'c', 'a'),
    label('e', 'd', 'c'),
    label('f', 'gone', 'd'),
  ]
  assert label_levels(labels).tolist() == [1, 2, 3, 2, 3, 3]


def test_labels_that_hang_nowhere():
  labels = [
    label('a', 'gone'),
    label('b', 'a'),
    label('c', 'd'),
    label('d', 'c'),
    label('e', 'e'),
  ]
  assert label_levels(labels).tolist() == [NO_LEVEL] * 5
  assert label_levels([label('x'), *labels], [label('gone')]).tolist() == [
    1,
    2,
    3,
    *[NO_LEVEL] * 3,
  ]


def test_a_way_through_others():
  leaves = [label('c', 'b'), label('d', 'a')]
  others = [label('b', 'a'), label('a')]
  assert label_levels(leaves).tolist() == [NO_LEVEL, NO_LEVEL]
  assert label_levels(leaves, others).tolist() == [3, 2]


def test_no_hierarchy_is_one_level():
  assert label_levels([label('a'), label('b')]).tolist() == [1, 1]
  assert label_levels([]).shape == (0,)


def test_a_deep_chain():
  labels = [label('0')] + [label(str(i), str(i - 1)) for i in range(1, 5000)]
  assert label_levels(labels).tolist() == list(range(1, 5001))
