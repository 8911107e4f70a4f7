"""Tests how a run reads documents whose zones are kept apart."""

import dataclasses

import numpy as np
import pytest

from tests.fixtures.shrink import shrink
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.load import load_corpus
from xjax.data.schema import Document
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.han import HANConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.train.batches.inputs import TokenReader, fit_vocabulary

HAN = NeuralModel(
  encoder=HANConfig(), pooling=SelfAttentionConfig(), head=OneVsAllConfig()
)


def config_of(zones=()) -> Config:
  config = shrink(Config(model=HAN))
  tokens = dataclasses.replace(config.data.tokens, by_zone=True)
  data = dataclasses.replace(config.data, tokens=tokens, zones=zones)
  return dataclasses.replace(config, data=data)


@pytest.fixture(scope='module')
def read():
  """Returns the reader and a split of the whole corpus and of one zone."""

  def one(zones):
    config = config_of(zones)
    corpus = load_corpus(config.data, config.seed)
    vocab = fit_vocabulary(corpus.split('train'), config.data)
    reader = TokenReader(config.data, vocab, 0, config.eval.batch_size)
    return reader, corpus.split('dev')

  return {zones: one(zones) for zones in ((), ('body',))}


def by_document(batches):
  """Returns the ids of each document's zones."""
  found = {}
  for batch in batches:
    for row, document in enumerate(batch.doc_B):
      if document != PAD:
        found[int(document)] = [
          ids[:n].tolist()
          for ids, n in zip(batch.tokens_BT[row], batch.lengths_B[row])
          if n
        ]
  return [found[document] for document in range(len(found))]


def test_each_zone_has_its_first_words(read):
  reader, split = read[()]
  assert isinstance(reader.data, SyntheticData)
  expected = [
    [reader.vocab.encode(text, 16).tolist() for text in d.zones.values()]
    for d in split.documents
  ]
  documents = Documents.of_split(split)
  assert by_document(reader.batches(documents)) == expected
  assert {len(zones) for zones in expected} == {2}
  n = len(split)
  train = reader.train_batches(split, n, batch_size=16, seed=0)[0]
  assert train.tokens_BT.ndim == 3 and train.lengths_B.ndim == 2


@pytest.mark.parametrize('zones', [(), ('body',)])
def test_prediction_reads_as_judging(read, zones):
  reader, split = read[zones]
  whole = load_corpus(config_of().data, 0).split('dev').documents
  predicted = by_document(reader.batches(Documents(list(whole))))
  judged = reader.batches(Documents.of_split(split))
  assert predicted == by_document(judged)
  assert {len(zones_) for zones_ in predicted} == {len(zones) or 2}


def test_texts_and_more_zones_than_in_training(read):
  reader, _ = read[()]
  index = reader.vocab.index
  words = [word for word in index if word.islower()]  # not DDDD
  many = Document('x', {str(i): word for i, word in enumerate(words[:9])})
  empty = Document('y', {'title': '...', 'body': words[0]})
  documents = Documents([words[3], many, empty])
  found = by_document(reader.batches(documents))
  expected = [[words[3]], words[:9], [words[0]]]
  assert found == [[[index[word]] for word in zones] for zones in expected]


def test_every_zones_first_words_are_in_the_vocabulary():
  config = config_of()
  split = load_corpus(config.data, config.seed).split('train')
  vocab = fit_vocabulary(split, config.data)
  flat = dataclasses.replace(config.data.tokens, by_zone=False)
  fewer = fit_vocabulary(split, dataclasses.replace(config.data, tokens=flat))
  # Without zones, only the first 16 words of a document are read, and the
  # title comes before the body.
  assert np.setdiff1d(vocab.words, fewer.words).size
