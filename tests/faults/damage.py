"""Files of arrays with faults, and a small BERT."""

import io

import numpy as np
from scipy import sparse

from tests.fixtures.encoders import random_params
from xjax.networks.pretrained.architecture import architecture_of
from xjax.networks.pretrained.convert import to_hugging_face

BERT = {
  'model_type': 'bert',
  'vocab_size': 11,
  'hidden_size': 4,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'intermediate_size': 6,
  'max_position_embeddings': 5,
}


def bert_tensors() -> dict[str, np.ndarray]:
  """Weights of the small BERT at random, as Hugging Face names them."""
  architecture = architecture_of(BERT, 'config.json')
  params = random_params(architecture, pooler=False)
  return to_hugging_face(params, architecture)


def npz(**arrays) -> bytes:
  file = io.BytesIO()
  np.savez(file, allow_pickle=True, **arrays)
  return file.getvalue()


def matrix(kind: str = 'csr', **changed) -> bytes:
  """A matrix of scores as scipy saves it, with other arrays."""
  file = io.BytesIO()
  found = sparse.csr_array(([0.5, 0.25, 1], [0, 2, 3], [0, 2, 2, 3]), (3, 4))
  sparse.save_npz(file, found.asformat(kind), compressed=False)
  with np.load(io.BytesIO(file.getvalue())) as loaded:
    return npz(**{**loaded, **changed})
