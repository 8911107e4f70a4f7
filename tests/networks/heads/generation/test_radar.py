"""Tests RADAr against decoding by hand, on any mesh, and in whole models."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.fixtures.dense_lists import dense_topk
from tests.fixtures.networks import assert_close, on_mesh
from xjax.core.errors import ConfigError
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.losses.sequence import SequenceLoss
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.head import HeadInputs, TokenFeatures
from xjax.networks.topk import head_topk

B, T, D, L = 8, 6, 16, 11
LENGTHS = np.array([6, 4, 1, 2, 5, 3, 6, 0], np.int32)
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(B, T, D)).astype(np.float32)
HIDDEN[np.arange(T) >= LENGTHS[:, None]] = 0  # as encoders have padding
POSITIVES = np.array(
  [
    [3, 3, 10, L + 2],  # twice the same; none of this head
    [0, 1, 2, 3],
    [PAD] * 4,  # no gold label
    [7, PAD, PAD, PAD],
    [5, 9, PAD, 8],
    [10, PAD, PAD, 0],
    [4, 6, 8, PAD],
    [2, 4, PAD, PAD],  # only fills the batch
  ],
  np.int32,
)
MASK = np.arange(B) < B - 1
# Labels 0, 1 and 2 are roots; label l has the parent l - 3.
LABELS = [Label(str(x), parents=(str(x - 3),) * (x > 2)) for x in range(L)]
SHORT = {'most_symbols': 9, 'heads': 4}


def features(hidden=HIDDEN, lengths=LENGTHS):
  return TokenFeatures(jnp.asarray(hidden), jnp.asarray(lengths))


@functools.cache
def head_of(mesh=(1, 1), likely_end=0.0, favourite=0.0, **fields):
  """A head whose random weights are large enough to tell documents apart.

  Args:
    mesh: numbers of devices.
    likely_end: bias of the end of a sequence.
    favourite: bias of label 4.
    fields: fields of the config.
  """
  none_L = np.zeros(L, bool)
  inputs = HeadInputs(
    D,
    L,
    None,
    ~none_L,
    none_L,
    D,
    counts_L=np.arange(L) % 4,
    hierarchy=Hierarchy.of(LABELS),
  )
  config = RadarConfig(**{'chunk': 8, 'dropout': 0.0} | SHORT | fields)
  with on_mesh(*mesh):
    head = config.build(inputs, nnx.Rngs(1))
    head.kernel[...] = 3 * head.kernel[...]
    head.other_kernel[...] = 3 * head.other_kernel[...]
    head.other_bias[...] = jnp.array([0.0, likely_end])
    head.bias[...] = jnp.where(head.index[...] == 4, favourite, 0.0)
  return head


def scored(mesh=(1, 1), inputs=None, k=L, slices=(), **options):
  """The ids and the scores of lists, [G, B, k]."""
  with on_mesh(*mesh):
    graphdef, params = nnx.split(head_of(mesh, **options))

    @jax.jit
    def topk(params, inputs):
      head = nnx.merge(graphdef, params)
      return head_topk(head, head.prepare(inputs), k, slices=slices)

    lists = jax.block_until_ready(topk(params, inputs or features()))
  return jax.tree.map(np.asarray, lists)


def dense_scores(lists):
  scores_BL = np.full((lists[0].shape[1], L), -np.inf)
  for row, (ids, scores) in enumerate(zip(lists[0][0], lists[1][0])):
    scores_BL[row, ids[ids != PAD]] = scores[ids != PAD]
  return scores_BL


def wide(state):
  """The parameters as float64 arrays, in nested dicts."""
  pure = nnx.to_pure_dict(state)
  return jax.tree.map(lambda x: np.asarray(x, np.float64), pure)


def norm(x, params):
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
  return x * params['scale'] + params['bias']


def dense(x, params):
  return x @ params['kernel'] + params['bias']


def attend(query, pairs, sees, heads):
  """Attention, head by head; sees has the shape [queries, entries]."""
  keys, values = np.split(pairs, 2, axis=-1)
  parts = (np.split(x, heads, axis=-1) for x in (query, keys, values))
  mixed = []
  for q, k, v in zip(*parts):
    weights = np.exp(q @ k.T / np.sqrt(q.shape[-1])) * sees
    mixed.append(weights @ v / weights.sum(axis=1, keepdims=True))
  return np.concatenate(mixed, axis=-1)


def symbol_logits(params, tokens, symbols, heads=4):
  """Logits [symbols, L + 2] of the symbols that follow each prefix.

  Args:
    params: from `wide`.
    tokens: [tokens, D], those of one document, without padding.
    symbols: the symbols of the document, from the start on.
  """
  tables = params['embedding'][:L], params['other_embedding']
  x = np.concatenate(tables)[np.asarray(symbols)]
  causal = np.tri(len(x))
  for _, layer in sorted(params['decoder']['layers'].items()):
    norms = layer['norms']
    query, pairs = dense(x, layer['own_query']), dense(x, layer['own_pairs'])
    mixed = attend(query, pairs, causal, heads)
    x = norm(x + dense(mixed, layer['own_output']), norms[0])
    pairs = dense(tokens, layer['token_pairs'])
    mixed = attend(dense(x, layer['token_query']), pairs, 1.0, heads)
    x = norm(x + dense(mixed, layer['token_output']), norms[1])
    hidden = np.maximum(dense(x, layer['inner']), 0)
    x = norm(x + dense(hidden, layer['outer']), norms[2])
  kernel = np.concatenate([params['kernel'][:L], params['other_kernel']])
  bias = np.concatenate([params['bias'][:L], params['other_bias']])
  return x @ kernel.T + bias


def tokens_of(row):
  # Without tokens, every token would have the vector 0.
  return HIDDEN[row, : max(1, LENGTHS[row])].astype(np.float64)


def by_hand(head, ranking):
  """Symbols and scores of each document; each prefix is read anew."""
  params, written = wide(nnx.state(head)), []
  scores, best = np.full((B, L), -np.inf), np.zeros((B, L))
  for row in range(B):
    symbols = []
    while len(symbols) < head.most_symbols and L + 1 not in symbols:
      z = symbol_logits(params, tokens_of(row), [L + 1, *symbols])[-1]
      p = np.exp(z) / np.exp(z).sum()
      waiting = [x for x in range(L) if x not in symbols]
      best[row, waiting] = np.maximum(best[row, waiting], p[waiting])
      symbol = max([*waiting, L, L + 1], key=lambda x: z[x])
      symbols.append(symbol)
      if symbol < L:
        q = (1 + p[symbol]) / 2
        scores[row, symbol] = np.log(q / (1 - q))
    written.append(symbols)
  if ranking is Ranking.FULL:
    rest = np.isinf(scores)
    scores[rest] = np.log(best[rest] / 2 / (1 - best[rest] / 2))
  return written, scores


@pytest.mark.parametrize('ranking', Ranking)
def test_writing_with_kept_keys_is_writing_with_the_whole_prefix(ranking):
  symbols, wanted = by_hand(head_of(likely_end=1.0), ranking)
  lengths = [len(x) for x in symbols]
  assert min(lengths) < 6 and max(lengths) > 6  # documents differ
  result = dense_scores(scored(likely_end=1.0, ranking=ranking))
  np.testing.assert_allclose(result, wanted, 1e-5, 1e-5)


def test_no_label_is_written_twice():
  """Nor are there more symbols than asked for."""
  head = head_of(likely_end=-1e3, most_symbols=L + 3)
  written = head.write(features())
  assert int(written.at) == L + 3 and not written.ended_B.any()
  symbols, _ = by_hand(head, Ranking.EMITTED)
  for row in symbols:
    labels = [x for x in row if x < L]
    assert len(labels) == len(set(labels))


def test_written_labels_are_those_with_a_probability_above_one_half():
  written = head_of(likely_end=1.0).write(features())
  emitted = np.asarray(written.emitted_BL)[:, :L]
  assert 0 < emitted.mean() < 1
  full = dense_scores(scored(likely_end=1.0, ranking=Ranking.FULL))
  np.testing.assert_array_equal(full > 0, emitted)
  assert np.isfinite(full).all() and (full[~emitted] < 0).all()
  only = dense_scores(scored(likely_end=1.0))
  np.testing.assert_array_equal(np.isfinite(only), emitted)
  np.testing.assert_array_equal(only[emitted], full[emitted])


def test_an_almost_certain_label_has_a_finite_score():
  """Its probability is 1 in float32."""
  head = head_of(most_symbols=1, favourite=60.0)
  scores = np.asarray(head.prepare(features()).scores_BL)
  assert (30 < scores[:, 4]).all() and (scores[:, 4] < 90).all()
  assert np.isinf(np.delete(scores, 4, axis=1)).all()


def test_an_unlikely_label_that_is_written_is_above_zero():
  """The head would rather repeat label 4, whose probability is 1."""
  head = head_of(most_symbols=2, favourite=150.0)
  scores = np.asarray(head.prepare(features()).scores_BL)
  second = np.asarray(head.write(features()).last_B)
  assert (second < L).any() and (second != 4).all()
  np.testing.assert_array_equal((scores > 0).sum(axis=1), 1 + (second < L))
  assert np.isinf(scores[scores <= 0]).all()


@pytest.mark.parametrize('ranking', Ranking)
def test_documents_are_scored_alone(ranking):
  """Neither other documents nor padding change a score."""
  every = dense_scores(scored(ranking=ranking, likely_end=1.0))
  wide = np.pad(HIDDEN, ((0, 0), (0, 5), (0, 0)))
  padded = scored(inputs=features(wide), ranking=ranking, likely_end=1.0)
  np.testing.assert_allclose(dense_scores(padded), every, 1e-5, 1e-6)
  for row in (1, 3, 7):
    one = features(HIDDEN[row : row + 1], LENGTHS[row : row + 1])
    alone = dense_scores(scored(inputs=one, ranking=ranking, likely_end=1.0))
    np.testing.assert_allclose(alone[0], every[row], 1e-5, 1e-6)


def test_slices_and_filters_choose_among_the_scores():
  wanted_BL = dense_scores(scored(ranking=Ranking.FULL))
  even = jnp.arange(L) % 2 == 0
  result = scored(ranking=Ranking.FULL, slices=(even,), k=4)
  wanted = dense_topk(jnp.asarray(wanted_BL, jnp.float32), 4, slices=(even,))
  for ours, theirs in zip(result, wanted):
    np.testing.assert_array_equal(ours, theirs)


@functools.cache
def program(mesh, loss, rate):
  """(parameters, hidden states, seed) -> the loss and its gradients."""
  with on_mesh(*mesh):
    head = head_of(mesh, dropout=rate)
    graphdef, params, frozen = nnx.split(head, trained, ...)

  def run(params, hidden, seed):
    head = nnx.merge(graphdef, params, frozen)
    trainer = head.with_dropout(nnx.Rngs(dropout=seed)) if rate else head
    inputs = head.prepare_loss(features(hidden))
    gold = jnp.asarray(POSITIVES), jnp.asarray(MASK)
    return trainer.loss(inputs, *gold, loss)

  return jax.jit(jax.value_and_grad(run, argnums=(0, 1))), params


def losses(mesh=(1, 1), hidden=HIDDEN, loss=None, rate=0.0, seed=0):
  """The loss, and its gradients by parameters and by hidden states."""
  run, params = program(mesh, loss or SequenceLoss(), rate)
  with on_mesh(*mesh):
    results = run(params, jnp.asarray(hidden), jax.random.key(seed))
    total, grads = jax.block_until_ready(results)
  return float(total), jax.tree.map(np.asarray, grads)


def trained(path, variable):
  return path[-1] not in ('index', 'level', 'rank')


def test_the_loss_is_that_of_the_sequences_written_by_hand():
  loss = SequenceLoss(2.0, 0.1)
  params, total = wide(nnx.state(head_of())), 0.0
  for row in np.flatnonzero(MASK):
    gold = {x for x in POSITIVES[row].tolist() if 0 <= x < L}
    symbols = []
    for level in range(4):
      of_level = [x for x in gold if x // 3 == level]
      of_level.sort(key=lambda x: (-(x % 4), x))  # frequent ones first
      symbols += [*of_level, L] if of_level else []
    symbols.append(L + 1)
    z = symbol_logits(params, tokens_of(row), [L + 1, *symbols[:-1]])
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    right = logs[np.arange(len(symbols)), symbols]
    nats = -0.9 * right - 0.1 * logs.mean(axis=1)
    total += ((1 - np.exp(-nats)) ** 2 * nats).sum()
  np.testing.assert_allclose(losses(loss=loss)[0], total, rtol=1e-5)


def test_rows_that_only_fill_the_batch_and_padding_add_nothing():
  total, (_, d_hidden) = losses()
  spoilt = HIDDEN.copy()
  spoilt[-1] = 5.0
  assert losses(hidden=spoilt)[0] == total
  assert not d_hidden[-1].any() and d_hidden[0].any()
  assert not d_hidden[np.arange(T) >= LENGTHS[:, None]].any()


def test_every_parameter_of_a_real_symbol_is_trained():
  _, (grads, _) = losses()
  flat = {'/'.join(map(str, p)): x[...] for p, x in nnx.to_flat_state(grads)}
  assert {x for x, grad in flat.items() if not grad.any()} == set()
  for name in ('embedding', 'kernel', 'bias'):
    assert not flat[name][L:].any()  # padding rows
  assert flat['kernel'][:L].any(axis=1).all()


def test_dropout_depends_on_its_key_alone():
  first, again, other = (losses(rate=0.3, seed=seed)[0] for seed in (1, 1, 2))
  assert first == again
  assert len({first, other, losses()[0]}) == 3


def test_a_mesh_gives_the_same_loss():
  total, grads = losses((2, 4))
  wanted, wanted_grads = losses()
  np.testing.assert_allclose(total, wanted, rtol=1e-5)
  assert_close(grads, wanted_grads, 1e-5, 1e-5)


@pytest.mark.parametrize('mesh', [(2, 4), (8, 1)])
def test_a_mesh_gives_the_same_scores(mesh):
  result, wanted = (
    dense_scores(scored(x, ranking=Ranking.FULL, likely_end=1.0))
    for x in (mesh, (1, 1))
  )
  np.testing.assert_allclose(result, wanted, 1e-5, 1e-5)


def test_heads_must_divide_the_size_of_vectors():
  with pytest.raises(ConfigError, match='head.heads=5: must divide 16'):
    head_of(heads=5)
