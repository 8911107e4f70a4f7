"""Tests levels of clusters against a walk up the tree, label by label."""

from hypothesis import given, settings, strategies as st
import jax.numpy as jnp
import numpy as np
import pytest

from tests.data.label_trees.test_label_tree import changed, small
from tests.fixtures.error_text import error_text
from tests.fixtures.trees import make_tree
from xjax.core.errors import ConfigError, DataError
from xjax.core.types import PAD, Ragged
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree, complete_tree
from xjax.data.label_trees.levels import LabelLevels, expand, gold_at


def chain(tree, label, depth):
  """Returns the name of a label's cluster at a depth, by a walk up the tree."""
  (node,) = np.flatnonzero(tree.label == label)
  path = [int(node)]
  while path[-1]:
    path.append(int(tree.parent[path[-1]]))
  path.reverse()
  return path[depth] if depth < len(path) else f'label {label}'


def labels_of(tree):
  return [x for x in range(tree.n_labels) if (tree.label == x).any()]


def check_against_a_walk(tree, depths, levels):
  labels = labels_of(tree)
  assert len(levels) == len(depths) + 1
  names = [[chain(tree, x, d) for x in labels] for d in depths] + [labels]
  for level, named in enumerate(names):
    above = levels.above[level][labels]
    # Clusters and names are in one-to-one correspondence.
    assert len(set(zip(named, above.tolist()))) == len(set(named))
    assert len(set(above.tolist())) == len(set(named))
    if level < len(depths):
      assert sorted(set(above.tolist())) == list(range(levels.sizes[level]))
    outside = np.setdiff1d(np.arange(tree.n_labels), labels)
    assert (levels.above[level][outside] == PAD).all()
    if level:
      parent = levels.parents[level][levels.above[level][labels]]
      np.testing.assert_array_equal(parent, levels.above[level - 1][labels])
    children = levels.children[level]
    assert len(children) == (levels.sizes[level - 1] if level else 1)
    for node, row in enumerate(children):
      wanted = np.unique(levels.above[0][labels])
      if level:
        wanted = np.flatnonzero(levels.parents[level] == node)
      assert row[: len(wanted)].tolist() == wanted.tolist()
      assert (row[len(wanted) :] == PAD).all()
  assert levels.above[-1][labels].tolist() == labels
  for arrays in vars(levels).values():
    assert all(x.dtype == np.int32 for x in arrays)


def test_a_tree_by_hand():
  levels = LabelLevels.cut(small())
  assert levels.sizes == (2, 4, 6)
  # At depth 2, label 2 is a cluster of its own, beside its two children.
  second = [0, 3, 2, 3, 1, PAD]
  assert [x.tolist() for x in levels.above] == [
    *([0, 1, 0, 1, 0, PAD], second, [0, 1, 2, 3, 4, PAD])
  ]
  parents = [x.tolist() for x in levels.parents]
  assert parents == [[PAD, PAD], [0, 0, 0, 1], second]
  assert [x.tolist() for x in levels.children] == [
    [[0, 1]],
    [[0, 1, 2], [3, PAD, PAD]],
    [[0, PAD], [4, PAD], [2, PAD], [1, 3]],
  ]
  assert str(levels) == '2 - 4 - 6 nodes by level'


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(2, 40), st.data())
def test_any_tree_at_any_depths(seed, n_nodes, data):
  tree = make_tree(np.random.default_rng(seed), n_nodes)
  possible = list(range(1, len(tree.levels) - 2))
  depths = sorted(data.draw(st.sets(st.sampled_from(possible or [1]))))
  depths = [x for x in depths if x in possible]
  levels = LabelLevels.cut(tree, depths=depths)
  check_against_a_walk(tree, depths, levels)
  check_against_a_walk(tree, possible, LabelLevels.cut(tree))


def test_a_tree_without_clusters_has_one_level():
  for tree in (
    LabelTree.of([-1, 0, 0], [NO_LABEL, 2, 0], 4),
    LabelTree.of([-1], [2], 4),
  ):
    levels = LabelLevels.cut(tree)
    check_against_a_walk(tree, [], levels)
    assert levels.sizes == (4,) and (levels.parents[0] == PAD).all()
    assert levels.children[0].tolist() == [labels_of(tree)]


def test_sizes_choose_the_finest_depth_that_fits():
  tree = complete_tree(64, 4)  # 4, 16 and 64 nodes by depth
  assert LabelLevels.cut(tree, sizes=[16]).sizes == (16, 64)
  assert LabelLevels.cut(tree, sizes=[15]).sizes == (4, 64)
  assert LabelLevels.cut(tree, sizes=[5, 1000]).sizes == (4, 16, 64)
  assert LabelLevels.cut(tree, sizes=[]).sizes == (64,)
  # Clusters of a single label count too: label 2 at depth 2.
  assert LabelLevels.cut(small(), sizes=[4]).sizes == (4, 6)
  assert LabelLevels.cut(small(), sizes=[3]).sizes == (2, 6)


@pytest.mark.parametrize(
  ('sizes', 'message'),
  [
    ([3], r'at most 3 clusters; .* at its depths are: 4, 16$'),
    ([16, 17], r'\[16, 17\]: sizes must ascend, and each .*: 4, 16$'),
  ],
)
def test_sizes_that_a_tree_does_not_have(sizes, message):
  with pytest.raises(ConfigError, match=message):
    LabelLevels.cut(complete_tree(64, 4), sizes=sizes)


GOLD = [[0, 1, 3], [], [2, 4, 0], [5], [3, 17]]  # 5 and 17 are in no level


def brute_gold(levels, level):
  for labels in GOLD:
    nodes = [int(levels.above[level][x]) for x in labels if x < 5]
    yield {node: nodes.count(node) for node in sorted(set(nodes))}


@pytest.mark.parametrize('level', [1, 2])
def test_gold_of_a_level_on_the_host(level):
  levels = LabelLevels.cut(small())
  rows, counts = levels.gold(level, Ragged.of(GOLD))
  wanted = list(brute_gold(levels, level))
  assert [row.tolist() for row in rows] == [list(x) for x in wanted]
  flat = [n for x in wanted for n in x.values()]
  assert counts.tolist() == flat and counts.dtype == np.int32
  assert rows.values.dtype == np.int32 and rows.indptr.dtype == np.int64


@pytest.mark.parametrize('level', [1, 2])
def test_gold_of_a_level_on_the_device(level):
  levels = LabelLevels.cut(small())
  positives = Ragged.of(GOLD).padded(np.arange(5), 5, PAD)
  positives[0, 3] = 1  # a second time
  above_L, positives_BP = map(jnp.asarray, (levels.above[level], positives))
  ids_BP = gold_at(above_L, positives_BP)
  for ids, wanted in zip(ids_BP.tolist(), brute_gold(levels, level)):
    assert {i for i in ids if i != PAD} == set(wanted)
    assert len(ids) == 5 and ids.count(PAD) == 5 - len(wanted)


def test_children_of_the_nodes_of_a_document():
  levels = LabelLevels.cut(small())
  ids_BK = jnp.asarray([[1, 0], [PAD, 1], [PAD, PAD]], jnp.int32)
  expanded = expand(jnp.asarray(levels.children[1]), ids_BK)
  second = [PAD, PAD, PAD, 3, PAD, PAD]
  assert expanded.tolist() == [[3, PAD, PAD, 0, 1, 2], second, [PAD] * 6]
  assert expanded.dtype == jnp.int32
  root = expand(jnp.asarray(levels.children[0]), jnp.zeros((1, 1), jnp.int32))
  assert root.tolist() == [[0, 1]]


@pytest.fixture
def path(tmp_path):
  LabelLevels.cut(small()).save(tmp_path / 'levels.npz')
  return tmp_path / 'levels.npz'


def test_what_is_saved_is_loaded(path, tmp_path):
  loaded, wanted = LabelLevels.load(path), LabelLevels.cut(small())
  for name, arrays in vars(wanted).items():
    for ours, theirs in zip(getattr(loaded, name), arrays, strict=True):
      assert ours.dtype == theirs.dtype
      np.testing.assert_array_equal(ours, theirs)
  loaded.save(tmp_path / 'again.npz')
  assert path.read_bytes() == (tmp_path / 'again.npz').read_bytes()


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (lambda x: x.pop('levels/in_tree'), 'levels/in_tree: missing'),
    (lambda x: x.pop('levels/parents/1'), 'levels/parents/1: missing'),
    (lambda x: x.update(more=np.zeros(2)), 'more: unknown array'),
    (changed('levels/count', (), 0), 'levels/count: is 0'),
    (changed('levels/count', (), 2), r'parents/1: is int32 \[4\], should be'),
    (
      changed('levels/parents/0', 1, 0),
      r'parents/0: is a wrong parent .*\[1\]',
    ),
    (changed('levels/parents/1', 0, PAD), 'parents/1: is a wrong parent'),
    (changed('levels/parents/1', 0, 2), 'is a wrong parent'),
    (changed('levels/parents/2', 5, 0), r'is a wrong parent \(at \[5\]\)'),
    (changed('levels/in_tree', 5, True), r'is a wrong parent \(at \[5\]\)'),
  ],
)
def test_damaged_files_are_refused(path, change, message):
  with np.load(path) as file:
    arrays = dict(file)
  change(arrays)
  np.savez(path, **arrays)
  with pytest.raises(DataError, match=f'levels.npz: .*{message}|{message}'):
    LabelLevels.load(path)


def test_files_that_are_none(path):
  absent = path.with_name('absent.npz')
  assert 'absent.npz: no such file' in error_text(LabelLevels.load, absent)
  path.write_bytes(path.read_bytes()[:-100])
  assert 'levels.npz: cannot be read' in error_text(LabelLevels.load, path)
