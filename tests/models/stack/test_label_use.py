"""Tests how often labels are used around the date of a document."""

from hypothesis import given, settings, strategies as st
import numpy as np

from xjax.core.types import Ragged
from xjax.models.stack.label_use import _SMOOTHING, _WINDOWS, USE, LabelUse

LABELS = 4  # the last one has no documents
DAYS = st.one_of(st.none(), st.integers(700_000, 702_000))
DOCUMENTS = st.lists(
  st.tuples(DAYS, st.sets(st.integers(0, LABELS - 2))), max_size=12
)


def by_definition(documents, day, label):
  """Returns the features of a date and a label, by a slow search."""
  dated = [(x, labels) for x, labels in documents if x is not None]
  uses = [x for x, labels in dated if label in labels]
  usual = (len(uses) + 0.5) / (len(dated) + 1)
  row = []
  for window in _WINDOWS:
    own = sum(abs(x - day) <= window for x in uses)
    every = sum(abs(x - day) <= window for x, _ in dated)
    share = (own + _SMOOTHING * usual) / (every + _SMOOTHING)
    row.append(np.log(share / usual))
  row.append(min((day - x for x in uses if x <= day), default=np.nan))
  row.append(min((x - day for x in uses if x >= day), default=np.nan))
  return row


@settings(deadline=None)
@given(DOCUMENTS, st.lists(DAYS, min_size=1, max_size=4))
def test_features_by_definition(documents, dates):
  days = np.array([x or np.nan for x, _ in documents], np.float32)
  gold = Ragged.of([sorted(labels) for _, labels in documents])
  use = LabelUse.of(days, gold, LABELS - 1)
  at, label = (x.ravel() for x in np.mgrid[: len(dates), :LABELS])
  asked = np.array([x or np.nan for x in dates], np.float32)[at]
  found = np.stack(list(use.features(asked, label)), axis=1)
  assert found.dtype == np.float32 and found.shape[1] == len(USE)
  for row, date, number in zip(found, at, label, strict=True):
    if dates[date] is None:
      assert np.isnan(row).all()
    else:
      expected = by_definition(documents, dates[date], number)
      np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-6)
