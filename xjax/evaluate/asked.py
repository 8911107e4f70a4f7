"""What a user asks to be judged by, in words, and what that means."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import enum
import os
import pathlib

import numpy as np
import scipy.sparse

from xjax.core.errors import DAMAGE, ConfigError, DataError
from xjax.core.types import Ragged
from xjax.data.descriptors import read_descriptors
from xjax.data.eurlex57k.records import read_concepts
from xjax.data.faults import Faults
from xjax.data.schema import Label
from xjax.data.taxonomy import read_taxonomy
from xjax.evaluate.criteria import PROPENSITY, Criteria
from xjax.evaluate.predictions import Predictions
from xjax.evaluate.slice_names import named_slices
from xjax.metrics.protocols import PROTOCOLS, XJAX, Protocol

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
    ks: cut-offs.
    kinds: metrics, as `P` or `macro-F1@k`; empty: all.
    protocols: names; `all`: every one there is.
    propensity: A and B of the formula.
    slices: as named_slices; those by frequency are always there.
    labels: file of descriptors: labels.jsonl, eurovoc_en.json, or a taxonomy
      of tab-separated lines; '' for none but those of the run.
    similarity: of labels, for ILD.
    rank_weights: .npy file of float [L, K], W of weighted@k; '' for none.
    replicates: of the bootstrap; 0: no intervals.
    seed: of its draws.
  """

  ks: Sequence[int] = (1, 3, 5, 10)
  kinds: Sequence[str] = ()
  protocols: Sequence[str] = (XJAX.name,)
  propensity: Sequence[float] = PROPENSITY
  slices: Sequence[str] = ()
  labels: str = ''
  similarity: Similarity = Similarity.NONE
  rank_weights: str = ''
  replicates: int = 0
  seed: int = 0

  def criteria(
    self,
    predictions: Predictions,
    weights_L: np.ndarray | None = None,
    labels: Sequence[Label] = (),
    train_gold: Callable[[], Ragged] | None = None,
  ) -> Criteria:
    """What is asked for, of these predictions.

    Args:
      predictions: to be judged.
      weights_L: inverse propensities from a file.
      labels: descriptors that the run has.
      train_gold: gives the gold of the training documents, in label indices.

    Raises:
      ConfigError: something is unknown, or what it takes is not given.
      DataError: a file has faults.
    """
    described = {label.id: label for label in labels}
    if self.labels:
      described |= read_described(pathlib.Path(self.labels).expanduser())
    return Criteria(
      ks=_cut_offs(self.ks),
      kinds=_kinds(self.kinds),
      protocols=_protocols(self.protocols),
      propensity=_propensity(self.propensity),
      weights_L=weights_L,
      slices=named_slices(self.slices, predictions, described),
      vectors_LD=self._vectors(predictions, described, train_gold),
      ranks_LK=_rank_weights(self.rank_weights, len(predictions.labels)),
      replicates=self.replicates,
      seed=self.seed,
    )

  def _vectors(
    self,
    predictions: Predictions,
    described: Mapping[str, Label],
    train_gold: Callable[[], Ragged] | None,
  ) -> scipy.sparse.csr_array | None:
    # scikit-learn takes a second to import: only where it is asked for.
    if self.similarity is Similarity.NONE:
      return None
    from xjax.metrics.label_vectors import co_occurrence, descriptor_vectors

    if self.similarity is Similarity.CO_OCCURRENCE:
      if train_gold is None:
        raise ConfigError('--similarity=co_occurrence needs --train_labels')
      return co_occurrence(train_gold(), len(predictions.labels))
    if not described:
      raise ConfigError('--similarity=descriptors needs --labels')
    known = [described.get(id_) or Label(id_) for id_ in predictions.labels]
    return descriptor_vectors(
      ' '.join((label.name, *label.alt, label.description)) for label in known
    )


def read_described(path: pathlib.Path) -> dict[str, Label]:
  """Descriptors of labels by id, from a file of any kind that has them.

  Raises:
    DataError: it has faults.
  """
  if not path.is_file():
    raise ConfigError(f'--labels={path}: no such file')
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
  if not ks or min(ks) < 1 or len(set(ks)) < len(ks):
    raise ConfigError(f'--ks={ks}: cut-offs are positive, each once')
  return tuple(sorted(ks))


def _kinds(names: Sequence[str]) -> tuple[str, ...]:
  """`P` is `P@k` where there is no metric of that very name."""
  found = []
  for name in names:
    both = {name, f'{name}@k', name.replace('@k', '@k[]')}
    kinds = [kind for kind in XJAX.kinds if kind in both]
    if not kinds:
      raise ConfigError(
        f'--metrics: {name!r} is unknown; there are: {", ".join(XJAX.kinds)}'
      )
    found += kinds
  return tuple(dict.fromkeys(found))


def _protocols(names: Sequence[str]) -> tuple[Protocol, ...]:
  if list(names) == [ALL_PROTOCOLS]:
    return tuple(PROTOCOLS.values())
  for name in names:
    if name not in PROTOCOLS:
      raise ConfigError(
        f'--protocol: {name!r} is unknown; there are: {ALL_PROTOCOLS}, '
        f'{", ".join(PROTOCOLS)}'
      )
  return tuple(PROTOCOLS[name] for name in dict.fromkeys(names))


def _propensity(values: Sequence[float]) -> tuple[float, float]:
  if len(values) != 2 or min(values) < 0:
    raise ConfigError(
      f'--propensity={values}: A and B, two numbers of at least 0'
    )
  return values[0], values[1]


def _rank_weights(path: str, n_labels: int) -> np.ndarray | None:
  if not path:
    return None
  try:
    weights_LK = np.load(os.path.expanduser(path), allow_pickle=False)
    fits = weights_LK.ndim == 2 and len(weights_LK) == n_labels
  except DAMAGE as error:
    raise DataError(f'{path}: cannot be read as .npy: {error}') from error
  if (
    not fits
    or weights_LK.dtype.kind != 'f'
    or not np.isfinite(weights_LK).all()
  ):
    raise DataError(
      f'{path}: W of weighted@k is finite, float [{n_labels}, K], not '
      f'{weights_LK.dtype} {list(weights_LK.shape)}'
    )
  return weights_LK.astype(np.float64)
