"""Compares graph layers, and heads that read them, with their equations."""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.mesh import make_mesh
from xjax.core.mesh_config import MeshConfig
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.bce import bce
from xjax.networks.heads.chunks import split_head
from xjax.networks.heads.head import HeadInputs, NoGraph
from xjax.networks.heads.streaming import head_loss
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.heads.zero_shot import ZeroShotConfig
from xjax.networks.label_graph import (
  GraphLayers,
  Joining,
  LabelGraph,
  edges_with,
)

D, E, H, L, OTHERS = 6, 4, 3, 300, 20
V = L + OTHERS
# Three labels in five are seen, one calibrates, one is never learnt from.
KIND = np.arange(L) % 5
SEEN, HIDDEN = KIND < 3, KIND == 3
LAYOUTS = [
  ((2, 4), 48),
  ((1, 1), 7),
  *[
    pytest.param(mesh, chunk, marks=pytest.mark.thorough)
    for mesh, chunk in [((8, 1), 48), ((1, 8), 48), ((1, 1), 4000)]
  ],
]
HEADS = {
  'unified': UnifiedConfig(graph=GraphLayers(H)),
  'unified, queries': UnifiedConfig(graph=GraphLayers(H, queries=True)),
  'add': ZeroShotConfig(graph=GraphLayers(H)),
  'add, queries': ZeroShotConfig(graph=GraphLayers(H, queries=True)),
  'concat': ZeroShotConfig(graph=GraphLayers(H, joining=Joining.CONCAT)),
}


def parents_of(node):
  """Several roots, several parents, a long path, concepts below labels."""
  if node < 20:  # a path of 20 levels, whose last node is a label
    return [node - 1] if node else []
  if node == 299:  # an orphan
    return []
  if node < 40:
    return [300 + node % 7, 19]
  if node >= L:
    return [node - 250] if node % 2 else []
  return [node // 3] if node % 4 else [node // 3, node // 5, 310]


def hierarchy():
  rows = [tuple(f'n{p}' for p in parents_of(node)) for node in range(V)]
  labels = [Label(f'n{node}', parents=row) for node, row in enumerate(rows)]
  return Hierarchy.of(labels[:L], labels[L:])


def built(config, chunk=48, seen=SEEN, hidden=HIDDEN, drawn=True):
  """Returns a head; if `drawn`, all parameters are drawn at random."""
  inputs = HeadInputs(
    dim=D,
    n_labels=L,
    bias_L=None,
    seen_L=seen,
    hidden_L=hidden,
    descriptor_dim=E,
    hierarchy=hierarchy(),
  )
  config = dataclasses.replace(config, chunk=chunk)
  head = config.build(inputs, nnx.Rngs(0))
  rng = np.random.default_rng(3)
  for path, param in sorted(nnx.to_flat_state(nnx.state(head))):
    if path[-1] in ('parents', 'children', 'seen', 'own', 'hidden'):
      continue
    if drawn or path[-1] in ('descriptors', 'concepts'):
      values = 0.7 * rng.normal(size=param.shape)
      param[...] = jnp.asarray(values, jnp.float32)
  nodes = np.asarray(head.descriptors[...])
  head.descriptors[...] = nodes * (np.arange(len(nodes)) != 7)[:, None]
  return head


THOROUGH = {'unified, queries', 'add'}


@pytest.fixture(
  params=[
    pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH))
    for name in HEADS
  ],
  scope='module',
)
def config(request):
  return HEADS[request.param]


@pytest.fixture(scope='module')
def trial(config, trial_of):
  learnt = SEEN | HIDDEN if isinstance(config, UnifiedConfig) else SEEN
  return trial_of(lambda chunk: built(config, chunk), learnt)


def values(head):
  params = nnx.to_pure_dict(nnx.state(head))
  return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def graph_vectors(params, unit):
  """Returns g of all labels, by loops over nodes."""
  x = np.concatenate([params['descriptors'][:L], params['graph']['concepts']])
  if unit:
    x = np.array([row / (np.linalg.norm(row) or 1) for row in x])
  graph = hierarchy()
  for layer in params['graph']['layers'].values():
    rows = []
    for node in range(V):
      total = x[node] @ layer['own_kernel'] + layer['bias']
      for name, near in ('parent', graph.parents), ('child', graph.children):
        if len(near[node]):
          mean = np.mean([x[n] for n in near[node]], axis=0)
          total = total + mean @ layer[f'{name}_kernel']
      rows.append(np.tanh(total))
    x = np.array(rows)
  g = x[:L]
  return g @ params['graph']['kernel'] if unit else g


def attended(hidden_TD, query, value_TX):
  powers = np.exp(hidden_TD @ query)
  return (powers / powers.sum()) @ value_TX


def by_equations(config, hidden_TD, params):
  """Returns one document's logits, label by label."""
  unified = isinstance(config, UnifiedConfig)
  g_LE = graph_vectors(params, unified)
  logits = []
  for label in range(L):
    e, g = params['descriptors'][label], g_LE[label]
    if unified:
      e = e / (np.linalg.norm(e) or 1)
    query = e + g if config.graph.queries else e
    if unified:
      own = float(SEEN[label])
      u = own * params['attention'][label] + query @ params['attention_kernel']
      w = own * params['output'][label] + (e + g) @ params['output_kernel']
      b = own * params['bias'][label] + (e + g) @ params['bias_kernel']
      z = attended(hidden_TD, u, hidden_TD) @ w + b + params['offset']
      if not SEEN[label]:
        z = params['unseen_scale'] * z + params['unseen_offset']
    else:
      keys = np.tanh(hidden_TD @ params['kernel'] + params['bias'])
      if config.graph.joining is Joining.CONCAT:
        x = attended(keys, query, hidden_TD)
        x = np.tanh(x @ params['graph_kernel'] + params['graph_bias'])
        z = x @ np.concatenate([e, g]) + params['offset']
      else:
        z = attended(keys, query, keys) @ (e + g) + params['offset']
    logits.append(z)
  return np.array(logits)


@pytest.fixture(scope='module')
def expected(config, documents):
  features, _ = documents()
  hidden_BTD = np.asarray(features.hidden_BTD, np.float64)[:-1]
  with jax.set_mesh(make_mesh(MeshConfig())):
    params = values(built(config))
  return np.array(
    [
      by_equations(config, hidden_TD[:n], params)
      for hidden_TD, n in zip(hidden_BTD, features.lengths_B)
    ]
  )


@pytest.mark.parametrize(('mesh', 'chunk'), LAYOUTS[:2])
def test_scores_are_those_of_the_equations(trial, expected, mesh, chunk):
  scores_BL = trial.scores(mesh, chunk)[:-1]
  np.testing.assert_allclose(scores_BL, expected, atol=1e-5)
  assert np.ptp(expected, axis=1).min() > 3


@pytest.fixture(scope='module')
def dense(trial):
  return trial.dense()


@pytest.mark.parametrize(('mesh', 'chunk'), LAYOUTS)
def test_loss_is_the_dense_one_on_any_mesh(trial, dense, mesh, chunk):
  value_and_gradients = trial.streamed(mesh, chunk)
  np.testing.assert_allclose(value_and_gradients[0], dense[0], rtol=1e-6)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5),
    value_and_gradients[1:],
    dense[1:],
  )
  gradients = value_and_gradients[1]['graph']
  assert not gradients.pop('concepts').any()
  assert min(np.abs(x).max() for x in jax.tree.leaves(gradients)) > 1e-3


def test_padding_and_batch_mates_do_not_matter(trial, documents):
  before = trial.scores()
  features, _ = documents(tokens=9)
  few = np.array([3, 1])
  alone = type(features)(features.hidden_BTD[few], features.lengths_B[few])
  scores_BL = trial.scores(features=alone)
  np.testing.assert_allclose(scores_BL, before[few], atol=1e-5)


def test_hidden_labels_do_not_train_the_graph(trial_of):
  both, seen_alone = (
    trial_of(
      lambda chunk, hidden=hidden: built(
        HEADS['unified, queries'], chunk, hidden=hidden
      ),
      SEEN | hidden,
    ).streamed()[1]
    for hidden in (HIDDEN, HIDDEN & False)
  )
  for side in (both, seen_alone):
    side.pop('unseen_scale'), side.pop('unseen_offset')
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), both, seen_alone
  )


def test_a_unified_head_starts_as_the_head_without_a_graph(documents):
  features, _ = documents()
  with jax.set_mesh(make_mesh(MeshConfig())):
    rows_and_scores = []
    for graph in (NoGraph(), GraphLayers(queries=True)):
      head = built(UnifiedConfig(graph=graph), drawn=False).ready()
      rows = nnx.to_pure_dict(split_head(head).rows)
      rows_and_scores.append(np.asarray(head.logits(features, rows)))
      own = head.attention_kernel[...], head.output_kernel[...]
      rows_and_scores += own
  for a, b in zip(rows_and_scores[:3], rows_and_scores[3:], strict=True):
    np.testing.assert_array_equal(a, b)


def test_dropout_is_drawn_once_for_a_batch(documents):
  config = UnifiedConfig(row_dropout=0.0, graph=GraphLayers(dropout=0.4))
  with jax.set_mesh(make_mesh(MeshConfig())):
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


def test_nodes_without_neighbours_read_themselves_alone():
  flat = Hierarchy.of([Label('a'), Label('b')])
  graph = LabelGraph(flat, E, width=H, rngs=nnx.Rngs(0))
  rng = np.random.default_rng(0)
  rows_LE = jnp.asarray(rng.normal(size=(2, E)), jnp.float32)
  with jax.set_mesh(make_mesh(MeshConfig())):
    before = graph.rows(rows_LE, None)
    for layer in graph.layers:
      layer.parent_kernel[...] *= 5
      layer.child_kernel[...] *= 5
    np.testing.assert_array_equal(graph.rows(rows_LE, None), before)
    other = rows_LE.at[0].set(1.0)
    np.testing.assert_array_equal(graph.rows(other, None)[1], before[1])


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


def test_vectors_are_computed_once_for_all_chunks(documents):
  features, positives = documents()
  with jax.set_mesh(make_mesh(MeshConfig())):
    head = built(HEADS['unified'], 20)
    graphdef, floats, edges = nnx.split(head, nnx.filterlib.Not(_is_edges), ...)

    def loss(floats):
      ready = nnx.merge(graphdef, floats, edges).ready()
      gold = jnp.asarray(positives), jnp.ones(len(positives), bool)
      return head_loss(ready, features, *gold, bce)

    text = str(jax.make_jaxpr(jax.grad(loss))(floats))
  assert text.count('tanh ') == 2  # one for each layer


def _is_edges(path, variable):
  del variable
  return path[-1] in ('parents', 'children')
