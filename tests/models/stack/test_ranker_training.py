"""The ranker of a stack learns from folds of train."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.fixtures.sparse_runs import HELD_OUT
from tests.models.stack.test_stack_model import everything, stack_of
from xjax.data.folds import make_folds
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.load import load_corpus
from xjax.models.contract import Run
from xjax.models.stack import ranker_training as folds
from xjax.models.stack.pair_features import NONE, LabelFacts
from xjax.models.stack.proposers import neighbours_proposer
from xjax.run.fit import fit
from xjax.run.open_run import open_run
from xjax.train.preemption import Preemption
from xjax.train.workdir import Workdir

pytestmark = pytest.mark.lightgbm


@pytest.mark.thorough
def test_models_of_a_fold_have_not_seen_its_documents(tmp_path, monkeypatch):
  config, seen = everything(), {}
  train = folds.train_proposer

  def recording(stage, others, corpus):
    seen[stage.name] = corpus
    return train(stage, others, corpus)

  monkeypatch.setattr(folds, 'train_proposer', recording)
  fit(config, tmp_path / 'run')
  whole = load_corpus(config.data, config.seed)
  ids = set(whole.splits[TRAIN].ids)
  outside = [ids - set(x.splits[TRAIN].ids) for x in seen.values()]
  assert len(seen) == 9
  assert set().union(*outside) == ids
  for corpus in seen.values():
    space, gold = corpus.label_space, corpus.splits[TRAIN].gold
    assert space.n_held_out > HELD_OUT
    assert gold.values.max() < space.n_trained


def pairs_with_other_gold(result, config, folder):
  """The pairs of fold 0 before and after its documents get other labels.

  The lists of other folds stay: their models may learn from the document.
  """
  shutil.copytree(result.workdir, folder)
  members = open_run(folder).scorer.stages
  corpus = load_corpus(config.data, config.seed)

  def pairs_of(corpus):
    with Preemption() as preemption:
      run = Run(config, Workdir.at(folder), preemption)
      numbers = range(len(config.model.proposers))
      training = folds.RankerTraining(run, corpus, numbers, members)
      return training, training.data()

  training, before = pairs_of(corpus)
  # All documents of fold 0 get the labels of the next document.
  rows, gold = training.folds[0].rows, corpus.splits[TRAIN].gold
  order = np.arange(len(gold))
  order[rows] = np.roll(rows, -1)
  split = dataclasses.replace(corpus.splits[TRAIN], gold=gold.take(order))
  other = dataclasses.replace(corpus, splits={**corpus.splits, TRAIN: split})
  for path in (folder / 'model').glob('fold_0_*.npz'):
    path.unlink()
  # So that its models may be trained again, too.
  digests = json.loads((folder / 'digests.json').read_text())
  digests = {x: y for x, y in digests.items() if '/fold_0_' not in x}
  (folder / 'digests.json').write_text(json.dumps(digests))
  after = pairs_of(other)[1]
  np.testing.assert_array_equal(before.fold_X, after.fold_X)
  own = before.fold_X == 0
  assert (before.gold_X[own] != after.gold_X[own]).any()
  return before.names, before.features_XF[own], after.features_XF[own]


def test_gold_labels_of_a_document_do_not_reach_its_features(stacked, tmp_path):
  """Its lists, neighbours and linear classifiers do not give them away."""
  names, before, after = pairs_with_other_gold(
    stacked, everything(), tmp_path / 'run'
  )
  listed = [name.startswith('listed:') for name in names]
  assert (before[:, listed] > NONE).any()
  np.testing.assert_array_equal(before, after)


def test_a_document_must_not_be_its_own_neighbour(tmp_path):
  """Nearest documents that include the document itself give it away."""
  config = stack_of(neighbours_proposer(depth=20))
  dev = fit(config, tmp_path / 'run').metrics['dev']['xjax']['all']
  whole = load_corpus(config.data, config.seed)
  fold = make_folds(whole, 3, None, config.seed)[0]
  with np.load(tmp_path / 'run' / 'model' / 'fold_0_neighbours.npz') as file:
    ids_NK = file['ids'][0]
  gold = [set(whole.trained_gold[row].tolist()) for row in fold.rows]
  shares = [
    len(labels & set(ids_K[: len(labels)])) / len(labels)
    for ids_K, labels in zip(ids_NK.tolist(), gold)
    if labels
  ]
  # A leak makes lists of training documents much better than those of dev.
  assert abs(np.mean(shares) - dev['R-Precision']) < 0.1


def training_of(result):
  """The training of a run, and its corpus as it was trained on."""
  config = everything()
  corpus = load_corpus(config.data, config.seed)
  run = Run(config, Workdir.at(result.workdir))
  return folds.RankerTraining(run, corpus, (0, 1, 2)), corpus


def test_counts_do_not_say_whether_a_document_has_a_label(stacked):
  """The ranker must not see counts that include the document itself."""
  training, corpus = training_of(stacked)
  gold, n = corpus.trained_gold, corpus.label_space.n_trained
  facts = LabelFacts.of(corpus.label_space, n + HELD_OUT)
  for fold in training.folds:
    seen = training._seen(fold, facts)
    own = np.concatenate([gold[row] for row in fold.rows])
    counts = np.bincount(gold.values, minlength=n) - np.bincount(
      own, minlength=n
    )
    counts[fold.hidden] = 0
    share = len(gold) / (len(gold) - len(fold.rows))
    np.testing.assert_allclose(seen[:n], counts * share)
    assert not seen[n:].any()
