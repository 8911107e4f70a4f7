import dataclasses

import pytest

from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import (
  Activation,
  XLNetArchitecture,
  architecture_of,
)

CONFIG = {
  'model_type': 'bert',
  'vocab_size': 30522,
  'hidden_size': 384,
  'num_hidden_layers': 6,
  'num_attention_heads': 12,
  'intermediate_size': 1536,
  'max_position_embeddings': 512,
}

XLNET = {
  'model_type': 'xlnet',
  'vocab_size': 32000,
  'd_model': 768,
  'n_layer': 12,
  'n_head': 12,
  'd_inner': 3072,
}


def test_sizes_are_those_of_the_config():
  sizes = architecture_of(
    CONFIG
    | {
      'type_vocab_size': 3,
      'hidden_act': 'relu',
      'layer_norm_eps': 1e-5,
      'pad_token_id': 7,
    },
    'c',
  )
  assert dataclasses.asdict(sizes) == {
    'vocab_size': 30522,
    'dim': 384,
    'layers': 6,
    'heads': 12,
    'inner': 1536,
    'positions': 512,
    'token_types': 3,
    'activation': Activation.RELU,
    'norm_eps': 1e-5,
    'pad_id': 7,
    'position_offset': 0,
  }
  assert sizes.max_tokens == 512


@pytest.mark.parametrize(
  ('given', 'activation'),
  [
    (None, Activation.GELU),
    ('gelu_new', Activation.GELU_TANH),
    ('gelu_pytorch_tanh', Activation.GELU_TANH),
  ],
)
def test_absent_fields_have_the_values_of_transformers(given, activation):
  sizes = architecture_of(CONFIG | {'hidden_act': given}, 'c')
  assert sizes.activation is activation
  assert (sizes.token_types, sizes.norm_eps, sizes.pad_id) == (2, 1e-12, 0)
  assert architecture_of(CONFIG | {'model_type': 'roberta'}, 'c').pad_id == 1


@pytest.mark.parametrize('kind', ['roberta', 'xlm-roberta', 'camembert'])
def test_roberta_keeps_positions_for_padding(kind):
  config = CONFIG | {'model_type': kind, 'max_position_embeddings': 514}
  sizes = architecture_of(config, 'c')
  assert (sizes.positions, sizes.position_offset) == (514, 2)
  assert sizes.max_tokens == 512
  sizes = architecture_of(config | {'pad_token_id': 3}, 'c')
  assert (sizes.position_offset, sizes.max_tokens) == (4, 510)


FAULTS = [
  ({'model_type': 'deberta-v2'}, '"model_type" is "deberta-v2"; only'),
  ({'model_type': None}, '"model_type" is missing'),
  ({'model_type': ['bert']}, r'"model_type" is \["bert"\]'),
  ({'position_embedding_type': 'relative_key'}, 'only "absolute" is'),
  ({'is_decoder': True}, '"is_decoder" is true'),
  ({'add_cross_attention': True}, '"add_cross_attention"'),
  ({'pruned_heads': {'0': [1]}}, '"pruned_heads"'),
  ({'position_embedding_type': ''}, '"position_embedding_type"'),
  ({'quantization_config': {'bits': 8}}, '"quantization_config"'),
  ({'embedding_size': 128}, '"embedding_size" is 128; only 384'),
  ({'num_attention_heads': 7}, '384, which is not a multiple of 7'),
  (
    {'hidden_act': 'silu'},
    '"hidden_act" is "silu"; only these activations are implemented: gelu',
  ),
  ({'hidden_act': {'a': 1}}, '"hidden_act" is'),
  ({'hidden_size': -384}, '"hidden_size" is -384; it must be a whole'),
  ({'hidden_size': 384.0}, '"hidden_size" is 384.0'),
  ({'hidden_size': True}, '"hidden_size" is true'),
  ({'hidden_size': None}, '"hidden_size" is missing'),
  ({'vocab_size': 10**12}, '"vocab_size" is 1000000000000'),
  ({'num_hidden_layers': 0}, '"num_hidden_layers" is 0'),
  ({'layer_norm_eps': 0}, '"layer_norm_eps" is 0'),
  ({'layer_norm_eps': float('nan')}, '"layer_norm_eps" is NaN'),
  ({'layer_norm_eps': '1e-12'}, '"layer_norm_eps" is "1e-12"'),
  ({'pad_token_id': 30522}, '"vocab_size" is only 30522'),
  ({'pad_token_id': -1}, '"pad_token_id" is -1'),
  ({'max_position_embeddings': 2}, 'leaves no room'),
]
XLNET_FAULTS = [
  ({'attn_type': 'uni'}, '"attn_type" is "uni"; only "bi" is implemented'),
  ({'bi_data': True}, '"bi_data" is true; only false'),
  ({'clamp_len': 128}, '"clamp_len" is 128; only -1'),
  ({'summary_type': 'mean'}, '"summary_type" is "mean"; only "last"'),
  ({'d_head': 32}, '"d_head" is 32; only 64 is'),
  ({'n_head': 7}, '"d_model" is 768, which is not a multiple of 7'),
  ({'d_model': 9, 'n_head': 3}, '"d_model" is 9, which is not a multiple of 2'),
  ({'n_layer': None}, '"n_layer" is missing'),
  ({'ff_activation': 'swish'}, '"ff_activation" is "swish"; only these'),
  ({'pad_token_id': 32000}, '"vocab_size" is only 32000'),
]


@pytest.mark.parametrize(
  ('config', 'fields', 'said'),
  [
    *((CONFIG, *fault) for fault in FAULTS),
    *((XLNET, *fault) for fault in XLNET_FAULTS),
  ],
)
def test_what_is_not_implemented_is_refused(config, fields, said):
  with pytest.raises(DataError, match=said) as error:
    architecture_of(config | fields, 'm/config.json')
  assert str(error.value).startswith('m/config.json: ')
  assert '\n' not in str(error.value)


def test_sizes_of_xlnet():
  published = {
    'attn_type': 'bi',
    'bi_data': False,
    'clamp_len': -1,
    'd_head': 64,
    'ff_activation': 'relu',
    'layer_norm_eps': 1e-5,
    'mem_len': None,
    'pad_token_id': 7,
    'summary_type': 'last',
    'untie_r': True,
  }
  sizes = architecture_of(XLNET | published, 'c')
  assert sizes == XLNetArchitecture(
    32000, 768, 12, 12, 3072, Activation.RELU, 1e-5, 7
  )
  assert sizes.max_tokens is None and sizes.summary_last
  absent = architecture_of(XLNET, 'c')
  assert absent.activation is Activation.GELU
  assert (absent.norm_eps, absent.pad_id) == (1e-12, 5)


def test_all_faults_are_told_at_once():
  with pytest.raises(DataError) as error:
    architecture_of({'model_type': 'bert', 'hidden_act': 'x'}, 'c')
  assert len(str(error.value).splitlines()) == 6
