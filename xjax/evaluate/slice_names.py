"""Slices by their names: frequency bins, levels of a hierarchy, label lists."""

from collections.abc import Mapping, Sequence
import pathlib
import re

import numpy as np

from xjax.core.errors import ConfigError
from xjax.data.faults import Faults
from xjax.data.hierarchy import label_levels
from xjax.data.labels import read_label_list
from xjax.data.schema import Label
from xjax.evaluate.predictions import Predictions

_BIN = re.compile(r'bin:(\d+)(?:(\+)|-(\d+))')
_LEVEL = re.compile(r'level:(\d+)')


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
  return dict(_slice(name, predictions, described) for name in names)


def _slice(
  name: str, predictions: Predictions, described: Mapping[str, Label]
) -> tuple[str, np.ndarray]:
  if found := _BIN.fullmatch(name):
    low, _, high = found.groups()
    return name, _in_bin(name, predictions, int(low), high)
  if found := _LEVEL.fullmatch(name):
    return name, _at_level(name, predictions, described, int(found[1]))
  path = pathlib.Path(name).expanduser()
  if not path.is_file():
    raise ConfigError(
      f'--slices: {name!r} is neither bin:LOW-HIGH, bin:LOW+ nor level:N, nor '
      'a file of label ids'
    )
  return path.name.partition('.')[0], _listed(path, predictions)


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
  labels = [described.get(id_) or Label(id_) for id_ in predictions.labels]
  if not any(label.parents for label in described.values()):
    raise ConfigError(
      f'--slices: {name} needs labels with parents; --labels=FILE gives them'
    )
  return label_levels(labels, tuple(described.values())) == level


def _listed(path: pathlib.Path, predictions: Predictions) -> np.ndarray:
  faults = Faults(on_error=None)
  known = {id_: Label(id_) for id_ in predictions.labels}
  ids = read_label_list(path, known, faults)
  faults.settle()
  return np.isin(np.array(predictions.labels), np.array(ids))
