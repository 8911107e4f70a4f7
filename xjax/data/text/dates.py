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
_MONTH = f'({"|".join(_MONTHS)})'
_YEAR = '(1[5-9][0-9]{2}|20[0-9]{2})'
_DAY = '([0-3]?[0-9])'
# 2003-03-05; 5 March 2003; March 5, 2003.
_DATE = re.compile(
  rf'\b(?:{_YEAR}-(0[1-9]|1[0-2])-([0-3][0-9])'
  rf'|{_DAY}\.? {_MONTH},? {_YEAR}'
  rf'|{_MONTH} {_DAY},? {_YEAR})(?=T|\b)',  # T: a time follows
  re.IGNORECASE | re.ASCII,  # not the long s of old prints
)
_ALONE = re.compile(rf'\b{_YEAR}\b', re.ASCII)
_MIDDLE = (7, 1)  # the month and day of a date that is only a year


def days_of(texts: Iterable[str]) -> Float32[np.ndarray, ' N']:
  """Returns the dates of texts as numbers of days; NaN where there is none.

  It is the first date with a day (`2003-03-05`, `5 March 2003`,
  `March 5, 2003`), or else the first number that may be a year.
  """
  return np.array([_day(text) for text in texts], np.float32)


def is_date(line: str) -> bool:
  """Returns whether a line is a year, or begins with a date."""
  return bool(_DATE.match(line) or _ALONE.fullmatch(line))


def _day(text: str) -> float:
  for date in _DATE.finditer(text):
    # Only the three parts of one of the forms are there.
    year, month, day, day_2, name_2, year_2, name_3, day_3, year_3 = (
      date.groups()
    )
    month = month or 1 + _MONTHS.index((name_2 or name_3).lower())
    at = year or year_2 or year_3, month, day or day_2 or day_3
    try:
      return datetime.date(*map(int, at)).toordinal()
    except ValueError:  # such as 31 June
      continue
  year = _ALONE.search(text)
  if not year:
    return np.nan
  return datetime.date(int(year[0]), *_MIDDLE).toordinal()
