"""Runs of recipes, heads and rules of label rows: resumed, loaded, planned."""

import dataclasses
import functools
import logging

import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from tests.fixtures.networks import thorough
from tests.fixtures.shrink import shrink
from tests.run.small_runs import (
  arrays,
  assert_predicts_what_was_judged,
  assert_resumes,
  cascade,
  records,
  with_head,
)
from xjax.configs import arxiv, quickstart
from xjax.core.types import PAD, ScoreKind
from xjax.data.label_trees.label_tree import by_frequency
from xjax.data.label_trees.levels import LabelLevels
from xjax.data.text.words import split_words
from xjax.judge.calibration import Method
from xjax.judge.metrics.slices import cut_gold
from xjax.judge.predictions import Predictions
from xjax.losses.focal import FocalConfig
from xjax.losses.label_weights import PropensityWeights
from xjax.losses.sequence import SequenceLossConfig
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.rows.kahan import PLACE
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad, FusedSGD
from xjax.networks.views.hierarchy_views import NoViews
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import encoded_labels
from xjax.train.initial.warm_start import warm_start
from xjax.train.optimizer_config import EMAConfig
from xjax.train.parameters import VIEW_NAMES, by_path, from_paths
from xjax.train.workdir import Workdir

RECIPE = {
  'clip_outliers': 1.0,
  'rates': ('head/*=0.5',),
  'freeze': ('embedding/*',),
  'loss': FocalConfig(gamma=1.0),
  'label_weights': PropensityWeights(),
  'average': EMAConfig(decay=0.5, start=3),
}


def by_recipe(config, **fields):
  return with_head(config, OneVsAllConfig(chunk=8), **fields)


STEPS, EVERY = 96, 32
RULES = {
  Storage.FLOAT32: FusedSGD(learning_rate=0.5, weight_decay=1e-3),
  Storage.BFLOAT16: FusedSGD(learning_rate=0.5),
  Storage.COMPENSATED: FusedSGD(learning_rate=0.1, momentum=0.8),
  Storage.FLOAT8: FusedAdagrad(learning_rate=0.1),
}


def by_rows(config, storage, **fields):
  """With a model that compiles fast, and documents for frequent labels."""
  bottleneck = 6 if storage is Storage.FLOAT8 else 0
  head = OneVsAllConfig(chunk=8, storage=storage, bottleneck=bottleneck)
  when = {'steps': STEPS, 'judge_every': EVERY, 'checkpoint_every': EVERY}
  data = dataclasses.replace(config.data, n_train=160)
  config = dataclasses.replace(config, data=data)
  return with_head(config, head, rows=RULES[storage], **when | fields)


SIX_STEPS = {'steps': 6, 'checkpoint_every': 2, 'judge_every': 2}


def views():
  small = shrink(quickstart.get_config('hgclr'))
  data = dataclasses.replace(small.data, n_train=40, n_labels=30)
  small.model.views.segment = 6
  train = dataclasses.replace(small.train, learning_rate=0.01, **SIX_STEPS)
  return dataclasses.replace(small, data=data, train=train)


RADAR = RadarConfig(chunk=8, layers=1, heads=2, most_symbols=6)
CONFIGS = {
  'averaged': lambda config: by_recipe(config, **RECIPE),
  'adaptive': lambda config: with_head(
    config, AdaptiveConfig(chunk=8, cutoffs=(4, 9))
  ),
  'radar': lambda config: with_head(  # dropout matters in it
    *(config, RADAR, config.model.pooling),
    rates=('embedding/*=0.5',),
    loss=SequenceLossConfig(),
    **{'best_metric': 'all/micro-F1', **SIX_STEPS},
  ),
  'cascade': lambda _: cascade(),
  'views': lambda _: views(),
} | {
  storage.name: functools.partial(by_rows, storage=storage) for storage in RULES
}


@pytest.fixture
def runs(config, fit_once):
  """name -> what fit returned; workdirs must not be changed: copy them."""
  return lambda name: fit_once(f'recipe {name}', CONFIGS[name](config))


@pytest.mark.parametrize(
  ('name', 'kept'),
  [
    *(('averaged', 4), ('FLOAT8', EVERY)),
    thorough('COMPENSATED', EVERY),
    *(thorough(name, 4) for name in ('radar', 'cascade', 'views')),
  ],
)
def test_resuming_is_bitwise(config, runs, name, kept, tmp_path):
  assert_resumes(CONFIGS[name](config), runs(name), tmp_path, kept)


@pytest.mark.thorough
def test_a_loaded_run_predicts_what_was_judged(runs):
  assert_predicts_what_was_judged(runs('adaptive'))


def test_what_is_loaded_is_the_mean(runs):
  averaged = runs('averaged')
  rows = records(averaged.workdir)
  judged = {r['step']: r for r in rows if r['kind'] == 'judge'}
  assert 'raw_metrics' not in judged[3]
  assert judged[6]['metrics'] != judged[6]['raw_metrics']
  chosen = judged[averaged.best_step]['metrics']['all']
  assert averaged.metrics['dev']['xjax']['all']['nDCG@5'] == chosen['nDCG@5']
  saved = read_params(averaged.workdir / 'checkpoints', averaged.best_step)
  predictor = open_run(averaged.workdir)
  found = by_path(predictor.scorer.params)
  for name, param in saved.items():
    np.testing.assert_array_equal(found[name], param)


@pytest.mark.thorough
def test_margins_are_no_probabilities(config, tmp_path):
  run = fit(by_recipe(config, loss=SquaredHingeConfig()), tmp_path / 'run')
  saved = Predictions.load(run.paths['dev'] / 'predictions.npz')
  assert saved.score_kind is ScoreKind.MARGIN
  assert saved.assigned_above == 0.0
  assert run.metrics['dev']['xjax']['all']['micro-F1'] is not None
  assert run.calibration.score_kind is ScoreKind.MARGIN
  assert run.calibration.method in (Method.PLATT, Method.NONE)
  predictor = open_run(run.workdir)
  assert predictor.score_kind is ScoreKind.MARGIN


def test_places_are_saved_and_stay(runs):
  adaptive_run = runs('adaptive')
  workdir = Workdir.at(adaptive_run.workdir)
  params = read_params(workdir.checkpoints, adaptive_run.best_step)
  space = workdir.label_space()
  n = space.n_trained
  wanted = np.argsort(by_frequency(space.train_counts[:n]))
  np.testing.assert_array_equal(params['head/place'][:n], wanted)
  for i, size in enumerate((5, n - 9)):
    assert params[f'head/tails/{i}/rows'].shape[0] == size


def started(config, workdir, space, levels=None):
  """The first parameters of a run, alone and started from another run."""
  vocab = workdir.vocabulary()
  _, state, before = first_state(config, space, len(vocab), levels=levels)
  state, _ = warm_start(state, str(workdir.path), space, vocab, levels)
  return before, params_of(state)


def test_rows_are_taken_only_of_labels_in_the_same_order(config, runs, caplog):
  caplog.set_level(logging.INFO)
  adaptive, adaptive_run = CONFIGS['adaptive'](config), runs('adaptive')
  workdir = Workdir.at(adaptive_run.workdir)
  space = workdir.label_space()
  saved = read_params(workdir.checkpoints, adaptive_run.best_step)
  _, after = started(adaptive, workdir, space)
  parts = 'frequent', 'roots', 'tails/1/rows', 'tails/0/reduce'
  names = [f'head/{part}' for part in parts]
  for name in names:
    np.testing.assert_array_equal(after[name], saved[name], err_msg=name)
  # The same labels, of which others are frequent now.
  other = dataclasses.replace(space, train_counts=space.train_counts[::-1])
  _, after = started(adaptive, workdir, other)
  for name in names:
    assert (after[name] != saved[name]).any(), name
  table = 'embedding/table'
  np.testing.assert_array_equal(after[table], saved[table])
  why = 'skipped head/frequent: belongs to labels in another order by frequency'
  assert why in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize('same', [True, False])
def test_a_head_starts_only_from_one_with_the_same_clusters(runs, caplog, same):
  caplog.set_level(logging.INFO)
  run = runs('cascade')
  workdir = Workdir.at(run.workdir)
  space, levels = workdir.label_space(), LabelLevels.load(workdir.levels)
  if not same:
    # The sizes are equal, and only a few labels are in other clusters.
    parent = levels.parents[1].copy()
    parent[:9] = np.roll(parent[:9], 1)
    parents = levels.parents[0], parent
    levels = LabelLevels.of(parents, np.ones(len(parent), bool))
  before, after = started(cascade(), workdir, space, levels)
  saved = read_params(workdir.checkpoints, run.best_step)
  parent, children = after['head/parent'], after['head/clusters/0/children']
  clusters, places = np.nonzero(children != PAD)
  np.testing.assert_array_equal(parent[children[clusters, places]], clusters)
  np.testing.assert_array_equal(parent[: space.n_trained], levels.parents[1])
  for name in ('head/clusters/0/kernel', 'head/clusters/0/bias', 'head/bias'):
    expected = saved if same else before
    np.testing.assert_array_equal(after[name], expected[name])
  assert (after['embedding/table'] == saved['embedding/table']).all()
  fault = 'skipped head/kernel: belongs to other clusters of labels'
  assert (fault in caplog.text) is not same


@pytest.mark.thorough
def test_the_evaluation_has_the_recall_of_levels_and_labels(runs):
  run = runs('cascade')
  model = open_run(run.workdir)
  size = 8 * model.scorer.params['head']['clusters'][0]['children'].shape[1]
  assert model.scorer.selected_by == f'shortlist={size}'
  recalls = run.metrics['dev']['recalls']
  assert {'all', 'few'} <= recalls.keys()
  predictions = Predictions.load(run.paths['dev'] / 'predictions.npz')
  for name, steps in recalls.items():
    assert list(steps) == [f'shortlist recall@{size}', 'level 0 recall@8']
    labels, clusters = steps.values()
    assert (name == 'held_out') == (labels == 0)
    assert labels == clusters <= 1
    # A list cannot have more gold labels than its shortlist.
    gold = cut_gold(predictions.gold, predictions.masks[name])
    hits = predictions.lists[name].hits(gold, len(predictions.labels)).sum(1)
    some = gold.lengths > 0
    assert (hits[some] / gold.lengths[some]).mean() <= labels


@pytest.mark.thorough
def test_views_read_the_names_of_labels_and_concepts(runs):
  run = runs('views')
  folder = Workdir.at(run.workdir)
  words = folder.vocabulary()
  pieces = read_params(folder.checkpoints, run.best_step)[VIEW_NAMES]
  labels = encoded_labels(folder.label_space())
  assert len(pieces) == len(labels) >= folder.label_space().n_trained
  for label, row in zip(labels, pieces):
    # All words are known, also those that no document has.
    known = [words.index[word] for word in split_words(label.name)][: len(row)]
    assert row.tolist() == known + [PAD] * (len(row) - len(known))


@pytest.mark.thorough
def test_views_change_no_predictions(runs, tmp_path):
  """With the same parameters, a model without views gives the same scores."""
  flat = views()
  flat.model.views = NoViews()
  loaded = open_run(runs('views').workdir)
  plain = open_run(fit(flat, tmp_path / 'run').workdir)
  trained, own = (by_path(run.scorer.params) for run in (loaded, plain))
  assert own.keys() < trained.keys()
  shared = {path: trained[path] for path in own}
  plain.scorer.params = from_paths(plain.scorer.params, shared)
  plain = dataclasses.replace(plain, calibration=loaded.calibration)
  texts = 'Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002'
  assert plain.predict(texts, k=5) == loaded.predict(texts, k=5)


@pytest.mark.thorough
def test_a_pretrained_encoder_reads_the_pieces_of_names(tmp_path):
  result = fit(shrink(arxiv.get_config('hgclr')), tmp_path / 'run')
  folder = Workdir.at(result.workdir)
  tokenizer, space = folder.subwords(), folder.label_space()
  row = read_params(folder.checkpoints, result.best_step)[VIEW_NAMES][0]
  ids = tokenizer.encode(space.labels[0].name)[1:-1][: len(row)]
  assert row[: len(ids)].tolist() == ids.tolist()


@pytest.mark.thorough
def test_f1_judges_the_labels_that_are_written(runs):
  radar_run = runs('radar')
  predictions = Predictions.load(radar_run.paths['dev'] / 'predictions.npz')
  lists, gold = predictions.lists['all'], predictions.gold
  written = [set(row[row != PAD].tolist()) for row in lists.ids]
  assert 0 < sum(map(len, written)) < lists.ids.size
  hits = sum(len(x & set(gold[i].tolist())) for i, x in enumerate(written))
  wanted = 2 * hits / (sum(map(len, written)) + len(gold.values))
  micro_f1 = radar_run.metrics['dev']['xjax']['all']['micro-F1']
  np.testing.assert_allclose(micro_f1, wanted, rtol=1e-6)
  assert (lists.scores[lists.ids != PAD] > 0).all()


@pytest.mark.parametrize(
  'storage', [x if x is Storage.FLOAT8 else thorough(x) for x in RULES]
)
def test_learns(runs, storage):
  run = runs(storage.name)
  rows = records(run.workdir)
  loss = [row['loss'] for row in rows if row['kind'] == 'train']
  assert len(loss) == STEPS
  assert np.mean(loss[-4:]) < 0.8 * np.mean(loss[:4])
  prior, found = (x['dev']['xjax']['all'] for x in (run.prior, run.metrics))
  assert found['RP@5'] > prior['RP@5']
  # The optimizer has no slots of rows, and rows none but those of their rule.
  slots = arrays(run.workdir, STEPS)
  names = {n.rpartition('/')[2] for n in slots if n.startswith('row_slots/')}
  wanted = {Storage.FLOAT8: {'squares'}}
  wanted[Storage.COMPENSATED] = {'kernel_momentum', 'bias_momentum', PLACE}
  wanted[Storage.COMPENSATED] |= {'left_out'}
  assert names == wanted.get(storage, set())
  of_rows = ('head/kernel', 'head/bias', 'head/exponent')
  assert not [n for n in slots if n.startswith('0/') and n.endswith(of_rows)]
  assert slots['head/kernel'].dtype == storage.dtype


@pytest.mark.thorough
def test_frequent_labels_keep_what_rounding_leaves_out(runs):
  slots = arrays(runs('COMPENSATED').workdir, STEPS)
  assert (slots[f'row_slots/{PLACE}'] >= 0).any()
  assert (slots['row_slots/left_out'] != 0).any()
  assert not (slots['row_slots/left_out'] != 0).all()
