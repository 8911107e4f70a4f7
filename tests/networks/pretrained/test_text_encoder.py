"""Vectors of texts and of label names from an encoder that is not trained."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import EncoderInputs
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.pretrained.architecture import architecture_of, small_encoder
from xjax.networks.pretrained.text_encoder import NameEncoder, TextEncoder

WORDS = 'fishing rights in the sea of ports and airports'.split()
LONGEST = 14
KINDS = {'bert': BertConfig, 'xlnet': XLNetConfig}


@functools.cache
def made(kind):
  config = KINDS[kind]()
  tokenizer = Subwords.fit([' '.join(WORDS)], summary_last=kind == 'xlnet')
  sizes = small_encoder(config.architecture, len(tokenizer), LONGEST)
  inputs = EncoderInputs(0, jnp.float32, architecture_of(sizes, 'here'))
  # Fresh weights are small, so all vectors would be alike.
  graphdef, params = nnx.split(config.build(inputs, nnx.Rngs(0)))
  params = jax.tree.map(lambda x: x * 5, params)
  return TextEncoder(tokenizer, nnx.merge(graphdef, params), LONGEST)


@pytest.fixture
def encoder():
  return made('bert')


def texts_of(n):
  """Texts of 0 to 19 words."""
  rng = np.random.default_rng(0)
  return [' '.join(rng.choice(WORDS, rng.integers(20))) for _ in range(n)]


READ = nnx.jit(lambda module, ids: module(ids, ids >= 0, None))


def by_hand(encoder, text):
  """One text without padding: the mean of all states, of length 1."""
  ids = jnp.asarray(encoder.tokenizer.encode(text, encoder.max_tokens))[:, None]
  states = READ(encoder.encoder, ids)
  mean = np.asarray(states)[:, 0].mean(axis=0)
  return mean / np.linalg.norm(mean)


@pytest.mark.parametrize('kind', KINDS)
def test_a_vector_is_the_mean_of_the_states_of_all_tokens(kind):
  encoder = made(kind)
  texts = ['sea', 'fishing ports', 'ports of the sea', ' '.join(WORDS)]
  texts += texts_of(20)
  vectors = encoder.vectors(texts)
  assert vectors.dtype == np.float32
  assert vectors.shape == (len(texts), encoder.dim)
  for row in range(4):
    expected = by_hand(encoder, texts[row])
    np.testing.assert_allclose(vectors[row], expected, atol=1e-5)
  cosines = vectors[:4] @ vectors[:4].T - np.eye(4)
  assert cosines.max() < 1 - 1e-4
  np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_vector_does_not_depend_on_the_other_texts(encoder):
  texts = texts_of(30)
  vectors = encoder.vectors(texts)
  for row in (0, 29):
    (alone,) = encoder.vectors([texts[row]])
    np.testing.assert_allclose(vectors[row], alone, atol=1e-6)
  every = np.random.default_rng(1).permutation(len(texts))
  for some in (np.arange(3, 13), every):  # in whatever order
    few = encoder.vectors([texts[row] for row in some])
    np.testing.assert_allclose(vectors[some], few, atol=1e-6)


def test_empty_texts_have_the_vector_of_the_special_tokens(encoder):
  vectors = encoder.vectors(['', ' \n', 'sea', ''])
  np.testing.assert_allclose(vectors[0], by_hand(encoder, ''), atol=1e-5)
  np.testing.assert_allclose(vectors[[1, 3]], vectors[[0, 0]], atol=1e-6)
  assert not np.allclose(vectors[2], vectors[0])
  assert encoder.vectors([]).shape == (0, encoder.dim)


def test_texts_are_cut_to_max_tokens(encoder):
  short = TextEncoder(encoder.tokenizer, encoder.encoder, 5)
  room = 5 - encoder.tokenizer.n_special
  words = WORDS * 9
  texts = [' '.join(words[:n]) for n in (room - 1, room, room + 1, len(words))]
  less, cut, longer, longest = short.vectors(texts)
  np.testing.assert_allclose([longer, longest], [cut, cut], atol=1e-6)
  np.testing.assert_allclose(cut, by_hand(short, texts[-1]), atol=1e-5)
  assert not np.allclose(less, cut, atol=1e-4)


def test_few_programs_are_compiled(encoder, monkeypatch):
  shapes = []
  program, params = encoder._program

  def noting(params, ids_BT, lengths_B):
    shapes.append(ids_BT.shape)
    return program(params, ids_BT, lengths_B)

  monkeypatch.setitem(encoder.__dict__, '_program', (noting, params))
  encoder.vectors(texts_of(30))
  encoder.vectors(texts_of(9))
  encoder.vectors(['sea'])
  assert {rows for rows, _ in shapes} <= {1, 16, 128}
  assert {width for _, width in shapes} == {8, LONGEST}


def embedded(encoder, *labels, max_words=9, **config):
  config = DescriptorConfig(max_words=max_words, **config)
  names = NameEncoder(config, encoder.tokenizer, encoder.encoder)
  return names.encode([Label(str(i), *x) for i, x in enumerate(labels)])


def test_names_have_the_vectors_of_their_texts(encoder):
  texts = ['fishing rights', 'sea', 'ports of the sea in ports']
  rows = embedded(encoder, *((text,) for text in texts), ('1957',))
  for row, text in zip(rows, texts):
    np.testing.assert_allclose(row, by_hand(encoder, text), atol=1e-6)
  assert not rows[3].any()  # numbers say nothing


def test_other_names_count_where_asked(encoder):
  label = 'sea', ('ports', '1957')
  one, alone = (embedded(encoder, x)[0] for x in (label, ('sea',)))
  np.testing.assert_array_equal(one, alone)
  both = (by_hand(encoder, 'sea') + by_hand(encoder, 'ports')) / 2
  (found,) = embedded(encoder, label, alt=True)
  np.testing.assert_allclose(found, both, atol=1e-6)


def test_the_first_pieces_of_names_alone(encoder):
  long, short = ('sea ports rights',), ('sea ports',)
  assert not np.allclose(*embedded(encoder, long, short))
  cut = embedded(encoder, long, short, max_words=2)
  np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)
