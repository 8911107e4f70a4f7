"""Runs in which several models propose labels and a ranker judges them."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.fixtures.sparse_runs import HELD_OUT, RUNS, config_of
from tests.fixtures.vector_files import write_corpus
from xjax.core.errors import ConfigError, DataError
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.config import TfidfConfig
from xjax.data.documents import Documents
from xjax.data.formats.jsonl import JsonlData
from xjax.judge.predictions import Predictions
from xjax.models.config_check import check_config
from xjax.models.lookup.names import NamesModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import (
  ProposerConfig,
  names_proposer,
  neighbours_proposer,
  vector_proposers,
)
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.run.predict_file import predict_file
from xjax.train.workdir import Workdir

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']
RANKER = BoostedTrees(trees=60, leaves=7, rate=0.2, least_pairs=5)


def stack_of(*proposers, **options):
  """The config of a stack; the proposers are a tree and names by default."""
  config = config_of(*RUNS['xr'])
  tree = ProposerConfig(
    config.data.tokens, (), config.model, config.train, name='tree', depth=20
  )
  proposers = proposers or (tree, names_proposer(depth=10))
  usual = {'ranker': RANKER, 'folds': 3, 'hidden': 0.1}
  model = StackModel((*proposers,), **usual | options)
  return dataclasses.replace(config, model=model, train=StackTrain())


def everything():
  """The config of a stack of all kinds of proposers without a neural part."""
  return stack_of(*stack_of().model.proposers, neighbours_proposer(depth=10))


def test_in_folds_only_names_list_labels_that_are_not_trained(stacked):
  empty = {}
  for path in (stacked.workdir / 'model').glob('fold_0_*.npz'):
    with np.load(path) as file:
      empty[path.stem.removeprefix('fold_0_')] = (file['ids'][1] == PAD).all()
  assert empty == {'tree': True, 'neighbours': True, 'names': False}


def dev_of(result):
  return Predictions.load(result.paths['dev'] / 'predictions.npz')


def test_the_stack_is_better_than_what_it_learns_from(stacked):
  ours = stacked.metrics['dev']['xjax']['all']['P@1']
  split, stack = stacked.corpus.split('dev'), open_run(stacked.workdir)
  gold = [set(split.gold[row].tolist()) for row in range(len(split))]
  for name in ('tree', 'neighbours'):
    lists = stack.scorer.stages[name].rank(Documents(split.documents), Query(1))
    ids_NK = lists.ids_GNK[0]
    hits = [row[0] in labels for row, labels in zip(ids_NK.tolist(), gold)]
    assert np.mean(hits) <= ours
  dev = dev_of(stacked)
  assert dev.selected_by == 'proposers=3'
  size = stack.scorer.union_size
  assert 0.5 < dev.recalls['all'][f'union recall@{size}'] <= 1


def test_names_always_propose_labels_without_training_documents(stacked):
  stack = open_run(stacked.workdir)
  unseen = {*np.flatnonzero(stack.space.train_counts == 0)}
  names = stack.space.labels.names
  seen = [names[x][0] for x in range(len(names)) if x not in unseen]
  text = ' '.join(seen * 9 + [names[x][0] for x in unseen])
  documents = Documents([text])
  lists = stack.scorer.stages['names'].rank(documents, Query(10))
  assert not unseen & {*lists.ids_GNK[0, 0]}
  assert len(unseen & {*stack.scorer.pairs.of(documents).keys}) == 10


def test_labels_without_training_documents_are_ranked(stacked):
  metrics = stacked.metrics['dev']['xjax']
  assert metrics['held_out']['RP@5'] > 0.5
  dev = dev_of(stacked)
  space = stacked.corpus.label_space
  assert len(space.held_out) == HELD_OUT
  assert np.isin(space.held_out, dev.lists['all'].ids).any()


def test_only_what_prediction_needs_stays(stacked):
  names = {path.name for path in (stacked.workdir / 'stages').iterdir()}
  assert names == {'tree', 'names', 'neighbours'}


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


def test_explanations_are_written(stacked, tmp_path):
  source, output = tmp_path / 'in.jsonl', tmp_path / 'out.jsonl'
  source.write_text('{"text": "Puma sa funu mesi teba malu"}\n')
  shown = predict_file(stacked.workdir, str(source), str(output), 3, explain=4)
  assert not shown.attends  # a page says that words have weights
  (line,) = output.read_text().splitlines()
  for label in json.loads(line)['labels']:
    assert len(label['features']) == 4
    assert (
      {'base'}
      < set(label['shares'])
      <= {*('tree', 'names', 'neighbours', 'label', 'proposers', 'base')}
    )


def test_optional_proposers_are_left_out(tmp_path, monkeypatch):
  names = names_proposer(optional=True)
  config = stack_of(stack_of().model.proposers[0], names)

  def no_names(self, corpus, run):
    raise DataError('no label has a name')

  with monkeypatch.context() as patch:
    patch.setattr(NamesModel, 'check', no_names)
    fit(config, tmp_path / 'run')
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
  with pytest.raises(ConfigError, match='folds=400: must be at most 250'):
    fit(config, tmp_path / 'run')
  assert not Workdir.at(tmp_path / 'run').config.exists()
