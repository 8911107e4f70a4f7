"""Views of HGCLR: which words they keep, and how the views are compared."""

from flax import nnx
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.networks.batch import TokenBatch
from xjax.networks.views.hierarchy_views import (
  HierarchyViews,
  ViewInputs,
  contrast_losses,
)
from xjax.networks.views.label_encoder import TaxonomyParts, encoded_nodes
from xjax.train.parameters import by_path, from_paths

B, T, D, WORDS, L = 4, 5, 8, 20, 6
TREE = Hierarchy.of(
  [Label(str(i), parents=(str(p),)) for i, p in enumerate([6, 0, 0, 6, 3, 3])],
  [Label('6')],
)


@pytest.fixture(autouse=True)
def on_one_device():
  with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
    yield


def views_of(dtype=jnp.float32, flat=False, seed=0, hierarchy=TREE, **fields):
  """Random views; if `flat`, label vectors do not depend on other labels."""
  config = HierarchyViews(heads=2, name_tokens=3, **fields)
  inputs = ViewInputs(D, D, dtype, hierarchy)
  graphdef, params = nnx.split(config.build(inputs, nnx.Rngs(0)))
  rng, values = np.random.default_rng(seed), {}
  for path, x in by_path(params).items():
    if x.dtype == jnp.float32:
      x = jnp.asarray(rng.normal(size=x.shape), jnp.float32)
      if flat and path.startswith('labels/output'):
        x = jnp.zeros_like(x)
    values[path] = x
  pieces = rng.integers(PAD, WORDS, values['labels/pieces'].shape)
  values['labels/pieces'] = jnp.asarray(pieces, jnp.int32)
  return nnx.merge(graphdef, from_paths(params, values))


def drawn(gold):
  """Documents, one of them without words, and a table of word vectors."""
  rng = np.random.default_rng(1)
  lengths = np.array([5, 3, 1, 0], np.int32)
  tokens = rng.integers(2, WORDS, (B, T)).astype(np.int32)
  tokens[np.arange(T) >= lengths[:, None]] = 0
  batch = TokenBatch(
    tokens_BT=jnp.asarray(tokens),
    lengths_B=jnp.asarray(lengths),
    positives_BP=jnp.asarray(np.array(gold, np.int32)),
    mask_B=jnp.ones(B, bool),
    doc_B=jnp.arange(B, dtype=jnp.int32),
  )
  return batch, jnp.asarray(rng.normal(size=(WORDS, D)), jnp.float32)


def importance(views, gold):
  batch, table = drawn(gold)
  words = table[batch.tokens_BT].astype(views.dtype)
  compute = jax.jit(lambda *arrays: views.importance(*arrays))
  return np.asarray(compute(words, table, batch.positives_BP))


ALL = [range(L)] * B
SOME = [[0, 1, PAD], [2, 5, 3], [4, PAD, PAD], [PAD, PAD, PAD]]
OTHERS = [[2, 3, 4, 5], [0, 1, 4, PAD], [0, 1, 2, 3], [PAD] * 4]


@pytest.mark.parametrize('segment', [512, 4])
def test_a_word_chooses_one_label_with_probability_1(segment):
  views = views_of(segment=segment)
  assert len(views.labels.nodes[...]) == (1 if segment == 512 else 2)
  np.testing.assert_allclose(importance(views, ALL), 1, 1e-5)
  some, others = importance(views, SOME), importance(views, OTHERS)
  assert (some[:3] > 0).all() and (some[:3] < 1).all()
  assert (some[3] == 0).all()  # the document has no gold label
  rest = importance(views, [[PAD], [PAD], [5], [PAD]])
  whole = some + others + rest
  np.testing.assert_allclose(whole[[0, 1, 2]], 1, 1e-5)


def test_parts_change_only_which_labels_attend_to_each_other():
  flat = [importance(views_of(flat=True, segment=n), SOME) for n in (512, 4)]
  np.testing.assert_allclose(*flat, 1e-5)
  cut = [importance(views_of(segment=n), SOME) for n in (512, 4)]
  assert np.abs(cut[0] - cut[1]).max() > 1e-3
  again = importance(views_of(segment=7), SOME)  # seven nodes fit
  np.testing.assert_array_equal(again, cut[0])


def test_the_key_of_the_step_decides_the_noise():
  views, (batch, table) = views_of(segment=4, threshold=0.2), drawn(SOME)
  draw = jax.jit(lambda key: views.kept(batch, table, nnx.Rngs(dropout=key)))
  draws = [np.asarray(draw(jax.random.key(seed))) for seed in (1, 1, 2)]
  np.testing.assert_array_equal(draws[0], draws[1])
  assert (draws[0] != draws[2]).any()


def test_sixteen_bits_are_enough():
  wide, narrow = views_of(), views_of(dtype=jnp.bfloat16)
  expected, result = importance(wide, SOME), importance(narrow, SOME)
  assert result.dtype == np.float32
  np.testing.assert_allclose(result, expected, 0, 0.1)
  points = jnp.ones((B, D), jnp.bfloat16)
  loss = narrow.loss(points, points, jnp.ones(B, bool), nnx.Rngs(dropout=0))
  assert loss.dtype == jnp.float32 and np.isfinite(loss)


def test_rows_that_fill_the_batch_are_compared_with_nothing():
  rng = np.random.default_rng(0)
  points = rng.normal(size=(2, 6, D)).astype(np.float32)
  mask = np.array([1, 1, 0, 1, 0, 0], bool)
  points[:, -1] = 0

  def total(points, mask):
    losses = contrast_losses(points, mask, 0.7)
    return losses.sum(), losses

  slope = jax.jit(jax.grad(total, has_aux=True))
  grad, losses = slope(points, mask)
  kept, alone = slope(points[:, mask], mask[mask])
  np.testing.assert_allclose(losses[:, mask], alone, 1e-5)
  np.testing.assert_allclose(grad[:, mask], kept, 1e-5, 1e-6)
  assert not np.any(losses[:, ~mask]) and not np.any(grad[:, ~mask])
  assert not np.any(slope(points, np.zeros(6, bool))[1])
  single = np.arange(6) == 1
  np.testing.assert_allclose(slope(points, single)[1], 0, atol=1e-6)


def test_heads_must_divide_the_size_of_a_word_vector():
  inputs = ViewInputs(D, D, jnp.float32, TREE)
  with pytest.raises(ConfigError, match='views.heads=3: must divide 8'):
    HierarchyViews(heads=3).build(inputs, nnx.Rngs(0))


def hierarchy(parents: dict[str, str], n_labels: int | None = None):
  """Makes a hierarchy from label -> parents, each parent one letter."""
  labels = [Label(id_, parents=tuple(above)) for id_, above in parents.items()]
  n = len(labels) if n_labels is None else n_labels
  return Hierarchy.of(labels[:n], labels[n:])


def paths_of(parts, part=0):
  """Maps each node of a part to the nodes on its path up."""
  nodes = parts.nodes[part]
  return {
    int(node): [int(nodes[place]) for place in path if place != PAD]
    for node, path in zip(nodes, parts.paths[part])
    if node != PAD
  }


def test_a_node_with_two_parents_is_below_the_first():
  diamond = hierarchy({'d': 'bc', 'b': 'a', 'c': 'a', 'a': ''})
  paths = paths_of(TaxonomyParts.of(diamond, 512))
  assert paths[0] == [0, 1, 3]


def test_concepts_above_no_label_are_left_out():
  graph = hierarchy({'a': 'xy', 'x': '', 'y': '', 'z': 'a'}, n_labels=1)
  assert encoded_nodes(graph).tolist() == [0, 1]  # y is the second parent


def test_twenty_levels():
  names = 'abcdefghijklmnopqrst'
  chain = hierarchy(dict(zip(names, ['', *names], strict=False)))
  parts = TaxonomyParts.of(chain, 20)
  assert paths_of(parts)[19] == list(range(19, -1, -1))
  says = "config.model.views.segment=19: .* path down to 't' has 20 nodes"
  with pytest.raises(ConfigError, match=says):
    TaxonomyParts.of(chain, 19)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 8))
def test_each_label_is_counted_once_and_every_path_is_whole(seed, n, more):
  rng = np.random.default_rng(seed)
  above = [rng.integers(0, i + 1) - 1 for i in range(n)]
  labels = [
    Label(str(i), parents=() if p < 0 else (str(p),))
    for i, p in enumerate(above)
  ]
  n_labels = int(rng.integers(1, n + 1))
  order = rng.permutation(n)
  graph = Hierarchy.of(
    [labels[i] for i in order[:n_labels]], [labels[i] for i in order[n_labels:]]
  )
  depth = int(graph.levels[encoded_nodes(graph)].max())
  parts = TaxonomyParts.of(graph, depth + more)
  assert parts.nodes.shape[1] <= depth + more
  once = parts.nodes[parts.counted]
  assert sorted(once.tolist()) == list(range(n_labels))
  nodes = encoded_nodes(graph)
  for part in range(len(parts.nodes)):
    for node, path in paths_of(parts, part).items():
      expected = [nodes[node]]
      while graph.first_parents[expected[-1]] != PAD:
        expected.append(graph.first_parents[expected[-1]])
      assert [nodes[i] for i in path] == expected
