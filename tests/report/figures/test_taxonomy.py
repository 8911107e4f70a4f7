"""Checks the picture of the hierarchy: widths, F1, and what is not drawn."""

import dataclasses

import numpy as np
import pytest

from tests.report.conftest import luminance
from xjax.core.types import Ragged, ScoreKind
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions
from xjax.report.figures.taxonomy import PALETTE, taxonomy_blocks
from xjax.report.page.page import Text
from xjax.report.runs import Group, JudgedRun

# The concept z is above a and b; c has two parents; e and f are never gold.
PARENTS = {
  'a': ('z',),
  'b': ('z',),
  'c': ('b', 'a'),
  'd': (),
  'e': ('d',),
  'f': (),
}
NAMES = {'a': 'air', 'z': 'zone'}


def predictions(gold, predicted, labels=tuple(PARENTS), **fields):
  ids = np.full((len(gold), len(labels)), -1, np.int32)
  for row, listed in enumerate(predicted):
    ids[row, : len(listed)] = [labels.index(label) for label in listed]
  scores = np.where(ids < 0, -np.inf, 0.9).astype(np.float32)
  system = Predictions(
    score_kind=ScoreKind.PROBABILITY,
    n_scored=len(labels),
    n_train=0,
    doc_ids=tuple(map(str, range(len(gold)))),
    labels=labels,
    train_counts=np.zeros(len(labels), np.int32),
    lists={'all': LabelLists(ids, scores)},
    gold=Ragged.of([sorted(map(labels.index, row)) for row in gold]),
    hierarchy=Hierarchy.of(
      [Label(id_, parents=PARENTS.get(id_, ())) for id_ in labels], [Label('z')]
    ),
  )
  return dataclasses.replace(system, **fields)


GOLD = [['a', 'c'], ['c', 'b'], ['c', 'd'], ['a'], []]
OURS = predictions(GOLD, [['a', 'b'], ['c'], ['d', 'c'], ['e'], ['a']])


def group(name, system):
  return Group(name, (JudgedRun(name, None, '', None, {}, system),))


def blocks_of(*systems, hierarchy=OURS.hierarchy):
  groups = [group(f's{i}', system) for i, system in enumerate(systems)]
  return taxonomy_blocks(groups, hierarchy, NAMES)


def test_widths_are_supports_or_the_sum_of_what_is_below():
  (tree,) = blocks_of(OURS)
  widths = dict(zip(tree.ids, tree.widths))
  # c is below b, its first parent; b is as wide as c, and z as a and b.
  assert widths == {'a': 2, 'b': 3, 'c': 3, 'd': 1, 'z': 5}
  above = [tree.ids[place] if place >= 0 else '' for place in tree.parents]
  assert dict(zip(tree.ids, zip(above, tree.counts, tree.levels))) == {
    'a': ('z', 2, 2),
    'b': ('z', 1, 2),
    'c': ('b', 3, 3),
    'd': ('', 1, 1),
    'z': ('', None, 1),
  }
  assert tree.names[tree.ids.index('z')] == 'zone'
  caption = tree.caption
  assert '1 of the bars have several parents' in caption
  assert 'gold: 2 labels and concepts' in caption


def test_colours_are_the_f1_of_each_label():
  theirs = predictions(GOLD, GOLD)
  (tree,) = blocks_of(OURS, theirs)
  ours = dict(zip(tree.ids, tree.values['s0']))
  # TP, FP and FN of a are 1, 1, 1.
  assert ours == pytest.approx(
    {'a': 2 / 4, 'b': 0, 'c': 2 * 2 / 5, 'd': 1, 'z': None}
  )
  assert dict(zip(tree.ids, tree.values['s1'])) == {
    **dict.fromkeys('abcd', 1.0),
    'z': None,
  }
  assert 'Predicted are, by s0, the labels above the thr' in tree.caption
  assert 'zone, ' not in tree.alt and 's1 1.00' in tree.alt


def test_margins_are_judged_by_the_first_labels():
  margins = dataclasses.replace(OURS, score_kind=ScoreKind.MARGIN)
  (tree,) = blocks_of(margins)
  assert 'the first 5 labels of each list' in tree.caption
  short = dataclasses.replace(OURS, lists={'all': OURS.lists['all'].first(1)})
  (tree,) = blocks_of(short)
  assert 'the first 5 labels of each list' in tree.caption


def test_systems_may_have_other_labels():
  order = tuple('fdcba')
  moved = predictions(GOLD, [['a', 'b'], ['c'], ['d', 'c'], [], ['a']], order)
  (tree,) = blocks_of(OURS, moved)
  assert tree.values['s0'] == tree.values['s1']


def test_labels_left_out_of_judging_are_grey_bars():
  system = OURS.leaving_out(np.array([1]))  # b, which is above c
  for shown in (system, system.of_judged_labels()):
    (tree,) = blocks_of(shown, hierarchy=shown.hierarchy)
    place = tree.ids.index('b')
    assert tree.widths[place] == 3 and tree.values['s0'][place] is None
    assert 'labels that are left out of judging' in tree.caption


def test_without_gold_there_is_nothing_to_draw():
  none = predictions([[]] * 5, [[]] * 5)
  (said,) = blocks_of(none)
  assert isinstance(said, Text) and 'No document has a gold label' in said.text


def test_texts_can_be_read_on_every_colour():
  inks = {'black': 0, 'white': 1}
  for colour, ink in PALETTE:
    lights = sorted([luminance(*bytes.fromhex(colour[1:])), inks[ink]])
    assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, colour
