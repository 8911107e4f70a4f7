"""Tests random walks from label to label over documents."""

import numpy as np
import pytest

from xjax.core.types import Ragged
from xjax.data.label_trees import label_features
from xjax.data.label_trees.label_features import NoSmoothing, RandomWalks

# Labels 0, 1 and 2 occur together, and so do 3 and 4. No document has label 5.
GOLD = Ragged.of([[0, 1], [0, 2], [3, 4], [1], [4, 3], [0, 1, 2], []])
L = 6


def weights(seed=0, **fields):
  similar = RandomWalks(**fields).weights(GOLD, L, seed)
  assert similar.dtype == np.float32 and similar.shape == (L, L)
  return similar.toarray()


def one_step():
  """Returns the probabilities of the labels after one step, [L, L]."""
  documents = [GOLD[row].tolist() for row in range(len(GOLD))]
  steps = np.zeros((L, L))
  for label in range(5):
    having = [x for x in documents if label in x]
    for labels in having:
      steps[label, labels] += 1 / len(having) / len(labels)
  return steps


@pytest.mark.thorough
def test_visits_follow_the_probabilities_of_steps():
  step, restart = one_step(), 0.4
  # Where the walk is before a step, in the long run.
  before = np.linalg.inv(np.eye(5) - (1 - restart) * step[:5, :5]) * restart
  similar = weights(steps=200_000, restart=restart, top=5)
  np.testing.assert_allclose(similar[:5, :5], before @ step[:5, :5], atol=0.01)


@pytest.mark.parametrize('top', [1, 2, 3])
def test_the_labels_that_are_visited_most_are_kept(top):
  step = one_step()
  similar = weights(steps=4000, restart=0.99, top=top)
  np.testing.assert_allclose(similar.sum(axis=1), 1, rtol=1e-6)
  for label in (0, 2, 3):
    best = np.sort(step[label])[::-1][:top]
    kept = np.flatnonzero(similar[label])
    assert set(kept) <= set(np.flatnonzero(step[label] >= best[-1]))
    assert len(kept) == min(top, np.count_nonzero(step[label]))


def test_a_label_without_documents_has_only_itself():
  assert weights()[5].tolist() == [0, 0, 0, 0, 0, 1]
  assert not weights()[:3, 3:].any() and not weights()[3:5, :3].any()


def test_the_seed_decides_and_the_labels_at_a_time_do_not(monkeypatch):
  one = weights(1, steps=20)
  monkeypatch.setattr(label_features, '_VISITS', 45)  # of two labels
  np.testing.assert_array_equal(one, weights(1, steps=20))
  assert any((weights(seed, steps=20) != one).any() for seed in (2, 3))


def test_without_smoothing_there_are_no_weights():
  assert NoSmoothing().weights(GOLD, L, 0) is None
