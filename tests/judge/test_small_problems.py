"""How a split is judged changes no result.

Small splits are judged by NumPy, large ones by compiled programs. Where there
are many labels, only those that are seen are counted.
"""

import contextlib
import logging

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import PAD
from xjax.judge import slice as judged_slice
from xjax.judge.criteria import Criteria
from xjax.judge.evidence import SliceStatistics
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics import label_sums, resampling
from xjax.judge.metrics.protocols import PECOS, XJAX
from xjax.judge.metrics.slices import ALL
from xjax.judge.slice import Slice

N, L, K = 70, 700, 6


def predictions(n_docs=N):
  """Lists of the even labels up to 400, some short, and gold among them."""
  rng = np.random.default_rng(n_docs)
  ids = 2 * np.stack([rng.permutation(200)[:K] for _ in range(n_docs)])
  scores = -np.sort(-rng.normal(size=(n_docs, K)), axis=1)
  ids[::4, -2:], scores[::4, -2:] = PAD, -np.inf
  golds = [
    row[row != PAD][::3] + [0, 1] if i % 5 else [] for i, row in enumerate(ids)
  ]
  return system(ids, scores, golds, rng.integers(0, 90, L), n_train=1000)


def criteria(**fields):
  ranks_LK = np.random.default_rng(1).random((L, K))
  return Criteria(ks=(1, 3), ranks_LK=ranks_LK, **fields)


@contextlib.contextmanager
def compilations():
  """Yields a list, to which the name of each compiled program is added."""
  names = []

  class Handler(logging.Handler):
    def emit(self, record):
      if 'Finished XLA compilation of' in record.getMessage():
        names.append(record.getMessage())

  logger, handler = logging.getLogger('jax._src.dispatch'), Handler()
  level, logger.propagate = logger.level, False
  logger.setLevel(logging.DEBUG)
  logger.addHandler(handler)
  try:
    yield names
  finally:
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(level)


def test_a_small_split_is_judged_without_compiling():
  # No other test has these shapes, so none has compiled the programs.
  odd = predictions(n_docs=67)
  by = Criteria(ks=(1, 2, 7), replicates=12)
  with compilations() as compiled:
    judge(odd, by, threshold=0.25)
    assert len([*document_lines(odd, by)]) == 67
  assert compiled == []


def test_numpy_and_compiled_programs_give_the_same_metrics(monkeypatch):
  by = criteria(protocols=(XJAX, PECOS), replicates=10)
  small = judge(predictions(), by, threshold=0.25)
  for module in (judged_slice, label_sums, resampling):
    monkeypatch.setattr(module, '_NUMPY_UP_TO', 0)
  with compilations() as compiled:
    large = judge(predictions(), by, threshold=0.25)
  assert compiled
  assert leaves(small) == pytest.approx(leaves(large), rel=1e-12, abs=1e-14)


def leaves(tree, path=()):
  """Returns the numbers in nested dicts and lists, by path."""
  if isinstance(tree, dict):
    parts = (leaves(value, (*path, key)) for key, value in tree.items())
  elif isinstance(tree, list):
    parts = (leaves(value, (*path, i)) for i, value in enumerate(tree))
  else:
    return {path: tree} if isinstance(tree, int | float) else {}
  return {key: value for part in parts for key, value in part.items()}


def evidence_of(found):
  part = Slice.of(found, ALL, found.masks[ALL])
  cuts = {'': 0.0}
  return SliceStatistics.of(part, criteria(), [XJAX], cuts, found.n_train)


def test_sums_over_seen_labels_are_the_same(monkeypatch):
  found = predictions(13)
  every = evidence_of(found)
  monkeypatch.setattr(judged_slice, '_COUNT_ALL_UP_TO', 0)
  some = evidence_of(found)
  assert (every.form.n_labels, some.form.n_labels) == (L, 128)
  assert len(every.sums) > 50
  assert every.sums == pytest.approx(some.sums, rel=1e-12)
  assert every.short == some.short
  for ours, theirs in zip(some.documents(), every.documents(), strict=True):
    np.testing.assert_array_equal(ours, theirs)
