"""Runs of RADAr: resumed, loaded, planned, on odd hierarchies."""

import dataclasses

import numpy as np
import pytest

from tests.run.small_runs import (
  assert_resumes,
  with_head,
)
from tests.run.tagging import write_rows
from xjax import load as load_model
from xjax.core.types import PAD
from xjax.data.formats.jsonl import JsonlData
from xjax.data.hierarchy import Hierarchy
from xjax.judge.predictions import Predictions
from xjax.losses.sequence import SequenceLossConfig
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.plan.chips import CHIPS
from xjax.plan.plan import Planner
from xjax.plan.sizes import corpus_sizes
from xjax.run.fit import fit
from xjax.run.open_run import open_run

TEXTS = ['Puma sa funu mesi teba malu', '', 'Sena pe folo tulo 2002']


def config_with(config, **fields):
  """A config of RADAr that compiles fast, in which dropout matters."""
  sizes = {'chunk': 8, 'layers': 1, 'heads': 2, 'most_symbols': 6}
  train = {'steps': 6, 'judge_every': 2, 'checkpoint_every': 2}
  train |= {'loss': SequenceLossConfig(), 'best_metric': 'all/micro-F1'}
  head, pooling = RadarConfig(**sizes | fields), config.model.pooling
  return with_head(config, head, pooling, rates=('embedding/*=0.5',), **train)


@pytest.fixture(scope='module')
def radar(config):
  return config_with(config)


@pytest.fixture(scope='module')
def run(radar, tmp_path_factory):
  """The result of a run; copy its workdir before you change it."""
  return fit(radar, tmp_path_factory.mktemp('radar') / 'run')


@pytest.mark.thorough
def test_resuming_is_bitwise(radar, run, tmp_path):
  assert_resumes(radar, run, tmp_path, 4)


def test_f1_judges_the_labels_that_are_written(run):
  predictions = Predictions.load(run.paths['dev'] / 'predictions.npz')
  lists, gold = predictions.lists['all'], predictions.gold
  written = [set(row[row != PAD].tolist()) for row in lists.ids]
  assert 0 < sum(map(len, written)) < lists.ids.size
  hits = sum(len(x & set(gold[i].tolist())) for i, x in enumerate(written))
  wanted = 2 * hits / (sum(map(len, written)) + len(gold.values))
  micro_f1 = run.metrics['dev']['xjax']['all']['micro-F1']
  np.testing.assert_allclose(micro_f1, wanted, rtol=1e-6)
  assert (lists.scores[lists.ids != PAD] > 0).all()


def test_a_shape_of_batches_is_compiled_once(run, compiled):
  model = load_model(run.workdir)
  model.predict(TEXTS, k=4)
  assert compiled
  compiled.clear()
  model.predict(['Other words', *TEXTS[:2]], k=4)
  assert compiled == []


def test_a_run_can_be_planned(radar):
  sizes = corpus_sizes(radar)
  plan = Planner(sizes, CHIPS['laptop']).plan(radar, 1)
  flat = dataclasses.replace(sizes, hierarchy=Hierarchy.flat(sizes.labels))
  less = Planner(flat, CHIPS['laptop']).plan(radar, 1)
  assert plan.held.total > 0
  assert plan.longest.operations > less.longest.operations


def write_corpus(folder):
  """A chain of 20 levels, several roots and parents, an orphan, a concept."""
  chain = [
    {'id': f'c{i}', 'parents': [f'c{i - 1}'] * (i > 0)} for i in range(20)
  ]
  labels = [
    *reversed(chain),  # labels come before their parents
    {'id': 'root'},
    {'id': 'orphan'},
    {'id': 'both', 'parents': ['root', 'c3']},
    {'id': 'below', 'parents': ['concept']},  # no document has its parent
    {'id': 'concept', 'parents': ['root']},
  ]
  whole = [f'c{i}' for i in range(20)]
  documents = [whole, ['root', 'both'], ['orphan'], ['below', 'both'], []] * 4
  for name in ('train', 'dev'):
    rows = [{'id': str(i), 'labels': row} for i, row in enumerate(documents)]
    rows = [row | {'text': f'word{i % 5} pa te'} for i, row in enumerate(rows)]
    write_rows(folder / f'{name}.jsonl', rows)
  write_rows(folder / 'labels.jsonl', labels)


@pytest.mark.thorough
def test_deep_and_odd_hierarchies(radar, tmp_path):
  write_corpus(tmp_path)
  tokens = radar.data.tokens
  data = JsonlData(dir=str(tmp_path), labels='all', tokens=tokens, workers=1)
  config = dataclasses.replace(radar, data=data)
  result = fit(config, tmp_path / 'run')
  space = result.corpus.label_space
  levels = open_run(result.workdir).scorer.params['head']['level'][...]
  at = {
    id_: int(levels[space.ids.row_of[id_]])
    for id_ in space.ids[: space.n_trained]
  }
  assert [at[f'c{i}'] for i in range(20)] == list(range(1, 21))
  assert (at['root'], at['orphan'], at['both'], at['below']) == (1, 1, 2, 3)
  assert 0 <= result.metrics['dev']['xjax']['all']['micro-F1'] <= 1
