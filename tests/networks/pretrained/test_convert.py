from flax import nnx
import numpy as np
import pytest

from tests.fixtures.encoders import random_params, same
from xjax.core.errors import DataError
from xjax.networks.encoders.bert import Bert, BertConfig
from xjax.networks.encoders.xlnet import XLNet, XLNetConfig
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import (
  from_hugging_face,
  parameter_shapes,
  to_hugging_face,
)
from xjax.train.parameters import by_path

D, F, V = 4, 6, 11
TINY = architecture_of(
  {
    'model_type': 'bert',
    'vocab_size': V,
    'hidden_size': D,
    'num_hidden_layers': 2,
    'num_attention_heads': 2,
    'intermediate_size': F,
    'max_position_embeddings': 5,
  },
  'c',
)
LAYER = 'encoder.layer.1.'


XLNET = {
  'model_type': 'xlnet',
  'vocab_size': V,
  'd_model': 6,
  'n_layer': 2,
  'n_head': 3,
  'd_inner': 10,
}
TINY_XLNET = architecture_of(XLNET, 'c')


def tensors_of(pooler=True, sizes=TINY):
  return to_hugging_face(random_params(sizes, pooler), sizes)


def fault(tensors):
  with pytest.raises(DataError, match='^m: ') as error:
    from_hugging_face(tensors, TINY, 'm')
  return str(error.value)


@pytest.mark.parametrize(
  ('module', 'config', 'sizes'),
  [(Bert, BertConfig, TINY), (XLNet, XLNetConfig, TINY_XLNET)],
)
def test_parameters_are_those_of_the_encoder(module, config, sizes):
  like = nnx.eval_shape(lambda: module(sizes, config(), rngs=nnx.Rngs(0)))
  shapes = {
    f'encoder/{path}': x.shape
    for path, x in by_path(nnx.state(like, nnx.Param)).items()
  }
  assert shapes == parameter_shapes(sizes)


def test_names_and_axes_are_theirs():
  params, tensors = random_params(TINY), tensors_of()
  assert len(tensors) == 5 + 2 * 16 + 2
  assert tensors['embeddings.word_embeddings.weight'].shape == (V, D)
  kernel = params['encoder/layers/attention/inputs/kernel'][1]
  for part, name in enumerate(('query', 'key', 'value')):
    tensor = tensors[f'{LAYER}attention.self.{name}.weight']
    assert np.array_equal(tensor, kernel[:, part * D : (part + 1) * D].T)
    assert tensor.flags.c_contiguous
  assert tensors[f'{LAYER}intermediate.dense.weight'].shape == (F, D)
  assert np.array_equal(
    tensors[f'{LAYER}output.dense.weight'],
    params['encoder/layers/ffn/output/kernel'][1].T,
  )
  assert np.array_equal(
    tensors['embeddings.LayerNorm.weight'],
    params['encoder/embeddings/norm/scale'],
  )
  assert np.array_equal(
    tensors['pooler.dense.weight'], params['pooling/dense/kernel'].T
  )


@pytest.mark.parametrize(
  ('sizes', 'prefix', 'pooler'),
  [
    (TINY, '', True),
    (TINY, 'roberta.', False),
    (TINY_XLNET, '', False),
    (TINY_XLNET, 'transformer.', True),
  ],
)
def test_back_and_forth_is_the_same(sizes, prefix, pooler):
  plain = tensors_of(pooler, sizes)
  tensors = {prefix + name: x for name, x in plain.items()}
  if sizes is TINY_XLNET:  # these do not change what is encoded
    extra = ('transformer.mask_emb', 'lm_loss.weight', 'logits_proj.bias')
    tensors |= dict.fromkeys(extra, np.zeros(3, np.float32))
  params = from_hugging_face(tensors, sizes, 'm')
  assert same(params, random_params(sizes, pooler))
  assert all(x.dtype == np.float32 for x in params.values())
  assert same(to_hugging_face(params, sizes), plain)


def test_harmless_extras_and_old_names():
  tensors = {}
  for name, x in tensors_of().items():
    old = name.replace('LayerNorm.weight', 'LayerNorm.gamma')
    tensors['bert.' + old.replace('LayerNorm.bias', 'LayerNorm.beta')] = x
  assert 'bert.embeddings.LayerNorm.gamma' in tensors
  for extra in (
    'bert.embeddings.position_ids',
    'cls.predictions.bias',
    'cls.seq_relationship.weight',
    'lm_head.decoder.weight',
    'classifier.out_proj.weight',
    'qa_outputs.bias',
  ):
    tensors[extra] = np.arange(3)
  assert same(from_hugging_face(tensors, TINY, 'm'), random_params(TINY))


def test_one_error_lists_all():
  tensors = tensors_of()
  del tensors['embeddings.word_embeddings.weight']
  del tensors['pooler.dense.bias']
  tensors['encoder.layer.2.output.dense.bias'] = np.zeros(D, np.float32)
  tensors['odd\x1b[2J'] = np.zeros(D, np.float32)
  tensors['bert.embeddings.LayerNorm.bias'] = np.zeros(D, np.float32)
  tensors[f'{LAYER}output.dense.weight'] = np.zeros((F, D), np.float32)
  tensors[f'{LAYER}output.dense.bias'] = np.zeros(D, np.int32)
  assert fault(tensors).splitlines()[1:] == [
    '  missing: embeddings.word_embeddings.weight, pooler.dense.bias',
    '  unexpected: bert.embeddings.LayerNorm.bias (the same as '
    'embeddings.LayerNorm.bias), encoder.layer.2.output.dense.bias, '
    r'odd\u001b[2J',
    f'  wrong: {LAYER}output.dense.weight is [6, 4], not [4, 6], '
    f'{LAYER}output.dense.bias is int32, not of a floating type',
  ]


@pytest.mark.parametrize('value', [np.nan, np.inf, -1e300])
def test_values_are_finite(value):
  tensors = tensors_of()
  tensors['pooler.dense.bias'] = np.array([0, value, 0, 0])
  assert 'not finite' in fault(tensors)
  assert fault(tensors).endswith('in: pooler.dense.bias')
