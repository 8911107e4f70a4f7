"""Tensors of XLNet: their names, their axes, and folders with faults."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from xjax.core.errors import DataError
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import (
  from_hugging_face,
  parameter_shapes,
  to_hugging_face,
)
from xjax.networks.pretrained.model_folder import (
  ModelFolder,
  write_model_folder,
)

D, HEADS, F, V = 6, 3, 10, 11
CONFIG = {
  'model_type': 'xlnet',
  'vocab_size': V,
  'd_model': D,
  'n_layer': 2,
  'n_head': HEADS,
  'd_inner': F,
}
TINY = architecture_of(CONFIG, 'c')
ATTENTION = 'encoder/layers/1/attention'


def params_of(pooler=False):
  rng = np.random.default_rng(0)
  return {
    path: rng.normal(size=shape).astype(np.float32)
    for path, shape in parameter_shapes(TINY, pooler).items()
  }


def test_names_and_axes_are_theirs():
  params = params_of(pooler=True)
  tensors = to_hugging_face(params, TINY, 'ours')
  assert len(tensors) == 1 + 2 * 17 + 2
  assert all(x.flags.c_contiguous for x in tensors.values())
  name, split = 'layer.1.rel_attn', (D, HEADS, D // HEADS)
  inputs = params[f'{ATTENTION}/inputs/kernel']
  for part, letter in enumerate('qkv'):
    kernel = inputs[:, part * D : (part + 1) * D].reshape(split)
    np.testing.assert_array_equal(tensors[f'{name}.{letter}'], kernel)
  output = params[f'{ATTENTION}/output/kernel']
  np.testing.assert_array_equal(tensors[f'{name}.o'], output.T.reshape(split))
  assert tensors[f'{name}.seg_embed'].shape == (2, *split[1:])
  assert tensors['layer.1.ff.layer_1.weight'].shape == (F, D)
  np.testing.assert_array_equal(
    tensors['sequence_summary.summary.weight'], params['pooling/dense/kernel'].T
  )


@pytest.mark.parametrize('pooler', [False, True])
@pytest.mark.parametrize('prefix', ['', 'transformer.'])
def test_back_and_forth_is_the_same(prefix, pooler):
  params = params_of(pooler)
  tensors = {
    prefix + name: x
    for name, x in to_hugging_face(params, TINY, 'ours').items()
  }
  # These do not change what is encoded.
  extra = ('transformer.mask_emb', 'lm_loss.weight', 'logits_proj.bias')
  tensors |= dict.fromkeys(extra, np.zeros(3, np.float32))
  again = from_hugging_face(tensors, TINY, 'm')
  assert again.keys() == params.keys()
  for path, values in params.items():
    np.testing.assert_array_equal(again[path], values, err_msg=path)


def without_segments(tensors):
  del tensors['layer.0.rel_attn.seg_embed']


def with_flat_heads(tensors):
  tensors['layer.1.rel_attn.o'] = np.zeros((D, D), np.float32)


def with_memory(tensors):
  tensors['layer.0.memory'] = np.zeros(D, np.float32)


def with_nan(tensors):
  tensors['layer.0.rel_attn.r_r_bias'][0, 0] = np.nan


@pytest.mark.parametrize(
  ('damage', 'said'),
  [
    (without_segments, 'missing: layer.0.rel_attn.seg_embed'),
    (with_flat_heads, r'layer.1.rel_attn.o is \[6, 6\], not \[6, 3, 2\]'),
    (with_memory, 'unexpected: layer.0.memory'),
    (with_nan, 'not finite .* in: layer.0.rel_attn.r_r_bias'),
  ],
)
def test_damaged_folders(damage, said, tmp_path):
  write_model_folder(tmp_path / 'm', CONFIG, params_of())
  config = json.loads((tmp_path / 'm' / 'config.json').read_text())
  assert config['architectures'] == ['XLNetModel']
  weights = tmp_path / 'm' / 'model.safetensors'
  tensors = load_file(weights)
  damage(tensors)
  save_file(tensors, weights)
  with pytest.raises(DataError, match=said):
    ModelFolder.at(str(tmp_path / 'm')).parameters()
