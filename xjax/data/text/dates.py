"""Finds the date of a text: the first date that is written in it."""

from collections.abc import Iterable
import datetime
import re

from jaxtyping import Float32
import numpy as np

_MONTHS = (
  'january february march april may june july august september october '
  'november december'
).split()
_MONTH = f'(?P<month>{"|".join(_MONTHS)})'
_YEAR = r'(?P<year>1[5-9][0-9]{2}|20[0-9]{2})'
# 2003-03-05; 5 March 2003; March 5, 2003.
_FORMS = [
  re.compile(rf'\b{form}\b', re.IGNORECASE)
  for form in (
    rf'{_YEAR}-(?P<number>0[1-9]|1[0-2])-(?P<day>[0-3][0-9])',
    rf'(?P<day>[0-3]?[0-9])\.? {_MONTH},? {_YEAR}',
    rf'{_MONTH} (?P<day>[0-3]?[0-9]),? {_YEAR}',
  )
]
_ALONE = re.compile(rf'\b{_YEAR}\b')
_MIDDLE = (7, 1)  # the month and day of a date that is only a year


def days_of(texts: Iterable[str]) -> Float32[np.ndarray, ' N']:
  """Returns the dates of texts as numbers of days; NaN where there is none.

  It is the first date with a day (`2003-03-05`, `5 March 2003`,
  `March 5, 2003`), or else the first number that may be a year.
  """
  return np.array([_day(text) for text in texts], np.float32)


def _day(text: str) -> float:
  found = filter(None, (form.search(text) for form in _FORMS))
  for date in sorted(found, key=lambda date: date.start()):
    parts = date.groupdict()
    month = parts.get('number') or 1 + _MONTHS.index(parts['month'].lower())
    try:
      at = int(parts['year']), int(month), int(parts['day'])
      return datetime.date(*at).toordinal()
    except ValueError:  # such as 31 June
      continue
  year = _ALONE.search(text)
  if not year:
    return np.nan
  return datetime.date(int(year['year']), *_MIDDLE).toordinal()
