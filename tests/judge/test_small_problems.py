"""Small splits are judged by NumPy, large ones by compiled programs."""

import contextlib
import logging

import numpy as np
import pytest

from tests.judge.systems import system
from xjax.core.types import PAD
from xjax.judge import slice as judged_slice
from xjax.judge.criteria import Criteria
from xjax.judge.judge import document_lines, judge
from xjax.judge.metrics import label_sums, resampling
from xjax.judge.metrics.protocols import PECOS, XJAX

L, N, K = 30, 70, 8


def predictions(n_docs=N):
  rng = np.random.default_rng(n_docs)
  ids = np.stack([rng.permutation(L)[:K] for _ in range(n_docs)])
  scores = -np.sort(-rng.normal(size=(n_docs, K)), axis=1)
  ids[::4, -2:], scores[::4, -2:] = PAD, -np.inf
  golds = [
    [*row[row != PAD][::3]] if i % 5 else [] for i, row in enumerate(ids)
  ]
  return system(ids, scores, golds, rng.integers(0, 90, L), n_train=1000)


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
  criteria = Criteria(ks=(1, 2, 7), replicates=12)
  with compilations() as compiled:
    judge(odd, criteria, threshold=0.25)
    assert len([*document_lines(odd, criteria)]) == 67
  assert compiled == []


def test_numpy_and_compiled_programs_give_the_same_metrics(monkeypatch):
  criteria = Criteria(
    ks=(1, 5),
    protocols=(XJAX, PECOS),
    ranks_LK=np.random.default_rng(1).random((L, K)),
    replicates=10,
  )
  small = judge(predictions(), criteria, threshold=0.25)
  for module in (judged_slice, label_sums, resampling):
    monkeypatch.setattr(module, '_NUMPY_UP_TO', 0)
  with compilations() as compiled:
    large = judge(predictions(), criteria, threshold=0.25)
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
