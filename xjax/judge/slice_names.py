"""Makes slices from the names of bins, hierarchy levels and label files."""

from collections.abc import Sequence
import pathlib
import re

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.texts import Texts
from xjax.core.types import PAD
from xjax.data.files.faults import Faults
from xjax.data.formats.label_files import read_ids
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import HELD_OUT
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

_BIN = re.compile(r'bin:(\d+)(?:(\+)|-(\d+))')
_LEVEL = re.compile(r'level:(\d+)')
# Names of slices that always exist.
_STANDARD = (ALL, 'frequent', 'few', 'zero', HELD_OUT)


def check_slice_names(names: Sequence[str]) -> dict[str, str]:
  """Checks the names of slices; returns the full names by short names."""
  by_short_name = {}
  for name in names:
    short_name = _short_name(name)
    if short_name in _STANDARD:
      raise ConfigError(
        f'--slices: {name}: there is a slice {short_name!r} already; rename '
        'the file'
      )
    if short_name in by_short_name:
      raise ConfigError(
        f'--slices: {by_short_name[short_name]} and {name} are both called '
        f'{short_name!r}'
      )
    by_short_name[short_name] = name
  return by_short_name


def needs_parents(name: str) -> bool:
  """Returns whether a slice depends on the parents of labels."""
  return bool(_LEVEL.fullmatch(name))


def named_slices(
  names: Sequence[str], predictions: Predictions, hierarchy: Hierarchy | None
) -> dict[str, np.ndarray]:
  """Makes the slices, bool [L], that a user requests besides the standard ones.

  `bin:1-9` has the labels with 1 to 9 training documents, `bin:1000+` those
  with at least 1000, and `level:2` those at depth 2 of the hierarchy, where the
  top has depth 1. Any other name is the path of a file with a label id per
  line, which is named without folders and extensions.
  """
  masks = {
    short_name: _mask(name, predictions, hierarchy)
    for short_name, name in check_slice_names(names).items()
  }
  for name, mask_L in masks.items():
    if mask_L.any() and not (mask_L & predictions.masks[ALL]).any():
      raise _all_left_out(name)
  return masks


def _all_left_out(name: str) -> ConfigError:
  return ConfigError(
    f'--slices: all labels of {name} are left out of judging; choose another '
    'slice, or leave out fewer labels'
  )


def _short_name(name: str) -> str:
  if match := _BIN.fullmatch(name):
    low, _, high = match.groups()
    if high is not None and int(high) < int(low):
      raise ConfigError(f'--slices: {name} is empty: {low} is above {high}')
    return name
  if _LEVEL.fullmatch(name):
    return name
  path = pathlib.Path(name).expanduser()
  if not path.is_file():
    raise ConfigError(
      f'--slices: {name!r} is neither bin:LOW-HIGH, bin:LOW+, level:N nor a '
      'file of label ids'
    )
  return path.name.partition('.')[0] or path.name


def _mask(
  name: str, predictions: Predictions, hierarchy: Hierarchy | None
) -> np.ndarray:
  if match := _BIN.fullmatch(name):
    return _in_bin(name, predictions, int(match[1]), match[3])
  if match := _LEVEL.fullmatch(name):
    return _at_level(name, predictions, hierarchy, int(match[1]))
  return _in_file(pathlib.Path(name).expanduser(), predictions)


def _in_bin(
  name: str, predictions: Predictions, low: int, high: str | None
) -> np.ndarray:
  if not predictions.n_train:
    raise ConfigError(f'--slices: {name} needs the training labels')
  counts = predictions.train_counts
  return (counts >= low) & (counts <= (np.inf if high is None else int(high)))


def _at_level(
  name: str, predictions: Predictions, hierarchy: Hierarchy | None, level: int
) -> np.ndarray:
  if hierarchy is None or hierarchy.is_flat:
    raise ConfigError(
      f'--slices: {name} needs labels with parents; read such labels from a '
      'file by --labels=FILE'
    )
  levels_L = hierarchy.levels[: len(predictions.labels)]
  if not (levels_L == level).any():
    dropped = hierarchy.ids.row_of.find(predictions.dropped)
    if (hierarchy.levels[dropped[dropped != PAD]] == level).any():
      raise _all_left_out(name)
    raise ConfigError(
      f'--slices: no label is at {name}; the levels of the labels are 1 to '
      f'{levels_L.max(initial=1)}'
    )
  return levels_L == level


def _in_file(path: pathlib.Path, predictions: Predictions) -> np.ndarray:
  faults = Faults(on_error=None)
  index = Texts.of(predictions.labels).row_of
  ids = tuple(read_ids(path, faults, described=index))
  faults.raise_or_log()
  mask_L = np.zeros(len(index), bool)
  mask_L[index.find(ids)] = True
  return mask_L
