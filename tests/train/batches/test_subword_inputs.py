"""Documents as an encoder's tokenizer cuts them."""

import json

import numpy as np
import pytest

from xjax.core.mesh_config import Share
from xjax.core.types import PAD
from xjax.data.config import SubwordsConfig
from xjax.data.documents import Documents
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.text.subwords import Subwords
from xjax.train.batches.inputs import TokenReader

T = 512


@pytest.fixture(scope='module')
def corpus():
  return load_corpus(SyntheticData(n_train=40, n_dev=24, n_test=0), 0)


@pytest.fixture(scope='module')
def tokenizer(corpus) -> Subwords:
  documents = corpus.split('train').documents
  return Subwords.fit(documents[row].text() for row in range(40))


def reader_of(tokenizer, devices: int = 4) -> TokenReader:
  tokens = SubwordsConfig(max_tokens=T, buckets=(8, T))
  share = Share(tuple(range(devices)), devices)
  return TokenReader(SyntheticData(tokens=tokens), tokenizer, 0, 16, share)


def by_document(batches) -> dict[int, list[int]]:
  found = {}
  for batch in batches:
    for at, document in enumerate(batch.doc_B):
      if document == PAD:
        continue
      assert document not in found
      ids = batch.tokens_BT[at, : batch.lengths_B[at]]
      found[int(document)] = ids.tolist()
  return found


def test_batches_have_what_the_tokenizer_gives(corpus, tokenizer):
  reader = reader_of(tokenizer)
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
    for devices in (1, 2):
      other = reader_of(tokenizer, devices)
      predicted = other.batches(Documents(texts))
      assert by_document(predicted) == expected
  few = list(reader_of(tokenizer, 1).batches(Documents(['nipa', ''])))
  assert by_document(few)[1] == [*tokenizer.before, *tokenizer.after]
  assert len(few[0].doc_B) == 2


def test_padding_is_the_tokenizers(corpus, tokenizer):
  settings = json.loads(tokenizer.text)
  settings['padding']['pad_token'] = '[MASK]'
  other = Subwords(settings, 'here')
  assert other.pad_id == 4
  documents = Documents.of_split(corpus.split('dev'))
  batches = reader_of(other).batches(documents)
  ids = np.concatenate([batch.tokens_BT.ravel() for batch in batches])
  assert (ids == 4).any() and not (ids == tokenizer.pad_id).any()
