"""Sound bytes with pieces put in, files of arrays with faults, a small BERT."""

import io

from hypothesis import strategies as st
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


def pieces(some: bytes) -> st.SearchStrategy[bytes]:
  """Draws one of the pieces between bars, or a few random bytes."""
  return st.one_of(st.sampled_from(some.split(b'|')), st.binary(max_size=3))


@st.composite
def damaged(
  draw,
  sound: bytes | st.SearchStrategy[bytes],
  piece: st.SearchStrategy[bytes],
  least: int = 0,
  most: int = 2,
  cut: int = 4,
) -> bytes:
  """Draws sound bytes in which pieces replace some bytes, `cut` at most."""
  data = sound if isinstance(sound, bytes) else draw(sound)
  for _ in range(draw(st.integers(least, most))):
    at = draw(st.integers(0, len(data)))
    end = at + draw(st.integers(0, cut))
    data = data[:at] + draw(piece) + data[end:]
  return data


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
