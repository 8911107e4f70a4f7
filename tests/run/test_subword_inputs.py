"""Documents as an encoder's tokenizer cuts them, packed or not."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from xjax.core.mesh_config import Share
from xjax.core.types import PAD
from xjax.data.config import SubwordsConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.text.subwords import Subwords
from xjax.models.config import Config
from xjax.train.batches.inputs import Inputs
from xjax.train.neural_train import NeuralTrain

T, DEVICES = 512, 4


@pytest.fixture(scope='module')
def corpus():
  return load_corpus(SyntheticData(n_train=40, n_dev=24, n_test=0), 0)


@pytest.fixture(scope='module')
def tokenizer(corpus) -> Subwords:
  documents = corpus.split('train').documents
  return Subwords.fit(documents[row].text() for row in range(40))


def inputs_of(
  tokenizer, packed: bool, accumulate: int = 1, devices: int = DEVICES
) -> Inputs:
  tokens = SubwordsConfig(max_tokens=T, buckets=(8, T), packed=packed)
  train = NeuralTrain(batch_size=16, accumulate=accumulate)
  config = Config(data=SyntheticData(tokens=tokens), train=train)
  config.eval = dataclasses.replace(config.eval, batch_size=16)
  return Inputs(config, tokenizer, Share(tuple(range(devices)), devices))


def by_document(batches, devices: int = DEVICES) -> dict[int, list[int]]:
  """The ids of each document, from wherever its batch says that they are."""
  found = {}
  for batch in batches:
    share = len(batch.doc_B) // devices
    for at, document in enumerate(batch.doc_B):
      if document == PAD:
        continue
      if batch.first_B is None:
        ids = batch.tokens_BT[at]
      else:
        rows = np.split(batch.tokens_BT, devices)[at // share]
        ids = rows.ravel()[batch.first_B[at] :]
      assert document not in found
      found[int(document)] = ids[: batch.lengths_B[at]].tolist()
  return found


@pytest.mark.parametrize('packed', [False, True])
def test_batches_have_what_the_tokenizer_gives(corpus, tokenizer, packed):
  inputs = inputs_of(tokenizer, packed)
  assert inputs.vocab_size == len(tokenizer)
  for name in ('train', 'dev'):
    split = corpus.split(name)
    texts = [split.documents[row].text() for row in range(len(split))]
    expected = {
      row: tokenizer.encode(text, T).tolist() for row, text in enumerate(texts)
    }
    assert by_document(inputs.split_batches(split)) == expected
    for devices in (1, 2):
      other = inputs_of(tokenizer, packed, devices=devices)
      predicted = other.text_batches(texts)
      assert by_document(predicted, devices) == expected
  few = list(inputs_of(tokenizer, packed, devices=1).text_batches(['nipa', '']))
  assert by_document(few, 1)[1] == [*tokenizer.before, *tokenizer.after]
  assert len(few[0].doc_B) == 2


@pytest.mark.parametrize('accumulate', [1, 2])
def test_training_has_the_same_documents_packed(corpus, tokenizer, accumulate):
  split = corpus.split('train')
  plain, packed = (
    inputs_of(tokenizer, packed, accumulate).train_batches(split, 200)
    for packed in (False, True)
  )
  seen = [packed[i] for i in range(packed.steps_per_epoch)]
  documents = np.concatenate([batch.doc_B for batch in seen])
  assert sorted(documents[documents != PAD]) == list(range(40))
  assert sum(len(b.tokens_BT) for b in seen) < len(documents)
  assert {b.tokens_BT.shape[1] for b in seen} == {T}
  # Lengths decide which documents share a batch only where there are buckets.
  assert plain.steps_per_epoch >= packed.steps_per_epoch == 3
  jax.tree.map(
    np.testing.assert_array_equal,
    seen[0],
    inputs_of(tokenizer, True, accumulate).train_batches(split, 200)[0],
  )


@pytest.mark.parametrize('packed', [False, True])
def test_padding_is_the_tokenizers(corpus, tokenizer, packed):
  settings = json.loads(tokenizer.text)
  settings['padding']['pad_token'] = '[MASK]'
  other = Subwords(settings, 'here')
  assert other.pad_id == 4
  split = corpus.split('dev')
  ids = np.concatenate(
    [
      batch.tokens_BT.ravel()
      for batch in inputs_of(other, packed).split_batches(split)
    ]
  )
  assert (ids == 4).any() and not (ids == tokenizer.pad_id).any()
