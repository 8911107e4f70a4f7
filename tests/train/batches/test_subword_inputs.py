"""Documents as an encoder's tokenizer cuts them, packed or not."""

import json

import numpy as np
import pytest

from xjax.core.mesh_config import ProcessShare
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.text.subwords import Subwords
from xjax.data.tokens_config import SubwordsConfig
from xjax.train.batches.inputs import TokenReader

T, DEVICES = 512, 4


@pytest.fixture(scope='module')
def corpus():
  return load_corpus(SyntheticData(n_train=40, n_dev=24, n_test=0), 0)


@pytest.fixture(scope='module')
def tokenizer(corpus) -> Subwords:
  documents = corpus.split('train').documents
  return Subwords.fit(documents[row].text() for row in range(40))


def reader_of(tokenizer, packed: bool, devices: int = DEVICES) -> TokenReader:
  tokens = SubwordsConfig(max_tokens=T, buckets=(8, T), packed=packed)
  share = ProcessShare(tuple(range(devices)), devices)
  return TokenReader(SyntheticData(tokens=tokens), tokenizer, 0, 16, share)


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
  reader = reader_of(tokenizer, packed)
  assert reader.vocab_size == len(tokenizer)
  for name in ('train', 'dev'):
    split = corpus.split(name)
    texts = [split.documents[row].text() for row in range(len(split))]
    expected = {
      row: tokenizer.encode(text, T).tolist() for row, text in enumerate(texts)
    }
    batches = reader.batches(Documents.of_split(split))
    assert by_document(batches) == expected
    train = reader.train_batches(split, 200, batch_size=16, seed=0)
    epoch = [train[i] for i in range(train.steps_per_epoch)]
    assert by_document(epoch) == expected
    assert packed == (sum(len(x.tokens_BT) for x in epoch) < len(expected))
    for devices in (1, 2):
      other = reader_of(tokenizer, packed, devices)
      predicted = other.batches(Documents(texts))
      assert by_document(predicted, devices) == expected
  few = list(reader_of(tokenizer, packed, 1).batches(Documents(['nipa', ''])))
  assert by_document(few, 1)[1] == [*tokenizer.before, *tokenizer.after]
  assert len(few[0].doc_B) == 2


@pytest.mark.parametrize('packed', [False, True])
def test_padding_is_the_tokenizers(corpus, tokenizer, packed):
  settings = json.loads(tokenizer.text)
  settings['padding']['pad_token'] = '[MASK]'
  other = Subwords(settings, 'here')
  assert other.pad_id == 4
  documents = Documents.of_split(corpus.split('dev'))
  batches = reader_of(other, packed).batches(documents)
  ids = np.concatenate([batch.tokens_BT.ravel() for batch in batches])
  assert (ids == 4).any() and not (ids == tokenizer.pad_id).any()
