"""Runs of HBGL: killed, resumed, loaded, planned and continued elsewhere."""

import dataclasses

from flax import nnx
import numpy as np
import pytest

from tests.fixtures.encoders import write_encoder
from tests.fixtures.kills import assert_same_dev, kill
from tests.fixtures.shrink import shrink
from tests.run.small_runs import assert_predicts_what_was_judged
from xjax.configs import quickstart
from xjax.core.errors import ConfigError, Preempted
from xjax.core.types import PAD
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import load_corpus
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.heads.generation.emitting import Ranking
from xjax.networks.heads.generation.pretraining import (
  LabelPretraining,
  label_levels,
)
from xjax.plan.sizes import corpus_sizes
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params
from xjax.train.initial import label_vectors
from xjax.train.parameters import by_path
from xjax.train.saved_steps import complete_steps
from xjax.train.workdir import Workdir

pytestmark = pytest.mark.thorough


def config_with(steps=4, init_from='', **head):
  """A config whose labels are in several segments, with dropout."""
  small = shrink(quickstart.get_config('hbgl'))
  pretraining = LabelPretraining(steps=2, batch=2, segment=6)
  fields = {'pretraining': pretraining, 'ranking': Ranking.EMITTED, 'chunk': 8}
  head = dataclasses.replace(small.model.head, **fields | head)
  when = {'steps': steps, 'checkpoint_every': 2, 'judge_every': 2}
  more = {'best_metric': 'all/micro-F1', 'init_from': init_from}
  train = dataclasses.replace(small.train, **when, **more)
  encoder = BertConfig(dropout=0.1, attention_dropout=0.1)
  model = dataclasses.replace(small.model, encoder=encoder, head=head)
  return dataclasses.replace(small, model=model, train=train)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  return fit(config_with(), tmp_path_factory.mktemp('hbgl') / 'run')


def params_of(run, step=4):
  return read_params(Workdir.at(run.workdir).checkpoints, step)


def assert_same(run, other):
  ours, theirs = params_of(run), params_of(other)
  for name in theirs:
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
  assert_same_dev(run, other)


def test_a_run_that_is_killed_while_labels_are_trained_begins_again(
  finished, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch, pytest.raises(Preempted):
    kill(patch, label_vectors, 'make_segment', which=1)
    fit(config_with(), tmp_path)
  assert complete_steps(Workdir.at(tmp_path).checkpoints) == []
  with monkeypatch.context() as patch:
    # It ends at step 2, and goes on from there.
    fit(config_with(steps=2), tmp_path)
    patch.setattr(label_vectors, 'pretrain', None)  # not a second time
    assert_same(fit(config_with(), tmp_path), finished)


def test_a_loaded_run_predicts_what_was_judged(finished):
  assert_predicts_what_was_judged(finished)


def test_levels_are_saved_in_the_order_of_labels(finished):
  space = Workdir.at(finished.workdir).label_space()
  expected = label_levels(Hierarchy.of_space(space, space.n_trained))
  level = params_of(finished)['head/level']
  np.testing.assert_array_equal(level[: space.n_trained], expected)
  assert (level[space.n_trained :] == PAD).all()
  assert len(set(expected)) > 1


def test_labels_that_another_run_lacks_are_trained_on_its_encoder(
  finished, tmp_path, monkeypatch
):
  config = config_with(steps=1, init_from=str(finished.workdir))
  more = config.data.n_labels + 4
  config.data = dataclasses.replace(config.data, n_labels=more)
  start = {}

  def pretrain(table, nodes, *, modules, **_):
    start.update(by_path(nnx.split(modules[0])[1]), table=table)
    return table + 1

  monkeypatch.setattr(label_vectors, 'pretrain', pretrain)
  run = fit(config, tmp_path)
  ours, theirs = params_of(run, 0), params_of(finished, finished.best_step)
  table = start.pop('table')
  for name, x in start.items():
    if name != 'embeddings/word':  # its rows are in another order
      np.testing.assert_array_equal(x, theirs[f'encoder/{name}'], err_msg=name)
  ids, known = (
    Workdir.at(x.workdir).label_space().ids for x in (run, finished)
  )
  rows = known.row_of.find(ids)
  assert {*rows} > {PAD}
  kernel, source = ours['head/kernel'][: len(ids)], theirs['head/kernel']
  is_new, table = rows == PAD, table[: len(ids)]
  np.testing.assert_array_equal(kernel[~is_new], source[rows[~is_new]])
  np.testing.assert_array_equal(table[~is_new], source[rows[~is_new]])
  np.testing.assert_array_equal(kernel[is_new], table[is_new] + 1)
  assert not ours['head/kernel'][len(ids) :].any()


def test_a_taxonomy_with_too_many_levels_is_refused(tmp_path):
  config, says = config_with(max_levels=1), 'head.max_levels=1: the labels'
  with pytest.raises(ConfigError, match=says):
    fit(config, tmp_path)
  with pytest.raises(ConfigError, match=says):
    corpus_sizes(config, load_corpus(config.data, config.seed))


def test_an_encoder_without_positions_for_the_levels_is_refused(tmp_path):
  write_encoder(tmp_path / 'model', pooler=False)  # 20 positions
  config = config_with(max_levels=4)
  config.model.encoder.folder = str(tmp_path / 'model')
  with pytest.raises(ConfigError, match='20 tokens, including 5 vectors'):
    fit(config, tmp_path / 'run')
