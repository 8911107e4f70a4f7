"""Turns a user's request for judging into criteria."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import enum
import math
import os
import pathlib
import re

import numpy as np
import scipy.sparse

from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.core.texts import Texts
from xjax.core.types import MOST_RANKS, PAD, Ragged
from xjax.data.files.faults import Faults
from xjax.data.formats.label_files import (
  is_table,
  read_concepts,
  read_descriptors,
  read_ids,
  read_taxonomy,
)
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import HELD_OUT, Label
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.diversity import co_occurrence, descriptor_vectors
from xjax.judge.metrics.metric import (
  MetricSettings,
  Needs,
  Protocol,
  kinds_where,
)
from xjax.judge.metrics.protocols import PROTOCOLS, XJAX
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


ALL_PROTOCOLS = 'all'


class Similarity(enum.Enum):
  """Says how ILD (intra-list diversity) measures the similarity of labels."""

  NONE = 'none'
  DESCRIPTORS = 'descriptors'
  CO_OCCURRENCE = 'co_occurrence'


@dataclasses.dataclass(frozen=True)
class JudgeRequest:
  """Holds a user's request for judging, as read from flags or a config.

  If `ks` or `propensity` is empty, the values of the run, or else the defaults,
  are used.
  """

  ks: Sequence[int] = ()  # cut-offs
  kinds: Sequence[str] = ()  # such as `P` or `macro-F1@k`; () for all metrics
  protocols: Sequence[str] = (XJAX.name,)  # by name, or `all`
  propensity: Sequence[float] = ()  # A and B of the formula
  slices: Sequence[str] = ()  # Further slices, as in named_slices.
  # File of descriptors: labels.jsonl, eurovoc_en.json, or a taxonomy of
  # tab-separated lines. Its parents replace the hierarchy of the predictions.
  labels: str = ''
  similarity: Similarity = Similarity.NONE  # of labels, for the metric ILD
  rank_weights: str = ''  # .npy of float [L, K]: label, place; for weighted@k
  # Recalls from 0 to 1, for coverage[a]@k.
  alphas: Sequence[float] = MetricSettings.alphas
  draws: Sequence[int] = MetricSettings.draws  # of documents, for coverage[n]@k
  replicates: int = 0  # of the bootstrap; if 0, there are no intervals
  seed: int = 0  # of the bootstrap's draws

  def __post_init__(self) -> None:
    _cut_offs(self.ks)
    kinds, protocols = _kinds(self.kinds), _protocols(self.protocols)
    _propensity(self.propensity)
    _metric_settings(self.alphas, self.draws)
    check_slice_names(self.slices)
    if self.labels and not pathlib.Path(self.labels).expanduser().is_file():
      raise ConfigError(f'--labels={self.labels}: no such file')
    if kinds and not any(set(kinds) & set(p.kinds) for p in protocols):
      raise ConfigError(
        f'--metrics: the protocols {", ".join(p.name for p in protocols)} '
        'print none of these metrics'
      )
    self._check_needs(kinds)

  def _check_needs(self, kinds: Sequence[str]) -> None:
    has_similarity = self.similarity is not Similarity.NONE
    for need, flag, is_set in (
      (Needs.SIMILARITY, '--similarity', has_similarity),
      (Needs.RANK_WEIGHTS, '--rank_weights', bool(self.rank_weights)),
    ):
      users = kinds_where(lambda metric, need=need: metric.needs is need)
      requested = [kind for kind in users if kind in kinds]
      if requested and not is_set:
        raise ConfigError(f'--metrics: {requested[0]} needs {flag}')

  def criteria(
    self,
    predictions: Predictions,
    weights_L: np.ndarray | None = None,
    labels: Sequence[Label] = (),
    train_gold: Callable[[], Ragged] | None = None,
    usual: Criteria | None = None,
  ) -> Criteria:
    """Returns the criteria for judging the given predictions.

    Args:
      weights_L: float64, inverse propensities from a file.
      labels: the descriptors of the run.
      train_gold: returns the gold label indices of the training documents.
      usual: criteria, for example of a run, that give missing cut-offs and
        propensity; None for the defaults.
    """
    described = {label.id: label for label in labels}
    hierarchy = None
    if self.labels:
      listed = read_described(pathlib.Path(self.labels).expanduser())
      described |= listed
      if self._has_parents(listed):
        hierarchy = _hierarchy(predictions.labels, described)
    usual = usual or Criteria()
    ks = _cut_offs(self.ks) or tuple(usual.ks)
    return Criteria(
      ks=ks,
      kinds=_kinds(self.kinds),
      protocols=_protocols(self.protocols),
      propensity=_propensity(self.propensity) or usual.propensity,
      weights_L=weights_L,
      slices=named_slices(
        self.slices, predictions, hierarchy or predictions.hierarchy
      ),
      vectors_LD=self._vectors(predictions, described, train_gold),
      ranks_LK=self._rank_weights(len(predictions.labels), max(ks)),
      settings=_metric_settings(self.alphas, self.draws),
      replicates=self.replicates,
      seed=self.seed,
      hierarchy=hierarchy,
    )

  def _has_parents(self, listed: Mapping[str, Label]) -> bool:
    """Returns whether a label in the file has a parent.

    If none has, and nothing else needs the file, a ConfigError is raised.
    """
    if any(label.parents for label in listed.values()):
      return True
    if self.similarity is not Similarity.DESCRIPTORS:
      raise ConfigError(
        f'--labels={self.labels}: no label has a parent, so the file has no '
        'effect; give a file with parents, or request '
        '--similarity=descriptors'
      )
    return False

  def _rank_weights(self, n_labels: int, deepest: int) -> np.ndarray | None:
    """Reads the weights of weighted@k, float64 [L, K]; None without a file."""
    path = self.rank_weights
    if not path:
      return None
    try:
      weights_LK = np.load(os.path.expanduser(path), allow_pickle=False)
      shape, kind = tuple(weights_LK.shape), weights_LK.dtype.kind
    except DAMAGE as error:
      raise DataError(f'{path}: cannot be read as .npy: {error}') from error
    fits = len(shape) == 2 and shape[0] == n_labels and shape[1] >= deepest
    if not fits or kind != 'f' or not np.isfinite(weights_LK).all():
      raise DataError(
        f'{path}: W of weighted@k must be finite and float [{n_labels}, '
        f'{deepest} or more], but is {weights_LK.dtype} {list(shape)}'
      )
    return weights_LK.astype(np.float64)

  def _vectors(
    self,
    predictions: Predictions,
    described: Mapping[str, Label],
    train_gold: Callable[[], Ragged] | None,
  ) -> scipy.sparse.csr_array | None:
    """Makes the label vectors of ILD; None if no similarity is requested."""
    if self.similarity is Similarity.NONE:
      return None
    if self.similarity is Similarity.CO_OCCURRENCE:
      if train_gold is None:
        raise ConfigError('--similarity=co_occurrence needs --train_labels')
      return co_occurrence(train_gold(), len(predictions.labels))
    if not described:
      raise ConfigError('--similarity=descriptors needs --labels')
    if not described.keys() & set(predictions.labels):
      raise ConfigError(
        '--similarity=descriptors: the file of --labels has no label of the '
        'predictions'
      )
    labels = [described.get(id_) or Label(id_) for id_ in predictions.labels]
    return descriptor_vectors(
      ' '.join((label.name, *label.alt, label.description)) for label in labels
    )


def _hierarchy(ids: Sequence[str], described: Mapping[str, Label]) -> Hierarchy:
  judged = [described.get(id_) or Label(id_, id_) for id_ in ids]
  return Hierarchy.of(judged, described.values())


def read_described(path: pathlib.Path) -> dict[str, Label]:
  """Reads descriptors (read_descriptors), EuroVoc's .json, or a taxonomy."""
  faults = Faults(on_error=None)
  if path.suffixes[-1:] == ['.json']:
    labels = read_concepts(path, faults)
  elif '.jsonl' in path.suffixes or is_table(path):
    labels = read_descriptors(path, faults)
  else:
    labels = read_taxonomy(path, faults)
  faults.raise_or_log()
  return labels


def _cut_offs(ks: Sequence[int]) -> tuple[int, ...]:
  if min(ks, default=1) < 1 or len(set(ks)) < len(ks):
    raise ConfigError(f'--ks={ks}: cut-offs must be positive and distinct')
  if max(ks, default=1) > MOST_RANKS:
    raise ConfigError(f'--ks={ks}: cut-offs must be at most {MOST_RANKS:,}')
  return tuple(sorted(ks))


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
  """Returns the kinds of metrics that the given names stand for.

  `macro-F1` stands for itself, at a threshold, and for `macro-F1@k`.
  """
  kinds = []
  for name in names:
    forms = {name, f'{name}@k', name.replace('@k', '@k[]')}
    matches = [kind for kind in XJAX.kinds if kind in forms]
    if not matches:
      raise ConfigError(
        f'--metrics: {name!r} is unknown; known metrics (set cut-offs with '
        '--ks): ' + ', '.join(XJAX.kinds)
      )
    kinds += matches
  return tuple(dict.fromkeys(kinds))


def _protocols(names: Sequence[str]) -> tuple[Protocol, ...]:
  if ALL_PROTOCOLS in names:
    return tuple(PROTOCOLS.values())
  if not names:
    raise ConfigError('--protocol: give at least one protocol')
  for name in names:
    if name not in PROTOCOLS:
      raise ConfigError(
        f'--protocol: {name!r} is unknown; known protocols: {ALL_PROTOCOLS}, '
        f'{", ".join(PROTOCOLS)}'
      )
  return tuple(PROTOCOLS[name] for name in dict.fromkeys(names))


def _metric_settings(
  alphas: Sequence[float], draws: Sequence[int]
) -> MetricSettings:
  if not all(0 <= alpha <= 1 for alpha in alphas):
    raise ConfigError(f'--alphas={alphas}: recalls must be from 0 to 1')
  if min(draws, default=1) < 1:
    raise ConfigError(f'--draws={draws}: numbers of documents must be positive')
  return MetricSettings(tuple(alphas), tuple(draws))


def _propensity(values: Sequence[float]) -> tuple[float, ...]:
  if not values:
    return ()
  finite = all(0 <= v < math.inf for v in values)
  if len(values) != 2 or not finite or not values[1]:
    raise ConfigError(
      f'--propensity={values}: needs two numbers, A >= 0 and B > 0'
    )
  return values[0], values[1]
