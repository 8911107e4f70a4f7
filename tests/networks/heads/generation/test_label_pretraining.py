"""Cuts hierarchies into segments whose labels are read at once."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.generation import hierarchy, make_model
from tests.fixtures.networks import on_mesh
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.networks.heads.generation.label_levels import (
  make_segment,
  pretrained_nodes,
  pretraining_loss,
  segments_of,
)


@pytest.fixture(scope='module')
def nodes():
  return pretrained_nodes(hierarchy())


def test_concepts_that_are_no_ancestors_are_left_out(nodes):
  assert list(nodes.ids) == [*'abcdefghi', 'x']
  assert nodes.n_labels == 9


@pytest.mark.parametrize('limit', [3, 4, 6])
def test_segments_have_all_labels_and_their_first_parents(nodes, limit):
  parts = segments_of(nodes, limit)
  assert len(parts) > 1 and max(map(len, parts)) <= limit
  assert {n for part in parts for n in part.tolist()} == set(range(10))
  for part in parts:
    for node in part.tolist():
      above = nodes.first_parents[node]
      assert above == PAD or above in part
    segment = make_segment(nodes, part, limit)
    assert (segment.nodes_X[len(part) :] == PAD).all()
    assert segment.sees[1 + len(part) :].sum() == limit - len(part)


def test_a_path_longer_than_a_segment_is_an_error(nodes):
  says = "config.model.head.pretraining.segment=2: .* down to 'f' has 3 nodes"
  with pytest.raises(ConfigError, match=says):
    segments_of(nodes, 2)


def test_many_labels_below_one_root_have_few_nodes_twice():
  labels = [Label('top', 'top')]
  labels += [Label(str(i), str(i), parents=('top',)) for i in range(2000)]
  nodes = pretrained_nodes(Hierarchy.of(labels))
  parts = segments_of(nodes, 512)
  assert [len(part) for part in parts] == [512, 512, 512, 468]


def test_without_a_mask_nothing_is_learnt(nodes):
  (whole,) = segments_of(nodes, 512)
  segment = jax.tree.map(jnp.asarray, make_segment(nodes, whole, 12))
  rows = jnp.asarray(np.random.default_rng(0).normal(size=(12, 16)), 'float32')
  # The padded entries are masked too, but are no nodes.
  masked = jnp.broadcast_to(jnp.arange(12) >= 10, (2, 12))
  with on_mesh():
    graphdef, params = nnx.split(make_model(layers=1))

    def total(rows):
      model = nnx.merge(graphdef, params)
      parts = model.encoder, model.head.transform, model.head.special[...]
      return pretraining_loss(rows, *parts, segment, masked, (None, None))

    loss, gradient = jax.jit(jax.value_and_grad(total))(rows)
  assert loss == 0
  assert not np.asarray(gradient).any()
