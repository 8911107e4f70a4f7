"""Tests that the lists of several models become one by averages."""

import numpy as np
import pytest

from tests.fixtures.dense_lists import Table, rows_of
from xjax.core.ranking import Query, RankWeights
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.schema import Label, LabelSpace
from xjax.models.ensemble.ensemble_model import (
  Averaging,
  EnsembleScorer,
  Member,
)

L, DEPTH = 30, 6
NONE = -np.inf


def probability(logit):
  return 1 / (1 + np.exp(-np.float64(logit)))


def ranked(scorer, n, k, weights=None, sigmoid=(1.0, 0.0), **query):
  if weights is not None:
    weights = RankWeights(weights, sigmoid)
  lists = scorer.rank(rows_of(n), Query(k, weights=weights, **query))
  return lists.ids_GNK, lists.scores_GNK


def space_of(n_labels, left_out=()):
  labels = [Label(f'{x}') for x in range(n_labels)]
  counts = np.zeros(n_labels, np.int32)
  return LabelSpace(labels, counts, 9, n_labels, left_out_ids=left_out)


def table_of(*rows, n_labels=9):
  """A table from {label: score} of each document."""
  scores = np.full((len(rows), n_labels), NONE)
  for scores_L, row in zip(scores, rows):
    scores_L[list(row)] = list(row.values())
  return scores


@pytest.fixture
def tables():
  rng = np.random.default_rng(0)
  return [Table(rng.normal(0, 3, (5, L))) for _ in range(3)]


class Calibrated(Member):
  """Reads margins as logits, as a calibration could."""

  def readable(self, ids, scores):
    if self.scorer.score_kind is ScoreKind.MARGIN:
      return probability(scores)
    return super().readable(ids, scores)


def ensemble_of(members, averaging=Averaging.RANK, depth=DEPTH, **options):
  members = {
    f'member_{number}': Calibrated(table, space_of(table.n_labels))
    for number, table in enumerate(members)
  }
  return EnsembleScorer(members, averaging, depth, block=2, **options)


def top(members, averaging, k=4, depth=2, weights=()):
  scorer = ensemble_of(members, averaging, depth, weights=weights)
  return ranked(scorer, len(members[0].scores), k)


ONE = table_of({4: 2.0, 2: 1.0, 8: 0.5}, {})
TWO = table_of({2: 3.0, 7: 1.0, 4: 0.0}, {1: -1.0})


@pytest.mark.parametrize(
  'averaging, weights, wanted',
  [
    (Averaging.RANK, (), {2: (1 / 2 + 1) / 2, 4: 1 / 2, 7: 1 / 4}),
    (Averaging.RANK, (3.0, 1.0), {4: 3 / 4, 2: 5 / 8, 7: 1 / 8}),
    (
      Averaging.SOFTMAX,
      (),
      {
        2: (1 / (1 + np.e) + 1 / (1 + np.exp(-2))) / 2,
        4: 1 / (1 + np.exp(-1)) / 2,
        7: 1 / (1 + np.exp(2)) / 2,
      },
    ),
    (
      Averaging.SIGMOID,
      (),
      {
        2: (probability(1.0) + probability(3.0)) / 2,
        4: probability(2.0) / 2,
        7: probability(1.0) / 2,
      },
    ),
  ],
)
def test_averages_by_hand(averaging, weights, wanted):
  """Checks two models that list two labels; a missing label counts 0."""
  ids, scores = top([Table(ONE), Table(TWO)], averaging, weights=weights)
  assert ids.tolist() == [[[*wanted, PAD], [1, PAD, PAD, PAD]]]
  assert scores.dtype == np.float32
  means = scores[0, 0, :3].astype(np.float64)
  if averaging is Averaging.SIGMOID:
    means = probability(means)
  np.testing.assert_allclose(means, list(wanted.values()), rtol=1e-6)
  assert scores[0, 0, 3] == NONE


def test_ties_are_broken_by_label():
  """Checks three models, whose means are rounded in different orders."""
  orders = [(5, 3, 8), (3, 8, 5), (8, 5, 3)]
  members = [
    Table(table_of({label: 3.0 - i for i, label in enumerate(order)}))
    for order in orders
  ]
  ids, scores = top(members, Averaging.RANK, depth=3)
  assert ids[0, 0].tolist() == [3, 5, 8, PAD]
  assert len(set(scores[0, 0, :3].tolist())) == 1


def test_a_label_has_one_score_in_all_lists(tables):
  scorer = ensemble_of(tables)
  masks = np.arange(L) % 3 == 0, np.arange(L) % 3 > 0
  ids, scores = ranked(scorer, 5, L, slices=masks)
  np.testing.assert_array_equal(ids[:1], ranked(scorer, 5, L)[0])
  for document in range(5):
    score_of = {}
    for ids_K, scores_K in zip(ids[:, document], scores[:, document]):
      for label, score in zip(ids_K[ids_K != PAD], scores_K):
        assert score_of.setdefault(int(label), score) == score
  for mask, ids_BK in zip(masks, ids[1:]):
    assert mask[ids_BK[ids_BK != PAD]].all()
    assert ((ids_BK != PAD).sum(1) >= DEPTH).all()
    # A slice has labels that are on no list over all labels.
    assert all(
      set(a) > set(b) - set(np.flatnonzero(~mask))
      for a, b in zip(ids_BK, ids[0])
    )


def test_labels_of_slices_alone_come_after_the_others_of_a_model():
  scores = table_of({label: -label for label in range(9)})
  scorer = ensemble_of([Table(scores)], depth=3)
  mask = np.arange(9) >= 2
  ids, scores = ranked(scorer, 1, 4, slices=(mask,))
  assert ids[:, 0].tolist() == [[0, 1, 2, PAD], [2, 3, 4, PAD]]
  np.testing.assert_allclose(scores[1, 0, :3], [1 / 3, 1 / 5, 1 / 6])


def of_kind(tables, kind):
  if kind is ScoreKind.PROBABILITY:
    return [Table(probability(table.scores), kind) for table in tables]
  return [Table(table.scores, kind) for table in tables]


KINDS = [ScoreKind.LOGIT, ScoreKind.MARGIN, ScoreKind.PROBABILITY]


@pytest.mark.parametrize('averaging', Averaging)
@pytest.mark.parametrize('kind', KINDS)
def test_labels_are_ranked_by_weight_times_probability(tables, averaging, kind):
  scorer = ensemble_of(of_kind(tables, kind), averaging)
  weights = np.random.default_rng(1).uniform(0.5, 2, L).astype(np.float32)
  weights[:5] = 0
  every, means = ranked(scorer, 5, L)
  ids, logs = ranked(scorer, 5, L, weights, sigmoid=(2.0, -1.0))
  for document, (ids_K, logs_K) in enumerate(zip(ids[0], logs[0])):
    listed = ids_K[ids_K != PAD]
    assert (listed >= 5).all() and (np.diff(logs_K[: len(listed)]) <= 0).all()
    known = dict(zip(every[0, document].tolist(), means[0, document]))
    assert {x for x in known if x >= 5} <= set(listed.tolist())
    for label, log in zip(listed.tolist(), logs_K):
      if label in known:
        wanted = weights[label] * probability(2.0 * known[label] - 1)
        assert np.exp(log) == pytest.approx(wanted, rel=1e-5)


def test_certain_labels_keep_their_order():
  """Checks probabilities that are 1 in float32, and one that is 0."""
  table = Table(table_of({1: 20.0, 5: 21.0, 3: 22.0, 2: -200.0}))
  ids, scores = top([table], Averaging.SIGMOID, depth=4)
  assert ids[0, 0].tolist() == [3, 5, 1, 2]
  assert np.isfinite(scores).all()


def test_left_out_labels_are_not_listed(tables):
  """A model does not spend places of its lists on labels that are left out."""
  left_out = np.argmax(tables[0].scores[0])
  space = space_of(L, (f'{left_out}',))
  scorer = EnsembleScorer({'a': Member(tables[0], space)}, Averaging.RANK, 3)
  ids, _ = ranked(scorer, 5, 9)
  assert not (ids == left_out).any() and ((ids != PAD).sum(axis=2) == 3).all()


def test_gold_labels_that_no_model_lists_are_counted(tables):
  scorer, mask = ensemble_of(tables, depth=2), np.arange(L) % 3 == 0
  gold = Ragged.of([range(L)] * 5)
  documents = Documents(rows_of(5).items, gold)
  lists = scorer.rank(documents, Query(1, (mask, ~mask), measured=1))
  assert lists.ids_GNK.shape == (3, 5, 1)
  every, _ = ranked(scorer, 5, 6, slices=(mask, ~mask))
  (step,) = lists.kept
  assert step == 'union recall@6'  # three models list two labels
  assert lists.kept[step].tolist() == (every[:2] != PAD).sum(axis=2).tolist()
