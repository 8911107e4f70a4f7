"""Judging lists of labels that a first stage chose."""

import dataclasses

import numpy as np
import pytest

from tests.judge.test_make_predictions import SPACE, DenseScorer, L, make_split
from xjax.core.ranking import Lists, Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge, slices_without_lists, tune_threshold
from xjax.judge.make_predictions import predict
from xjax.judge.metrics.protocols import PROTOCOLS
from xjax.judge.predictions import Predictions


class Shortlisting(DenseScorer):
  """Ranks only the labels that another scorer puts on a shortlist."""

  def __init__(self, n_docs, size=3):
    super().__init__(n_docs)
    self.size, self.proposer = size, DenseScorer(n_docs, seed=1)
    self.selected_by = f'shortlist={size}'

  def rank(self, documents, query):
    lists = super().rank(documents, dataclasses.replace(query, k=L))
    few = dataclasses.replace(query, k=self.size)
    ids, kept = lists.ids_GNK, self.proposer.rank(documents, few).ids_GNK
    on_list = (ids[..., None] == kept[:, :, None, :]).any(-1) & (ids != PAD)
    order = np.argsort(~on_list, axis=2, kind='stable')
    ids = np.where(on_list, ids, PAD)
    scores = np.where(on_list, lists.scores_GNK, np.float32(-np.inf))
    return Lists(
      np.take_along_axis(ids, order, 2), np.take_along_axis(scores, order, 2)
    ).first(query.k)


ODD = np.arange(L) % 2 == 1


def test_a_shortlist_does_not_have_the_labels_of_another_slice():
  scorer, split = Shortlisting(37), make_split(37)
  predictions = predict(scorer, split, SPACE, 12)
  assert (predictions.lists['all'].ids[:, -1] == PAD).all()
  metrics = judge(predictions, Criteria((1, 5), slices={'odd': ODD}))
  for name in ('P@5', 'RP@5', 'P@1'):
    assert metrics['xjax']['odd'][name] is None
  assert 'a shortlist of its own' in metrics['notes']['odd']['lists']
  # A label that is not on the shortlist of a slice is not predicted in it.
  for name in ('all', 'few', 'zero'):
    assert metrics['xjax'][name]['P@5'] is not None
    assert metrics['xjax'][name]['micro-F1'] is not None
  assert tune_threshold(predictions) < 0
  # Without a recorded search, a list that ends has all labels.
  unknown = dataclasses.replace(predictions, selected_by='')
  metrics = judge(unknown, Criteria((5,), slices={'odd': ODD}))
  assert metrics['xjax']['odd']['P@5'] is not None


def test_a_list_that_a_beam_ends_does_not_have_all_labels():
  scorer = Shortlisting(37)
  scorer.selected_by = 'beam=3'
  predictions = predict(scorer, make_split(37), SPACE, 12)
  criteria = Criteria((3,), slices={'odd': ODD})
  metrics = judge(predictions, criteria, 2.5)  # no score is as high
  assert metrics['xjax']['odd']['P@3'] is None
  assert 'cut from lists of other slices' in metrics['notes']['odd']['lists']
  assert metrics['xjax']['odd']['micro-F1-tuned'] == 0
  for lists in predictions.lists.values():
    lists.ids[0], lists.scores[0] = PAD, -np.inf
  metrics = judge(predictions, criteria, 2.5)
  assert metrics['xjax']['odd']['micro-F1-tuned'] is None
  assert metrics['xjax']['all']['micro-F1-tuned'] == 0


def test_a_slice_that_is_requested_has_lists_of_its_own(tmp_path):
  scorer, split = Shortlisting(37), make_split(37)
  predictions = predict(scorer, split, SPACE, 12, (ODD,))
  criteria = Criteria((1, 5), slices={'odd': ODD})
  metrics = judge(predictions, criteria)
  assert 'odd' not in metrics['notes']
  ids = scorer.rank(Documents.of_split(split), Query(12, (ODD,))).ids_GNK
  shares = []
  for row, ids_K in enumerate(ids[1]):
    gold = set(split.gold[row].tolist()).intersection(np.flatnonzero(ODD))
    if gold:
      hits = len(gold.intersection(ids_K[:5].tolist()))
      shares.append(hits / min(len(gold), 5))
  assert metrics['xjax']['odd']['RP@5'] == pytest.approx(np.mean(shares))
  some = predictions.of_documents(np.arange(37) < 9)
  assert some.requested[0][1].ids.shape == (9, 12)
  # The lists are not saved.
  predictions.save(tmp_path / 'p.npz')
  loaded = Predictions.load(tmp_path / 'p.npz')
  assert judge(loaded, criteria)['xjax']['odd']['RP@5'] is None


def test_slices_without_lists_are_those_of_all_protocols():
  predictions = predict(DenseScorer(37), make_split(37), SPACE, 12)
  asked = Criteria((1,), protocols=tuple(PROTOCOLS.values()))
  criteria = dataclasses.replace(asked, slices={'odd': ODD})
  masks = slices_without_lists(predictions, criteria)
  assert any(np.array_equal(mask, ODD) for mask in masks)
  again = dataclasses.replace(
    predictions, requested=[(mask, predictions.lists['all']) for mask in masks]
  )
  assert slices_without_lists(again, criteria) == []
  assert slices_without_lists(predictions, Criteria((1,))) == []
