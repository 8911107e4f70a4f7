"""Tests how the dates of texts are found."""

import datetime

import numpy as np
import pytest

from xjax.data.text.dates import days_of


@pytest.mark.parametrize(
  ('text', 'date'),
  [
    ('Regulation No 7/88 of 5 March 2003 and 6 April 2004', (2003, 3, 5)),
    ('In 1999, on March 15, 2003', (2003, 3, 15)),
    ('done at BRUSSELS, 1 MAY 1958.', (1958, 5, 1)),
    ('2019-12-31 or 1 May 1958', (2019, 12, 31)),
    ('31 June 2003, then 1 July 2003', (2003, 7, 1)),
    ('written in 1987', (1987, 7, 1)),
    ('act 12003 and 0999', None),
    ('', None),
  ],
)
def test_the_first_date_counts(text, date):
  (day,) = days_of([text])
  assert day.dtype == np.float32
  if date is None:
    assert np.isnan(day)
  else:
    assert day == datetime.date(*date).toordinal()
