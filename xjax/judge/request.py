"""What a user asks to be judged by, in words, and what that means."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import enum
import math
import os
import pathlib

import numpy as np
import scipy.sparse

from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.core.types import Ragged
from xjax.data.files.faults import Faults
from xjax.data.formats.descriptors import read_descriptors
from xjax.data.formats.eurlex57k.records import read_concepts
from xjax.data.formats.taxonomy import read_taxonomy
from xjax.data.schema import Label
from xjax.judge.criteria import Criteria
from xjax.judge.metrics.contract import (
  LabelForm,
  Needs,
  Protocol,
  kinds_where,
)
from xjax.judge.metrics.diversity import co_occurrence, descriptor_vectors
from xjax.judge.metrics.protocols import PROTOCOLS, XJAX
from xjax.judge.predictions import Predictions
from xjax.judge.slice_names import check_slice_names, named_slices, needs_labels

ALL_PROTOCOLS = 'all'


class Similarity(enum.Enum):
  """What labels are alike by, for intra-list diversity."""

  NONE = 'none'
  DESCRIPTORS = 'descriptors'
  CO_OCCURRENCE = 'co_occurrence'


@dataclasses.dataclass(frozen=True)
class Asked:
  """What a user asks to be judged by.

  Attributes:
    ks: cut-offs; empty: those of the run, or the usual ones.
    kinds: metrics, as `P` or `macro-F1@k`; empty: all.
    protocols: names; `all`: every one there is.
    propensity: A and B of the formula; empty: those of the run, or the usual.
    slices: as named_slices; those by frequency are always there.
    labels: file of descriptors: labels.jsonl, eurovoc_en.json, or a taxonomy
      of tab-separated lines; '' for none but those of the run.
    similarity: of labels, for ILD.
    rank_weights: .npy file of float [L, K], W of weighted@k; '' for none.
    alphas: recalls of alpha-coverage, from 0 to 1.
    draws: numbers of documents of n'-coverage.
    replicates: of the bootstrap; 0: no intervals.
    seed: of its draws.
  """

  ks: Sequence[int] = ()
  kinds: Sequence[str] = ()
  protocols: Sequence[str] = (XJAX.name,)
  propensity: Sequence[float] = ()
  slices: Sequence[str] = ()
  labels: str = ''
  similarity: Similarity = Similarity.NONE
  rank_weights: str = ''
  alphas: Sequence[float] = LabelForm.alphas
  draws: Sequence[int] = LabelForm.draws
  replicates: int = 0
  seed: int = 0

  def __post_init__(self) -> None:
    """Finds what is wrong before anything is read.

    Raises:
      ConfigError: something is unknown, impossible, or of no use.
    """
    _cut_offs(self.ks)
    kinds, protocols = _kinds(self.kinds), _protocols(self.protocols)
    _propensity(self.propensity)
    _label_form(self.alphas, self.draws)
    check_slice_names(self.slices)
    if self.labels and not pathlib.Path(self.labels).expanduser().is_file():
      raise ConfigError(f'--labels={self.labels}: no such file')
    if kinds and not any(set(kinds) & set(p.kinds) for p in protocols):
      raise ConfigError(
        f'--metrics: {", ".join(p.name for p in protocols)} print none of them'
      )
    self._check_uses(kinds)

  def _check_uses(self, kinds: Sequence[str]) -> None:
    """Refuses what needs something else, and what nothing needs."""
    similar = self.similarity is not Similarity.NONE
    for need, flag, given in (
      (Needs.SIMILARITY, '--similarity', similar),
      (Needs.RANK_WEIGHTS, '--rank_weights', bool(self.rank_weights)),
    ):
      needy = kinds_where(lambda metric, need=need: metric.needs is need)
      asked = [kind for kind in needy if kind in kinds]
      if asked and not given:
        raise ConfigError(f'--metrics: {asked[0]} needs {flag}')
      if given and kinds and not asked:
        raise ConfigError(
          f'{flag} is for {", ".join(needy)}, which --metrics leaves out'
        )
    if self.labels and not (
      self.similarity is Similarity.DESCRIPTORS
      or any(map(needs_labels, self.slices))
    ):
      raise ConfigError(
        '--labels goes with --slices=level:N or --similarity=descriptors only'
      )

  def criteria(
    self,
    predictions: Predictions,
    weights_L: np.ndarray | None = None,
    labels: Sequence[Label] = (),
    train_gold: Callable[[], Ragged] | None = None,
    usual: Criteria | None = None,
  ) -> Criteria:
    """What is asked for, of these predictions.

    Args:
      predictions: to be judged.
      weights_L: inverse propensities from a file.
      labels: descriptors that the run has.
      train_gold: gives the gold of the training documents, in label indices.
      usual: what holds where nothing is asked for; a run's own.

    Raises:
      ConfigError: something is unknown, or what it takes is not given.
      DataError: a file has faults.
    """
    described = {label.id: label for label in labels}
    if self.labels:
      described |= read_described(pathlib.Path(self.labels).expanduser())
    usual = usual or Criteria()
    ks = _cut_offs(self.ks) or tuple(usual.ks)
    return Criteria(
      ks=ks,
      kinds=_kinds(self.kinds),
      protocols=_protocols(self.protocols),
      propensity=_propensity(self.propensity) or usual.propensity,
      weights_L=weights_L,
      slices=named_slices(self.slices, predictions, described),
      vectors_LD=self._vectors(predictions, described, train_gold),
      ranks_LK=self._rank_weights(len(predictions.labels), max(ks)),
      form=_label_form(self.alphas, self.draws),
      replicates=self.replicates,
      seed=self.seed,
    )

  def _rank_weights(self, n_labels: int, deepest: int) -> np.ndarray | None:
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
        f'{path}: W of weighted@k is finite, float [{n_labels}, {deepest} or '
        f'more], not {weights_LK.dtype} {list(shape)}'
      )
    return weights_LK.astype(np.float64)

  def _vectors(
    self,
    predictions: Predictions,
    described: Mapping[str, Label],
    train_gold: Callable[[], Ragged] | None,
  ) -> scipy.sparse.csr_array | None:
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
        '--similarity=descriptors: --labels has none of the labels'
      )
    known = [described.get(id_) or Label(id_) for id_ in predictions.labels]
    return descriptor_vectors(
      ' '.join((label.name, *label.alt, label.description)) for label in known
    )


def read_described(path: pathlib.Path) -> dict[str, Label]:
  """Descriptors of labels by id, from a file of any kind that has them.

  Raises:
    DataError: it has faults.
  """
  faults = Faults(on_error=None)
  if path.suffixes[-1:] == ['.json']:
    found = read_concepts(path, faults)
  elif '.jsonl' in path.suffixes:
    found = read_descriptors(path, faults)
  else:
    found = read_taxonomy(path, faults)
  faults.settle()
  return found.labels


def _cut_offs(ks: Sequence[int]) -> tuple[int, ...]:
  if min(ks, default=1) < 1 or len(set(ks)) < len(ks):
    raise ConfigError(f'--ks={ks}: cut-offs are positive, each once')
  return tuple(sorted(ks))


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
  """`P` is `P@k`; `macro-F1` is that at the threshold and `macro-F1@k`."""
  found = []
  for name in names:
    both = {name, f'{name}@k', name.replace('@k', '@k[]')}
    kinds = [kind for kind in XJAX.kinds if kind in both]
    if not kinds:
      raise ConfigError(
        f'--metrics: {name!r} is unknown; there are (cut-offs go to --ks): '
        + ', '.join(XJAX.kinds)
      )
    found += kinds
  return tuple(dict.fromkeys(found))


def _protocols(names: Sequence[str]) -> tuple[Protocol, ...]:
  if ALL_PROTOCOLS in names:
    return tuple(PROTOCOLS.values())
  if not names:
    raise ConfigError('--protocol names none')
  for name in names:
    if name not in PROTOCOLS:
      raise ConfigError(
        f'--protocol: {name!r} is unknown; there are: {ALL_PROTOCOLS}, '
        f'{", ".join(PROTOCOLS)}'
      )
  return tuple(PROTOCOLS[name] for name in dict.fromkeys(names))


def _label_form(alphas: Sequence[float], draws: Sequence[int]) -> LabelForm:
  if not all(0 <= alpha <= 1 for alpha in alphas):
    raise ConfigError(f'--alphas={alphas}: recalls are from 0 to 1')
  if min(draws, default=1) < 1:
    raise ConfigError(f'--draws={draws}: numbers of documents are positive')
  return LabelForm(tuple(alphas), tuple(draws))


def _propensity(values: Sequence[float]) -> tuple[float, ...]:
  if not values:
    return ()
  finite = all(0 <= v < math.inf for v in values)
  if len(values) != 2 or not finite or not values[1]:
    raise ConfigError(
      f'--propensity={values}: A and B, two numbers, A of at least 0, B above 0'
    )
  return values[0], values[1]
