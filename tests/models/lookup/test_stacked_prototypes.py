"""Stacks of models that read the vectors of one encoder."""

import dataclasses

import pytest

from tests.fixtures.sparse_runs import config_of
from xjax.data.config import TextVectorsConfig
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import ProposerConfig
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.networks.pretrained.text_encoder import TextEncoder
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.train_config import NoTrain

TOKENS = TextVectorsConfig(max_tokens=16)


def proposer(name, model):
  parts = TOKENS, (), model, NoTrain(), 32
  return ProposerConfig(*parts, name=name, depth=10)


def split_texts(corpus, name):
  return [document.text() for document in corpus.split(name).documents]


@pytest.fixture(scope='module')
def stacked(tmp_path_factory):
  """A stack over vectors, and how many texts its encoder has read."""
  model = StackModel(
    (
      proposer('names', PrototypesModel(centroids=False)),
      proposer('prototypes', PrototypesModel()),
      proposer('neighbours', NeighboursModel(neighbours=7)),
    ),
    ranker=BoostedTrees(trees=20, leaves=7, rate=0.2, least_pairs=5),
    folds=3,
    hidden=0.1,
  )
  config = config_of(model, StackTrain())
  sizes = {'n_train': 200, 'n_dev': 40, 'tokens': TOKENS}
  config.data = dataclasses.replace(config.data, **sizes)
  read, vectors = [], TextEncoder.vectors

  def counting(self, texts):
    read.extend(texts)
    return vectors(self, texts)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(TextEncoder, 'vectors', counting)
    result = fit(config, tmp_path_factory.mktemp('stacked') / 'run')
  return result, read


def test_members_of_a_stack_encode_a_text_once(stacked):
  result, read = stacked
  train = split_texts(result.corpus, 'train')
  counts = {text: read.count(text) for text in train}
  assert counts == {text: train.count(text) for text in train}
  for text in split_texts(result.corpus, 'dev'):
    assert read.count(text) == 1


def test_members_of_a_stack_have_the_same_encoder(stacked):
  folder = stacked[0].workdir / 'stages'
  paths = sorted(folder.glob('*/features/text_vectors.npz'))
  stages = [path.parts[-3] for path in paths]
  assert stages == ['names', 'neighbours', 'prototypes']
  assert len({path.read_bytes() for path in paths}) == 1


def test_a_stack_of_prototypes_predicts(stacked):
  result, _ = stacked
  prior = result.prior['dev']['xjax']['all']['P@1']
  assert result.metrics['dev']['xjax']['all']['P@1'] > prior
  predictor, texts = open_run(result.workdir), split_texts(result.corpus, 'dev')
  (labels,) = predictor.explain(texts[:1], 2)
  assert all(label.features and not label.why for label in labels)
