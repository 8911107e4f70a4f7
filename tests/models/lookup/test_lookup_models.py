"""Models of names, prototypes and neighbours: runs, and what they share."""

import numpy as np
import pytest

from tests.fixtures.sparse_runs import HELD_OUT
from tests.models.lookup.conftest import dev_of
from xjax.core.errors import ConfigError, DataError
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.lookup.names import NamesModel, Units
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.trees.tree_model import TreeModel
from xjax.report.terminal.run_summary import run_summary
from xjax.run.fit import fit
from xjax.run.open_run import open_run

LABELS = [
  {'id': '7', 'name': 'sea animals', 'alt': ['fish', '?']},
  {'id': '8', 'name': '8'},
]


def kinds(*models):
  names = [type(model).__name__ for model in models]
  return pytest.mark.parametrize('model', models, ids=names)


@pytest.mark.parametrize('kind', ['exact_match', 'names'])
def test_held_out_labels_are_scored_like_all_others(fitted, kind):
  result = fitted(kind)
  dev = dev_of(result)
  assert dev.n_scored == len(dev.labels)
  assert (dev.lists['held_out'].ids >= dev.held_out.min()).any()
  values = result.metrics['dev']['xjax']['held_out']
  assert values['n_labels'] == HELD_OUT and values['RP@5'] > 0.1


@kinds(ExactMatchModel(), NamesModel(), PrototypesModel())
def test_labels_without_names_are_an_error_that_leaves_nothing(
  own_corpus, tmp_path, model
):
  config = own_corpus(model, [{'id': '7'}, {'id': '8', 'name': ' - '}])
  with pytest.raises(DataError, match='no label has a name'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@kinds(NeighboursModel(), PrototypesModel(names=False))
def test_a_corpus_without_gold_is_an_error_that_leaves_nothing(
  own_corpus, tmp_path, model
):
  config = own_corpus(model, LABELS, [()] * 4)
  with pytest.raises(DataError, match='there is nothing to learn'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@kinds(NeighboursModel(), PrototypesModel(), TreeModel())
def test_several_processes_are_an_error(
  own_corpus, tmp_path, monkeypatch, model
):
  monkeypatch.setattr('xjax.models.contract.process_count', lambda: 2)
  config = own_corpus(model, LABELS)
  config.train = model.trained_by()
  with pytest.raises(ConfigError, match='can only be used by one process'):
    fit(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / 'config.json').exists()


@pytest.mark.parametrize('alt', [False, True])
@pytest.mark.parametrize('kind', [ExactMatchModel, NamesModel])
def test_alternative_names_are_an_option(own_corpus, tmp_path, kind, alt):
  fit(own_corpus(kind(alt=alt), LABELS), tmp_path / 'run')
  # Only the first 9 words are read.
  within, beyond = open_run(tmp_path / 'run').predict(
    ['8 fish', 'a ' * 9 + 'fish']
  )
  assert [p.id for p in within] == ['7'] * alt
  assert beyond == []


def with_fewer_gold(arrays):
  indptr = arrays['gold/indptr'][:-1]
  values = arrays['gold/indices'][: indptr[-1]]
  return arrays | {'gold/indptr': indptr, 'gold/indices': values}


def plus(name, amount):
  return lambda arrays: arrays | {name: arrays[name] + amount}


NEIGHBOURS, PROTOTYPES = NeighboursModel(), PrototypesModel()
FAULTS = [
  (NEIGHBOURS, plus('features', 1), '.*but the run has 4 documents'),
  (NEIGHBOURS, plus('gold/indices', 10**6), 'gold/indices: is not in 0..'),
  (NEIGHBOURS, with_fewer_gold, 'gold/indptr: should have 5 entries'),
  (PROTOTYPES, plus('features', 1), 'has .* is this a file of another run'),
  *(
    (model, lambda arrays: arrays | {'more': np.zeros(1)}, 'more: unknown')
    for model in (NEIGHBOURS, PROTOTYPES)
  ),
]


@pytest.mark.parametrize(('model', 'damage', 'message'), FAULTS)
def test_damage_is_found(own_corpus, tmp_path, model, damage, message):
  """What a file of arrays itself refuses is in tests/core/test_arrays.py."""
  names = [{'id': '7', 'name': 'sea fish'}, {'id': '8', 'name': 'oil'}]
  fit(own_corpus(model, names), tmp_path / 'run')
  (tmp_path / 'run' / 'digests.json').unlink()
  (path,) = (tmp_path / 'run' / 'model').iterdir()
  with np.load(path, allow_pickle=False) as file:
    arrays = dict(file)
  np.savez(path, **damage(arrays))
  with pytest.raises(DataError, match=f'{path.name}: {message}'):
    open_run(tmp_path / 'run')


def test_nothing_is_found_at_all(own_corpus, tmp_path):
  """Empty lists are judged, and cannot be calibrated."""
  config = own_corpus(ExactMatchModel(), [{'id': '7', 'name': 'sea animals'}])
  result = fit(config, tmp_path / 'run')
  values = result.metrics['dev']['xjax']['all']
  assert values['RP@5'] == values['micro-F1'] == 0
  assert run_summary(fit(config, tmp_path / 'run')) == run_summary(result)


TEXT = 'The sea has many fishes'
NAMED = [
  {'id': '7', 'name': 'sea fish', 'alt': ['herring']},
  {'id': '8', 'name': 'olive oil'},
  {'id': '9', 'name': 'fish oil'},
]


@pytest.mark.parametrize('units', Units)
def test_names_are_found_by_parts(own_corpus, tmp_path, units):
  result = fit(own_corpus(NamesModel(units=units), NAMED), tmp_path / 'run')
  texts = [TEXT, 'Oil of olives', '', '?', 'Seafishing']
  rows = open_run(result.workdir).predict(texts)
  compound = ['7', '9'] if units is Units.CHARACTERS else []
  listed = [[label.id for label in row] for row in rows]
  assert listed == [['7', '9'], ['8', '9'], [], [], compound]
