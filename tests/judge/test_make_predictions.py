"""From a scorer to metrics, against the slow definitions."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from tests.fixtures.dense_lists import Table, rows_of
from tests.judge.reference.metrics import judge_scores, rank
from tests.judge.systems import system
from xjax.core.errors import DataError
from xjax.core.types import PAD, Ragged, ScoreKind
from xjax.data.schema import Label, LabelSpace, Split
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.criteria import Criteria
from xjax.judge.files.evaluation import save_evaluation
from xjax.judge.judge import NOTES, judge, tune_threshold
from xjax.judge.make_predictions import popularity, predict, recalls_of
from xjax.judge.predictions import Predictions

KS = (1, 3, 5)
# Trained labels, then two held out, then one outside the label space.
COUNTS = np.array([90, 12, 60, 50, 0, 49, 3, 12, 0, 0, 0, 0], np.int32)
L, SCORED = 12, 9
SPACE = LabelSpace(
  labels=tuple(Label(f'l{i}') for i in range(L)),
  train_counts=COUNTS,
  n_train=100,
  n_trained=SCORED,
  n_held_out=2,
)


class DenseScorer(Table):
  """Scores drawn once for every document; ranked by sorting."""

  reads_vectors = True

  def __init__(self, n_docs, kind=ScoreKind.LOGIT, seed=0):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(-6, 5, (n_docs, L)) / 2).astype(np.float32)
    if kind is ScoreKind.PROBABILITY:
      scores = (scores + 3) / 5
    scores[:, SCORED:] = -np.inf
    super().__init__(scores, kind)
    self.n_labels, self.scores_NL = SCORED, self.scores


def make_split(n_docs, seed=0):
  rng = np.random.default_rng(seed)
  golds = [
    sorted(rng.choice(L, rng.integers(0, 5), replace=False).tolist())
    for _ in range(n_docs)
  ]
  ids = [f'd{i}' for i in range(n_docs)]
  return Split('dev', ids, Ragged.of(golds), rows_of(n_docs).items, digest='')


def predicted(n_docs=37, depth=12, kind=ScoreKind.LOGIT):
  scorer, split = DenseScorer(n_docs, kind), make_split(n_docs)
  return (
    predict(scorer, split, SPACE, depth),
    scorer.scores_NL,
    [set(split.gold[i].tolist()) for i in range(n_docs)],
  )


def defined(scores, golds, labels=range(L), threshold=0.0, ks=KS):
  return judge_scores(scores, golds, labels, ks, threshold)


def test_every_document_is_in_its_row():
  predictions, scores, _ = predicted(depth=4)
  for name, mask in predictions.masks.items():
    lists = predictions.lists[name]
    assert lists.ids.shape == (37, 4)
    for row in range(37):
      best = rank(scores[row], np.flatnonzero(mask).tolist())[:4]
      assert lists.ids[row, : len(best)].tolist() == best
      assert (lists.ids[row, len(best) :] == PAD).all()
      np.testing.assert_array_equal(
        lists.scores[row, : len(best)], scores[row, best]
      )
  assert predictions.n_scored == SCORED and predictions.n_train == 100
  assert predictions.held_out.tolist() == [9, 10]
  assert predictions.doc_ids[36] == 'd36' and predictions.labels[11] == 'l11'


def test_labels_beyond_the_scored_are_refused():
  class Beyond(DenseScorer):
    def rank(self, documents, query):
      lists = super().rank(documents, query)
      return dataclasses.replace(lists, ids_GNK=lists.ids_GNK + 1)

  with pytest.raises(ValueError, match='scores only 9 labels'):
    predict(Beyond(8), make_split(8), SPACE, 12)


def test_a_label_of_two_scores_is_refused():
  class Careless(DenseScorer):
    def rank(self, documents, query):
      lists = super().rank(documents, query)
      lower = np.arange(query.n_lists, dtype=np.float32)[:, None, None]
      return dataclasses.replace(lists, scores_GNK=lists.scores_GNK - lower)

  with pytest.raises(ValueError, match="document 'd.*has different scores"):
    predict(Careless(20), make_split(20), SPACE, 4)


def test_how_labels_were_searched_is_recorded():
  assert predicted()[0].selected_by == 'exact'
  scorer = DenseScorer(20)
  scorer.selected_by = 'beam=3'
  found = predict(scorer, make_split(20), SPACE, 12)
  said = 'beam search of width 3; labels of high score may be missing'
  assert judge(found)[NOTES]['all'] == {'search': said}
  exact = judge(dataclasses.replace(found, selected_by='exact'))
  assert 'all' not in exact[NOTES]


@pytest.mark.parametrize('depth', [12, 9])
def test_judge_against_the_definitions(depth):
  predictions, scores, golds = predicted(depth=depth)
  metrics = judge(predictions, Criteria(KS), threshold=-0.75)
  assert list(metrics) == ['xjax', 'notes']
  assert list(metrics['xjax']) == ['all', 'frequent', 'few', 'zero', 'held_out']
  for name, mask in predictions.masks.items():
    labels = np.flatnonzero(mask).tolist()
    values = metrics['xjax'][name]
    with_gold = sum(bool(gold.intersection(labels)) for gold in golds)
    counts = [values[n] for n in ('n_docs', 'n_skipped', 'n_labels')]
    assert counts == [with_gold, 37 - with_gold, len(labels)]
    expected = defined(scores, golds, labels)
    tuned = defined(scores, golds, labels, -0.75)
    for kind in ('micro-F1', 'macro-F1', 'weighted-F1'):
      expected[f'{kind}-tuned'] = tuned[kind]
    found = {metric: values[metric] for metric in expected}
    if name == 'held_out':  # no label of it is scored
      assert set(found.values()) == {None}
      assert set(metrics['notes'][name].values()) == {
        'the system cannot predict any of these labels'
      }
    else:
      assert found == pytest.approx(expected, abs=1e-14)
  assert metrics['xjax']['all']['threshold-tuned'] == -0.75


def unseen(scores, ranks_unseen=None, counts=(9, 0, 0)):
  """A system of three labels, of which two have no training documents."""
  rows = np.argsort(-np.array(scores), axis=1, kind='stable')
  ranked = np.take_along_axis(np.array(scores), rows, 1)
  gold = [[1], [2]]
  return system(rows, ranked, gold, counts, ranks_unseen=ranks_unseen)


@pytest.mark.parametrize(
  ('ranks_unseen', 'scores', 'has_figures'),
  [
    (True, [[9, 1, 2], [9, 1, 2]], True),
    (False, [[9, 1, 2], [9, 1, 2]], False),
    # Nothing is recorded of the systems of others.
    (None, [[9, -1, -1], [9, -2, -2]], True),
    (True, [[9, -1, -1], [9, -2, -2]], True),
  ],
)
def test_labels_that_a_system_does_not_know_have_no_figures(
  tmp_path, ranks_unseen, scores, has_figures
):
  predictions = unseen(scores, ranks_unseen)
  criteria = Criteria((1,), replicates=9)
  metrics = judge(predictions, criteria)
  zero = metrics['xjax']['zero']
  assert (zero['n_docs'], zero['n_labels']) == (2, 2)
  names = 'P@1', 'nDCG@1', 'R-Precision', 'micro-F1', 'macro-F1@1'
  assert {zero[x] is not None for x in names} == {has_figures}
  assert set(names) <= metrics.get('intervals', {})['xjax']['all'].keys()
  why = 'the system has learned nothing about labels without training documents'
  noted = {*metrics.get('notes', {}).get('zero', {}).values()}
  assert noted == (set() if has_figures else {why})
  # They are misses among all labels.
  assert metrics['xjax']['all']['P@1'] == 0
  predictions.save(tmp_path / 'p.npz')
  assert judge(Predictions.load(tmp_path / 'p.npz'), criteria) == metrics


def test_figures_that_need_no_more_than_is_known():
  # Without training counts, no label is known to be unseen.
  bare = dataclasses.replace(unseen([[9, -1, -1]] * 2), n_train=0)
  assert list(judge(bare)['xjax']) == ['all']
  # With one label, or labels that are not listed, ties say nothing.
  one = judge(unseen([[9, -1, -1]] * 2, counts=(9, 1, 0)))['xjax']
  assert one['zero']['R-Precision'] == 1
  short = unseen([[9, 5, -np.inf], [9, -np.inf, 5]])
  ids = np.where(np.isinf(short.lists['all'].scores), PAD, [[0, 1, 2]])
  lists = dataclasses.replace(short.lists['all'], ids=ids)
  short = dataclasses.replace(short, lists={'all': lists})
  assert judge(short)['xjax']['zero']['R-Precision'] == 0.5
  # The prior knows nothing of labels without training documents.
  prior = judge(popularity(SPACE, make_split(6), 5))['xjax']
  assert prior['zero']['P@1'] is None and prior['few']['P@1'] is not None


def test_lists_that_are_too_short_are_refused_with_the_count():
  predictions, scores, golds = predicted(depth=2)
  metrics = judge(predictions, Criteria((1, 3)), threshold=2.01)
  values, notes = metrics['xjax']['all'], metrics['notes']['all']
  missing = {name for name, value in values.items() if value is None}
  assert missing == set(notes)
  deep = sum(len(gold) > 2 for gold in golds)
  assert notes['R-Precision'].startswith(f'{deep} of {values["n_docs"]} ')
  above = ((scores >= 0).sum(1) > 2).sum()
  # A list may be known to be whole only where its last score is low enough.
  ends = (np.sort(scores, 1)[:, -2] >= 0).sum()
  assert ends >= above
  assert notes['micro-F1'].startswith(f'{ends} of 37 ')
  # 2.0 is the highest score: nothing is above it.
  assert values['micro-F1-tuned'] == 0
  # Two labels are all of the zero slice that is scored.
  assert 'zero' not in metrics['notes']


@pytest.mark.parametrize(
  ('kind', 'own', 'threshold'),
  [(ScoreKind.MARGIN, 0.25, 0.25), (ScoreKind.PROBABILITY, None, 0.5)],
)
def test_the_scorer_says_what_it_assigns_or_a_half(kind, own, threshold):
  predictions, scores, golds = predicted(kind=kind)
  predictions = dataclasses.replace(predictions, assigned_above=own)
  values = judge(predictions, Criteria(KS))['xjax']['all']
  expected = defined(scores, golds, threshold=threshold)
  for name in ('micro-F1', 'macro-F1'):
    assert values[name] == pytest.approx(expected[name])


def test_a_split_without_gold():
  scorer, split = DenseScorer(5), make_split(5)
  empty = Split('dev', split.ids, Ragged.of([[]] * 5), split.documents, '')
  metrics = judge(predict(scorer, empty, SPACE, 4), Criteria(KS))
  why = {'no document has a gold label here'}
  for name, values in metrics['xjax'].items():
    assert values['n_docs'] == 0 and values['n_skipped'] == 5
    assert values['nDCG@5'] is values['micro-F1'] is None
    assert set(metrics['notes'][name].values()) == why


def test_predictions_without_gold_are_not_judged():
  bare = dataclasses.replace(predicted(5)[0], gold=None)
  with pytest.raises(DataError, match='no gold'):
    judge(bare, Criteria(KS))
  with pytest.raises(DataError, match='no gold'):
    tune_threshold(bare)


def test_the_tuned_threshold_is_the_best():
  predictions, scores, golds = predicted()
  found, *tried = (
    defined(scores, golds, threshold=threshold, ks=())['micro-F1']
    for threshold in (tune_threshold(predictions), *np.arange(-3.25, 3, 0.25))
  )
  assert found == pytest.approx(max(tried), abs=1e-14)
  assert min(tried) < found


@pytest.mark.parametrize('depth', range(1, 9))
def test_the_tuned_threshold_is_one_that_can_be_judged(depth):
  predictions, scores, golds = predicted(depth=depth)
  threshold = tune_threshold(predictions)
  values = judge(predictions, Criteria(KS), threshold)['xjax']['all']
  expected = defined(scores, golds, threshold=threshold)['micro-F1']
  assert values['micro-F1-tuned'] == pytest.approx(expected, abs=1e-14)


def test_the_popularity_prior(tmp_path):
  split = make_split(6)
  prior = popularity(SPACE, split, 5)
  for name, row, best in (
    ('all', 3, [0, 2, 3, 5, 1]),
    ('few', 0, [5, 1, 7, 6, PAD]),
    ('zero', 0, [4, 8, 9, 10, PAD]),
    ('held_out', 0, [9, 10, PAD, PAD, PAD]),
  ):
    assert prior.lists[name].ids[row].tolist() == best
  shares = [0.49, 0.12, 0.12, 0.03, -np.inf]
  np.testing.assert_allclose(prior.lists['few'].scores[5], shares, rtol=1e-6)
  assert prior.score_kind is ScoreKind.PROBABILITY
  scores = np.tile(COUNTS / 100, (6, 1)).astype(np.float32)
  golds = [set(split.gold[i].tolist()) for i in range(6)]
  metrics = judge(prior, Criteria(KS))
  values = metrics['xjax']['all']
  expected = defined(scores, golds, threshold=0.5)['micro-F1']
  assert values['micro-F1'] == pytest.approx(expected)
  # The label outside the space is gold, and a miss.
  scores[:, 11] = -np.inf
  assert values['P@5'] == pytest.approx(defined(scores, golds)['P@5'])
  prior.save(tmp_path / 'p.npz')
  assert judge(Predictions.load(tmp_path / 'p.npz'), Criteria(KS)) == metrics


def test_what_is_saved(tmp_path):
  step = 'shortlist recall@3'
  recalls = {'all': {step: 0.25}, 'few': {step: 0.5}}
  predictions, _, _ = predicted(depth=2)
  predictions = dataclasses.replace(predictions, recalls=recalls)
  metrics = judge(predictions, Criteria(KS), threshold=0.1)
  assert metrics['recalls'] == recalls
  folder = tmp_path / 'eval' / 'dev'
  save_evaluation(folder, predictions, metrics)
  assert sorted(p.name for p in folder.iterdir()) == [
    *('judged.json', 'metrics.csv', 'metrics.json', 'predictions.npz')
  ]
  assert json.loads((folder / 'metrics.json').read_text()) == metrics
  again = judge(Predictions.load(folder / 'predictions.npz'), Criteria(KS), 0.1)
  assert again == metrics
  rows = csv.DictReader((folder / 'metrics.csv').read_text().splitlines())
  columns = 'protocol', 'slice', 'metric', 'value'
  assert sorted([*map(row.get, columns)] for row in rows) == sorted(
    [protocol, name, metric, '' if value is None else str(value)]
    for protocol, slices in (('xjax', metrics['xjax']), ('', recalls))
    for name, values in slices.items()
    for metric, value in values.items()
  )


@pytest.mark.parametrize('score', [np.inf, np.nan])
def test_a_score_that_is_not_finite_names_the_document(score):
  scorer, split = DenseScorer(20), make_split(20)
  scorer.scores_NL[13, 2] = score
  with pytest.raises(DataError, match=r"dev: document 'd13': .*(inf|nan), "):
    predict(scorer, split, SPACE, L)
  features = FeatureRows.from_arrays(
    'dev.npy', split.ids, [np.zeros(1, np.float32)] * 20, 1
  )
  split = dataclasses.replace(split, features=features)
  with pytest.raises(DataError, match="dev.npy: document 'd13'"):
    predict(scorer, split, SPACE, L)


GOLD = Ragged.of([[0, 1, 2], [], [3], [1, 7]])  # 7 is beyond the masks
FEW = np.array([False, True, True, False])


def test_mean_recalls_are_over_documents_with_gold_labels_in_the_slice():
  kept = {
    'shortlist recall@9': np.int32([[2, 0, 1, 1], [1, 0, 0, 1], [0] * 4]),
    'level 0 recall@3': np.int32([[3, 0, 1, 2], [2, 0, 0, 1], [0] * 4]),
  }
  recalls = recalls_of(kept, GOLD, {'few': FEW, 'zero': FEW & ~FEW})
  shortlist, level = kept
  means = {'all': (2 / 3 + 1 + 1 / 2) / 3, 'few': (1 / 2 + 1) / 2}
  assert recalls == {
    name: {shortlist: pytest.approx(mean, rel=1e-14), level: 1.0}
    for name, mean in means.items()
  }
  assert list(recalls['all']) == list(kept)  # the order of the steps
  assert recalls_of({}, GOLD, {}) == {}


def test_a_threshold_where_nothing_is_ranked():
  scorer, split = DenseScorer(5), make_split(5)
  scorer.scores_NL[:] = -np.inf
  predictions = predict(scorer, split, SPACE, 4)
  threshold = tune_threshold(predictions)
  assert math.isfinite(threshold)
  values = judge(predictions, Criteria(KS), threshold)['xjax']['all']
  assert values['micro-F1-tuned'] == values['P@1'] == 0
