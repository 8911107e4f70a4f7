"""Parts of a taxonomy, which a label encoder reads one after the other."""

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.networks.views.label_encoder import TaxonomyParts, encoded_nodes


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
