"""Graph layers: where heads start, dropout, lone nodes and new labels."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from tests.fixtures.head_programs import Program, gold
from tests.fixtures.heads import KINDS, REAL, L, built, hidden_states
from tests.fixtures.networks import on_mesh
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import bce
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.head import NoGraph
from xjax.networks.heads.streaming import head_loss
from xjax.networks.label_graph import GraphLayers, edges_with


@jax.jit
def logits(ready):
  rows = nnx.to_pure_dict(split_head(ready).rows)
  features = KINDS['unified'].features(jnp.asarray(hidden_states()))
  return ready.logits(features, rows)


def test_a_unified_head_starts_as_the_head_without_a_graph():
  results = []
  with on_mesh():
    for graph in (NoGraph(), GraphLayers(queries=True)):
      head = built(UnifiedConfig(graph=graph), drawn=False)
      own = head.attention_kernel[...], head.output_kernel[...]
      results.append([np.asarray(logits(head.ready())), *own])
  for a, b in zip(*results, strict=True):
    np.testing.assert_array_equal(a, b)


def test_dropout_is_drawn_once_for_a_batch():
  config = UnifiedConfig(row_dropout=0.0, graph=GraphLayers(dropout=0.4))
  with on_mesh():
    head = built(config)
    whole = head.ready()
    rows = [
      np.asarray(head.ready(nnx.Rngs(dropout=seed)).graph_rows[...])
      for seed in (0, 0, 1)
    ]
    assert whole.ready(nnx.Rngs(dropout=0)) is whole
  np.testing.assert_array_equal(rows[0], rows[1])
  for other in (rows[2], np.asarray(whole.graph_rows[...])):
    assert (np.abs(rows[0] - other)[:L].max(axis=1) > 1e-3).mean() > 0.9


def test_new_labels_read_their_parents_and_change_nobody():
  tree = Hierarchy.of(
    [Label('a'), Label('b', parents=('c', 'a'))],
    [Label('c', parents=('a',)), Label('d', parents=('c',))],
  )
  added = [
    Label('x', parents=('d', 'a', 'd')),  # below a concept and a label
    Label('y', parents=('x',)),  # below another new label
    Label('c'),  # a concept: with its parents and its children
    Label('z', parents=('c',)),  # below the concept, not below the new label
    Label('o'),
  ]
  up, down = edges_with(tree, added)
  assert up.shape[1] == 9  # x is below d once
  up, down = (set(zip(*x.tolist())) for x in (up, down))
  x, y, new_c, z, c, d = 2, 3, 4, 5, 7, 8  # after 'o', the old concepts
  old_up = {(1, c), (1, 0), (c, 0), (d, c)}
  assert up == old_up | {(x, d), (x, 0), (y, x), (new_c, 0), (z, c)}
  old_down = {(b, a) for a, b in old_up}
  assert down == old_down | {(new_c, 1), (new_c, d)}


def test_vectors_are_computed_once_for_all_chunks():
  run = Program(KINDS['unified graph'], chunk=20)
  rest = jnp.asarray(gold()[0]), jnp.asarray(REAL), bce

  def loss(params):
    features = run.kind.features(jnp.asarray(hidden_states()))
    return head_loss(run._head(params), features, *rest)

  with on_mesh():
    text = str(jax.make_jaxpr(jax.grad(loss))(run.params))
  assert text.count('tanh ') == 2  # one for each layer
