"""Slices by their names: frequency bins, levels of a hierarchy, label lists."""

from collections.abc import Mapping, Sequence
import pathlib
import re

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.texts import Texts
from xjax.data.files.faults import Faults
from xjax.data.formats.taxonomy import NO_LEVEL, label_levels
from xjax.data.labels import read_label_list
from xjax.data.schema import HELD_OUT, Label
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions

_BIN = re.compile(r'bin:(\d+)(?:(\+)|-(\d+))')
_LEVEL = re.compile(r'level:(\d+)')
# Slices that are there anyway.
_THERE = (ALL, 'frequent', 'few', 'zero', HELD_OUT)


def check_slice_names(names: Sequence[str]) -> dict[str, str]:
  """What slices are called.

  Args:
    names: as named_slices.

  Returns:
    What each is called -> its name.

  Raises:
    ConfigError: a name is none of those that named_slices knows, or two slices
      would be called the same.
  """
  found = {}
  for name in names:
    called = _called(name)
    if called in _THERE:
      raise ConfigError(
        f'--slices: {name}: there is a slice {called!r} anyway; call the file '
        'something else'
      )
    if called in found:
      raise ConfigError(
        f'--slices: {found[called]} and {name} are both called {called!r}'
      )
    found[called] = name
  return found


def needs_labels(name: str) -> bool:
  """Whether a slice is made of what descriptors say."""
  return bool(_LEVEL.fullmatch(name))


def named_slices(
  names: Sequence[str],
  predictions: Predictions,
  described: Mapping[str, Label],
) -> dict[str, np.ndarray]:
  """Slices beside frequent, few and zero.

  Args:
    names: `bin:1-9` or `bin:1000+`, labels by their training documents;
      `level:2`, labels at this depth of their hierarchy, 1 at the top; or a
      file with a label id per line, which gives its name without endings.
    predictions: whose labels.
    described: label id -> descriptor, those of other labels as well: ways up
      may lead through them.

  Returns:
    Name -> bool [L].

  Raises:
    ConfigError: a name is none of these, or what it takes is not given.
    DataError: the file has faults, or ids that are no labels.
  """
  return {
    called: _mask(name, predictions, described)
    for called, name in check_slice_names(names).items()
  }


def _called(name: str) -> str:
  if found := _BIN.fullmatch(name):
    low, _, high = found.groups()
    if high is not None and int(high) < int(low):
      raise ConfigError(
        f'--slices: {name} holds nothing: {low} is above {high}'
      )
    return name
  if _LEVEL.fullmatch(name):
    return name
  path = pathlib.Path(name).expanduser()
  if not path.is_file():
    raise ConfigError(
      f'--slices: {name!r} is neither bin:LOW-HIGH, bin:LOW+ nor level:N, nor '
      'a file of label ids'
    )
  return path.name.partition('.')[0] or path.name


def _mask(
  name: str, predictions: Predictions, described: Mapping[str, Label]
) -> np.ndarray:
  if found := _BIN.fullmatch(name):
    return _in_bin(name, predictions, int(found[1]), found[3])
  if found := _LEVEL.fullmatch(name):
    return _at_level(name, predictions, described, int(found[1]))
  return _listed(pathlib.Path(name).expanduser(), predictions)


def _in_bin(
  name: str, predictions: Predictions, low: int, high: str | None
) -> np.ndarray:
  if not predictions.n_train:
    raise ConfigError(f'--slices: {name} needs the training labels')
  counts = predictions.train_counts
  return (counts >= low) & (counts <= (np.inf if high is None else int(high)))


def _at_level(
  name: str,
  predictions: Predictions,
  described: Mapping[str, Label],
  level: int,
) -> np.ndarray:
  if not any(label.parents for label in described.values()):
    raise ConfigError(
      f'--slices: {name} needs labels with parents; --labels=FILE gives them'
    )
  found = label_levels(tuple(described.values())).tolist()
  levels = dict(zip(described, found, strict=True))
  # A label that nobody describes is at no level.
  levels_L = np.array([levels.get(id_, NO_LEVEL) for id_ in predictions.labels])
  if not (levels_L == level).any():
    deepest = levels_L.max(initial=NO_LEVEL)
    known = (
      f'their levels are 1 to {deepest}' if deepest > 0 else 'none has any'
    )
    raise ConfigError(f'--slices: no label is at {name}: {known}')
  return levels_L == level


def _listed(path: pathlib.Path, predictions: Predictions) -> np.ndarray:
  faults = Faults(on_error=None)
  known = Texts.of(predictions.labels).row_of
  ids = read_label_list(path, known, faults)
  faults.settle()
  mask_L = np.zeros(len(known), bool)
  mask_L[known.find(ids)] = True
  return mask_L
