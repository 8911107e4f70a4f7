"""Runs in which several models propose labels and a ranker judges them."""

import dataclasses
import logging
import shutil
import sys

import numpy as np
import pytest

from tests.fixtures.kinds import small
from tests.fixtures.sparse_runs import HELD_OUT, RUNS, config_of
from tests.fixtures.vector_files import write_corpus
from xjax.core.errors import ConfigError, DataError, UserError
from xjax.core.ranking import Query
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.formats.jsonl import JsonlData
from xjax.data.tokens_config import TfidfConfig
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.linear.listed import ListedLinear
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import (
  ProposerConfig,
  names_proposer,
  neighbours_proposer,
  prototypes_proposer,
  vector_proposers,
)
from xjax.models.stack.ranker import ListedRanker
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.networks.pretrained.text_encoder import TextEncoder
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.workdir import Workdir

pytestmark = pytest.mark.lightgbm
TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
RANKER = BoostedTrees(trees=60, leaves=7, rate=0.2, least_pairs=5)


def stack_of(*proposers, **options):
  """The config of a stack; the proposers are a tree and names by default."""
  config = small(config_of(*RUNS['xr']))
  tree = ProposerConfig(
    config.data.tokens, (), config.model, config.train, name='tree', depth=20
  )
  proposers = proposers or (tree, names_proposer(depth=10))
  usual = {'ranker': RANKER, 'folds': 3, 'hidden': 0.1}
  model = StackModel((*proposers,), **usual | options)
  return dataclasses.replace(config, model=model, train=StackTrain())


def everything():
  """The config of a stack of all kinds of proposers without a neural part."""
  near = neighbours_proposer(depth=10)
  near.model.dated = True
  linear = ListedLinear(('neighbours', 'tree'))
  return stack_of(*stack_of().model.proposers, near, linear=linear)


def test_the_stack_is_better_than_what_it_learns_from(stacked):
  ours = stacked.metrics['dev']['xjax']['all']['P@1']
  split, stack = stacked.corpus.split('dev'), open_run(stacked.workdir)
  gold = [set(split.gold[row].tolist()) for row in range(len(split))]
  for name in ('tree', 'neighbours'):
    lists = stack.scorer.stages[name].rank(Documents(split.documents), Query(1))
    ids_NK = lists.ids_GNK[0]
    hits = [row[0] in labels for row, labels in zip(ids_NK.tolist(), gold)]
    assert np.mean(hits) <= ours
  dev = Predictions.load(stacked.paths['dev'] / 'predictions.npz')
  assert dev.selected_by == 'proposers=3'
  size = stack.scorer.union_size
  assert 0.5 < dev.recalls['all'][f'union recall@{size}'] <= 1
  # Labels without training documents are ranked too.
  assert stacked.metrics['dev']['xjax']['held_out']['RP@5'] > 0.5
  held_out = stacked.corpus.label_space.held_out
  assert len(held_out) == HELD_OUT
  assert np.isin(held_out, dev.lists['all'].ids).any()


def test_without_lightgbm_nothing_is_trained_or_opened(
  stacked, tmp_path, monkeypatch
):
  monkeypatch.setitem(sys.modules, 'lightgbm', None)
  for work in (
    lambda: fit(everything(), tmp_path / 'run'),
    lambda: open_run(stacked.workdir),
  ):
    with pytest.raises(UserError, match=r'needs lightgbm: pip install l\w+$'):
      work()
  assert not (tmp_path / 'run' / 'stages').exists()


def test_only_what_prediction_needs_stays(stacked):
  names = {path.name for path in (stacked.workdir / 'stages').iterdir()}
  assert names == {'tree', 'names', 'neighbours'}
  # In folds, only names list labels that are not trained.
  empty = {}
  for path in (stacked.workdir / 'model').glob('fold_0_*.npz'):
    with np.load(path) as file:
      if 'ids' in file:  # not the scores of linear classifiers
        name = path.stem.removeprefix('fold_0_')
        empty[name] = (file['ids'][1] == PAD).all()
  assert empty == {'tree': True, 'neighbours': True, 'names': False}


def test_shares_of_features_add_up_to_the_score(stacked):
  model = dataclasses.replace(open_run(stacked.workdir), calibration=None)
  lists = model.lists(TEXTS, 4)
  for row, labels in enumerate(model.explain(TEXTS, k=4)):
    for score, label in zip(lists.scores[row], labels):
      total = sum(part.weight for part in label.features)
      np.testing.assert_allclose(total, score, rtol=1e-4, atol=1e-4)
      assert {part.name for part in label.features} >= {'base'}
      values = {part.name: part.value for part in label.features}
      known = [x for x in values.values() if x is not None]
      assert len(known) < len(values) and min(known) > -1e9
      ranks = [values.get(f'{name}:rank') for name in model.scorer.stages]
      assert all(x is None or x >= 1 for x in ranks)
      assert all(word.word in TEXTS[row] for word in label.why)
  assert model.explain(TEXTS[:1], k=2)[0][0].why


def test_classifiers_of_listed_labels_rank_alone(tmp_path):
  tree = stack_of().model.proposers[0]
  config = stack_of(tree, linear=ListedLinear(('tree',)), ranker=ListedRanker())
  result = fit(config, tmp_path / 'run')
  assert result.metrics['dev']['xjax']['all']['RP@5'] > 0.5
  scorer, split = open_run(result.workdir).scorer, result.corpus.split('dev')
  assert scorer.score_kind is ScoreKind.MARGIN
  documents = Documents(list(split.documents))
  pairs = scorer.pairs.of(documents)
  known = pairs.features[:, scorer.pairs.names.index('listed:score')]
  lists = scorer.rank(documents, Query(5))
  for row, (ids, scores) in enumerate(
    zip(lists.ids_GNK[0], lists.scores_GNK[0], strict=True)
  ):
    own = pairs.keys // scorer.n_labels == row
    np.testing.assert_array_equal(scores, -np.sort(-known[own])[:5])
    assert len({*ids.tolist()}) == 5
  shares = scorer.explain(documents, lists.ids_GNK[0], 3).shares
  total = shares.weights_NKF.sum(axis=2)
  np.testing.assert_allclose(total, lists.scores_GNK[0], rtol=1e-5)
  wrong = stack_of(tree, ranker=ListedRanker())
  with pytest.raises(ConfigError, match='ListedRanker needs linear.reads'):
    check_config(wrong)


def test_optional_proposers_are_left_out(tmp_path, caplog):
  caplog.set_level(logging.INFO, logger='absl')
  model = PrototypesModel(descriptions=True, centroids=False)
  described = prototypes_proposer('described', model, optional=True)
  fit(stack_of(stack_of().model.proposers[0], described), tmp_path / 'run')
  reason = 'the proposer described is left out: no label has a description'
  assert caplog.text.count(reason) == 1
  model = open_run(tmp_path / 'run')
  assert set(model.scorer.stages) == {'tree'}
  assert len(model.predict(TEXTS, k=3)) == 3


def test_a_stage_is_neither_changed_nor_missing(stacked, tmp_path):
  run = shutil.copytree(stacked.workdir, tmp_path / 'run')
  config = everything()
  config.model.proposers[0].model.beam = 3
  with pytest.raises(ConfigError, match='proposers'):
    fit(config, run)
  shutil.rmtree(run / 'stages' / 'tree')
  with pytest.raises(DataError, match='stages/tree'):
    open_run(run)


def test_the_folder_of_an_encoder_is_asked_for_once(tmp_path):
  folder = write_corpus(tmp_path)
  data = JsonlData(str(folder), tokens=TfidfConfig(), labels='all')
  config = dataclasses.replace(stack_of(*vector_proposers()), data=data)
  check_config(config)
  with pytest.raises(ConfigError) as error:
    fit(config, tmp_path / 'run')
  assert str(error.value).count('\n') == 0
  assert "config.model.encoder='': give a pretrained" in str(error.value)
  config.model.encoder = 'minilm'
  check_config(config)
  for proposer in config.model.proposers:
    assert proposer.run_config(config).data.tokens.folder == 'minilm'


def test_too_many_folds_are_refused(tmp_path):
  config = stack_of(folds=400)
  with pytest.raises(ConfigError, match='folds=400: must be at most 75'):
    fit(config, tmp_path / 'run')
  assert not Workdir.at(tmp_path / 'run').config.exists()


@pytest.mark.thorough
def test_members_of_a_stack_encode_a_text_once(tmp_path, monkeypatch):
  proposers = [
    dataclasses.replace(x, depth=10, batch_size=32)
    for x in vector_proposers(max_tokens=16)
  ]
  read, vectors = [], TextEncoder.vectors

  def counting(self, texts):
    read.extend(texts)
    return vectors(self, texts)

  monkeypatch.setattr(TextEncoder, 'vectors', counting)
  config = stack_of(*proposers, folds=2)
  config.data = dataclasses.replace(config.data, n_train=60, n_dev=12)
  result = fit(config, tmp_path / 'run')
  for name in ('train', 'dev'):
    documents = result.corpus.split(name).documents
    texts = [document.text() for document in documents]
    assert all(read.count(text) == texts.count(text) for text in texts)
  # They have the same encoder.
  folder = result.workdir / 'stages'
  paths = sorted(folder.glob('*/features/text_vectors.npz'))
  assert len(paths) == 3 and len({path.read_bytes() for path in paths}) == 1
  (labels,) = open_run(result.workdir).explain([texts[0]], 2)
  assert all(label.features and not label.why for label in labels)
