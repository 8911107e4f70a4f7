"""Says how often labels are used around the date of a document."""

from collections.abc import Iterator
import dataclasses

from jaxtyping import Float32, Int64
import numpy as np

from xjax.core.types import Ragged

_SPAN = 1_000_000  # more days than there are between two dates
_WINDOWS = 2, 15, 100, 365, 1460  # days before and after a date
_SMOOTHING = 20  # documents with the usual share of the label
# Names of the features: the log of the share of a label in a window, relative
# to its share in all documents, and the days since and until its nearest uses.
USE = (
  *(f'use in {days} days' for days in _WINDOWS),
  'days since',
  'days until',
)


@dataclasses.dataclass(frozen=True, eq=False)
class LabelUse:
  """Holds the dates of training documents, and those of each of L labels."""

  days: np.ndarray  # int64, ascending, of documents with a date
  label_days: np.ndarray  # int64, label * _SPAN + day, ascending
  # float64 [L + 1], shares of all documents, smoothed; the last one is that of
  # labels without documents.
  shares_L: np.ndarray

  @classmethod
  def of(
    cls, days_N: Float32[np.ndarray, ' N'], gold: Ragged, n_labels: int
  ) -> 'LabelUse':
    """Reads dates, NaN if unknown, and the labels of documents."""
    dated = ~np.isnan(days_N)
    own = gold.take(np.flatnonzero(dated))
    days = days_N[dated].astype(np.int64)
    label_days = own.values.astype(np.int64) * _SPAN + days[own.owners]
    counts_L = np.bincount(own.values, minlength=n_labels + 1)
    shares_L = (counts_L + 0.5) / (len(days) + 1)
    return cls(np.sort(days), np.sort(label_days), shares_L)

  def features(
    self, days_X: Float32[np.ndarray, ' X'], label: Int64[np.ndarray, ' X']
  ) -> Iterator[Float32[np.ndarray, ' X']]:
    """Yields the features USE of pairs of a date and a label.

    NaN stands for unknown dates. Labels from L on have no documents.
    """
    unknown = np.isnan(days_X)
    day = np.where(unknown, 0, days_X).astype(np.int64)
    at = label * _SPAN + day
    usual = self.shares_L[np.minimum(label, len(self.shares_L) - 1)]
    for window in _WINDOWS:
      own = _within(self.label_days, at, window)
      every = _within(self.days, day, window)
      share = (own + _SMOOTHING * usual) / (every + _SMOOTHING)
      yield _known(np.log(share / usual), unknown)
    # Padded, so that each date has a use before it and after it, if perhaps of
    # another label.
    padded = np.concatenate([[-_SPAN], self.label_days, [-_SPAN]])
    before = np.searchsorted(self.label_days, at, 'right')
    after = 1 + np.searchsorted(self.label_days, at)
    for place in before, after:
      near = padded[place]
      yield _known(np.abs(near - at), unknown | (near // _SPAN != label))


def _within(
  ascending: Int64[np.ndarray, ' days'], at: np.ndarray, window: int
) -> Int64[np.ndarray, ' X']:
  first = np.searchsorted(ascending, at - window)
  return np.searchsorted(ascending, at + window, 'right') - first


def _known(
  values: np.ndarray, unknown: np.ndarray
) -> Float32[np.ndarray, ' X']:
  return np.where(unknown, np.nan, values).astype(np.float32)
