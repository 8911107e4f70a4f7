"""Tests RADAr against decoding by hand, and on devices against one device."""

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

B, T, D, L, SYMBOLS = 8, 6, 16, 11, 14
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
EVEN = np.arange(L) % 2 == 0
LOSS = SequenceLoss(2.0, 0.1)


@functools.cache
def split(mesh=(1, 1), **fields):
  """A head taken apart, with weights that tell documents apart."""
  inputs = HeadInputs(
    D, L, counts_L=np.arange(L) % 4, hierarchy=Hierarchy.of(LABELS)
  )
  fields = {'chunk': 8, 'dropout': 0.0, 'heads': 4} | fields
  with on_mesh(*mesh):
    config = RadarConfig(most_symbols=SYMBOLS, **fields)
    head = config.build(inputs, nnx.Rngs(1))
    head.kernel[...] = 3 * head.kernel[...]
    head.other_kernel[...] = 3 * head.other_kernel[...]
    return nnx.split(head, trained, ...)


def trained(path, variable):
  return path[-1] not in ('index', 'level', 'rank')


def biased(params, likely_end=0.0, favourite=0.0):
  """Other parameters: biases of the end of a sequence, and of label 4."""
  flat = dict(nnx.to_flat_state(params))
  bias = jnp.zeros_like(flat['bias',][...]).at[4].set(favourite)
  other_bias = jnp.array([0.0, likely_end])
  flat['bias',] = flat['bias',].replace(bias)
  flat['other_bias',] = flat['other_bias',].replace(other_bias)
  return nnx.from_flat_state(flat)


@functools.cache
def lists_of(mesh, ranking):
  """(parameters, hidden states, lengths) -> lists of all and of EVEN labels."""
  graphdef, params, frozen = split(mesh, ranking=ranking)

  @jax.jit
  def run(params, hidden, lengths):
    head = nnx.merge(graphdef, params, frozen)
    scores = head.prepare(TokenFeatures(hidden, lengths))
    return head_topk(head, scores, L, slices=(jnp.asarray(EVEN),))

  return run, params


def scored(ranking, mesh=(1, 1), hidden=HIDDEN, lengths=LENGTHS, **biases):
  """The lists, and all scores [B, L]."""
  run, params = lists_of(mesh, ranking)
  with on_mesh(*mesh):
    given = biased(params, **biases), jnp.asarray(hidden), jnp.asarray(lengths)
    lists = jax.tree.map(np.asarray, run(*given))
  scores_BL = np.full((len(hidden), L), -np.inf)
  for row, (ids, scores) in enumerate(zip(lists[0][0], lists[1][0])):
    scores_BL[row, ids[ids != PAD]] = scores[ids != PAD]
  return lists, scores_BL


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


def tokens_of(row, hidden=HIDDEN):
  # Without tokens, every token would have the vector 0.
  return hidden[row, : max(1, LENGTHS[row])].astype(np.float64)


def by_hand(ranking, **biases):
  """Symbols and scores of each document; each prefix is read anew."""
  params, written = wide(biased(split()[1], **biases)), []
  scores, best = np.full((B, L), -np.inf), np.zeros((B, L))
  for row in range(B):
    symbols = []
    while len(symbols) < SYMBOLS and L + 1 not in symbols:
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


@pytest.mark.parametrize('likely_end', [2.0, -1e3])
@pytest.mark.parametrize('ranking', Ranking)
def test_writing_with_kept_keys_is_writing_with_the_whole_prefix(
  ranking, likely_end
):
  symbols, wanted = by_hand(ranking, likely_end=likely_end)
  lengths = [len(x) for x in symbols]
  if likely_end > 0:
    assert min(lengths) < 6 and max(lengths) > 6  # documents differ
  else:  # no sequence ends, and no label is written twice
    assert {*lengths} == {SYMBOLS}
    assert all(len({*row} - {L}) == len(row) - row.count(L) for row in symbols)
  _, scores = scored(ranking, likely_end=likely_end)
  np.testing.assert_allclose(scores, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize('favourite', [60.0, 150.0])
def test_scores_of_written_labels_are_finite_and_above_zero(favourite):
  """The probability of label 4 is 1 in float32, and others are nearly 0."""
  _, scores = scored(Ranking.EMITTED, likely_end=1.0, favourite=favourite)
  written = scores > -np.inf
  assert (30 < scores[:, 4]).all() and (scores[:, 4] < 300).all()
  assert np.isfinite(scores[written]).all() and (scores[written] > 0).all()
  assert written.sum() > B


def test_documents_are_scored_alone():
  """Neither other documents nor padding change a score."""
  _, every = scored(Ranking.FULL, likely_end=1.0)
  wide_hidden = np.pad(HIDDEN, ((0, 0), (0, 5), (0, 0)))
  for row in (1, 3, 7):
    part = wide_hidden[row : row + 1], LENGTHS[row : row + 1]
    _, alone = scored(Ranking.FULL, (1, 1), *part, likely_end=1.0)
    np.testing.assert_allclose(alone[0], every[row], 1e-5, 1e-6)


def test_a_mesh_gives_the_same_lists():
  _, wanted_BL = scored(Ranking.FULL, likely_end=1.0)
  (ids, scores), scores_BL = scored(Ranking.FULL, (2, 4), likely_end=1.0)
  np.testing.assert_allclose(scores_BL, wanted_BL, 1e-5, 1e-5)
  wanted = dense_topk(np.float32(scores_BL), L, slices=(EVEN,))
  np.testing.assert_array_equal(ids, wanted[0])
  np.testing.assert_array_equal(scores, wanted[1])


@functools.cache
def program(mesh=(1, 1)):
  """(parameters, hidden states) -> the loss and its gradients."""
  graphdef, params, frozen = split(mesh)

  def run(params, hidden):
    head = nnx.merge(graphdef, params, frozen)
    features = TokenFeatures(hidden, jnp.asarray(LENGTHS))
    gold = jnp.asarray(POSITIVES), jnp.asarray(MASK)
    return head.loss(head.prepare_loss(features), *gold, LOSS)

  return jax.jit(jax.value_and_grad(run, argnums=(0, 1))), params


def losses(mesh=(1, 1), hidden=HIDDEN):
  """The loss, and its gradients by parameters and by hidden states."""
  run, params = program(mesh)
  with on_mesh(*mesh):
    total, grads = jax.block_until_ready(run(params, jnp.asarray(hidden)))
  return float(total), jax.tree.map(np.asarray, grads)


def loss_by_hand(params, hidden=HIDDEN):
  total = 0.0
  for row in np.flatnonzero(MASK):
    gold = {x for x in POSITIVES[row].tolist() if 0 <= x < L}
    symbols = []
    for level in range(4):
      of_level = [x for x in gold if x // 3 == level]
      of_level.sort(key=lambda x: (-(x % 4), x))  # frequent ones first
      symbols += [*of_level, L] if of_level else []
    symbols.append(L + 1)
    tokens = tokens_of(row, hidden)
    z = symbol_logits(params, tokens, [L + 1, *symbols[:-1]])
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    right = logs[np.arange(len(symbols)), symbols]
    nats = -0.9 * right - 0.1 * logs.mean(axis=1)
    total += ((1 - np.exp(-nats)) ** 2 * nats).sum()
  return total


def test_the_loss_and_its_slopes_are_those_of_sequences_written_by_hand():
  params, (total, grads) = wide(split()[1]), losses()
  np.testing.assert_allclose(total, loss_by_hand(params), rtol=1e-5)
  leaves, structure = jax.tree.flatten((params, HIDDEN.astype(np.float64)))
  grads = jax.tree.leaves((nnx.to_pure_dict(grads[0]), grads[1]))
  rng = np.random.default_rng(3)
  for i, (leaf, grad) in enumerate(zip(leaves, grads, strict=True)):
    along, ends = rng.normal(size=leaf.shape), []
    for step in (1e-5, -1e-5):
      moved = [*leaves[:i], leaf + step * along, *leaves[i + 1 :]]
      ends.append(loss_by_hand(*jax.tree.unflatten(structure, moved)))
    slope = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose((grad * along).sum(), slope, 1e-4, 1e-5)


def test_rows_that_only_fill_the_batch_and_padding_add_nothing():
  total, (_, d_hidden) = losses()
  spoilt = HIDDEN.copy()
  spoilt[-1] = 5.0
  assert losses(hidden=spoilt)[0] == total
  assert not d_hidden[-1].any() and d_hidden[0].any()
  assert not d_hidden[np.arange(T) >= LENGTHS[:, None]].any()


def test_dropout_depends_on_its_key_alone():
  graphdef, params, frozen = split(dropout=0.3, layers=1)

  @jax.jit
  def run(seed):
    head = nnx.merge(graphdef, params, frozen)
    features = TokenFeatures(jnp.asarray(HIDDEN), jnp.asarray(LENGTHS))
    gold = jnp.asarray(POSITIVES), jnp.asarray(MASK), LOSS
    return head.loss(features, *gold, rngs=nnx.Rngs(dropout=seed))

  with on_mesh():
    first, again, other = (run(jax.random.key(seed)) for seed in (1, 1, 2))
  assert first == again != other


def test_a_mesh_gives_the_same_loss():
  (total, grads), (wanted, wanted_grads) = losses((2, 4)), losses()
  np.testing.assert_allclose(total, wanted, rtol=1e-5)
  assert_close(grads, wanted_grads, 1e-5, 1e-5)


def test_heads_must_divide_the_size_of_vectors():
  with pytest.raises(ConfigError, match='head.heads=5: must divide 16'):
    split(heads=5)
