"""Label names as an encoder embeds them."""

from flax import nnx
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.data.schema import Label
from xjax.data.text.subwords import Subwords
from xjax.networks.encoders.bert import Bert, BertConfig
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.name_embeddings import NameEncoder

TOKENIZER = Subwords.fit(['fishing rights in the sea of ports'])
SIZES = architecture_of(
  {
    'model_type': 'bert',
    'vocab_size': len(TOKENIZER),
    'hidden_size': 8,
    'num_hidden_layers': 1,
    'num_attention_heads': 2,
    'intermediate_size': 12,
    'max_position_embeddings': 20,
  },
  'here',
)


@pytest.fixture(scope='module')
def bert():
  return Bert(SIZES, BertConfig(), rngs=nnx.Rngs(0))


def embedded(bert, *labels, **config):
  names = NameEncoder(DescriptorConfig(**config), TOKENIZER, bert)
  return names.encode([Label(str(i), *x) for i, x in enumerate(labels)])


def by_hand(bert, text):
  ids = jnp.asarray(TOKENIZER.encode(text))[:, None]
  mean = np.asarray(bert(ids, jnp.ones(ids.shape, bool), None))[:, 0].mean(0)
  return mean / np.linalg.norm(mean)


def test_the_mean_of_all_tokens_of_length_1(bert):
  texts = ['fishing rights', 'sea', 'ports of the sea in ports']
  rows = embedded(bert, *((text,) for text in texts))
  for row, text in zip(rows, texts):
    np.testing.assert_allclose(row, by_hand(bert, text), atol=1e-6)


def test_other_names_count_where_asked(bert):
  label = 'sea', ('ports', '1957')
  np.testing.assert_array_equal(
    embedded(bert, label)[0], embedded(bert, ('sea',))[0]
  )
  both = (by_hand(bert, 'sea') + by_hand(bert, 'ports')) / 2
  np.testing.assert_allclose(
    embedded(bert, label, alt=True)[0], both, atol=1e-6
  )


def test_numbers_say_nothing(bert):
  rows = embedded(bert, ('1957',), ('sea',))
  assert not rows[0].any() and rows[1].any()


def test_the_first_pieces_alone(bert):
  long, short = ('sea ports rights',), ('sea ports',)
  assert not np.allclose(*embedded(bert, long, short))
  cut = embedded(bert, long, short, max_words=2)
  np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)


def test_more_names_than_one_batch_has(bert):
  names = [(f'sea of ports {"in " * (i % 7)}',) for i in range(300)]
  rows = embedded(bert, *names)
  for at in (0, 150, 299):
    alone = embedded(bert, names[at])[0]
    np.testing.assert_allclose(rows[at], alone, atol=1e-6)
