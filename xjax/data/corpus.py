"""From what a source found to a corpus: zones, gold, fingerprint."""

from collections.abc import Sequence
import hashlib
import json
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import Ragged
from xjax.data.config import DataConfig
from xjax.data.formats.draft import TRAIN, CutDocuments, RawCorpus
from xjax.data.labels import add_outside, hold_out, make_space, order_labels
from xjax.data.schema import Corpus, LabelSpace, Split


def build_corpus(
  raw: RawCorpus,
  data: DataConfig,
  seed: int,
  space: LabelSpace | None = None,
  splits: Sequence[str] | None = None,
) -> Corpus:
  """Makes a corpus of what a source found.

  Args:
    raw: the source's documents and descriptors.
    data: the label space, the zones and the hold-out.
    seed: decides which labels are held out.
    space: a trained model's labels, kept as they are; None: as data says.
    splits: those to keep; None: all.

  Returns:
    The corpus. Its documents have no zones but those that data names, or
    that make the full text. Gold that is not in the label space stands after
    it, with a training count of 0. The split train has no held-out labels.

  Raises:
    ConfigError: data.zones, data.labels or data.hold_out_labels cannot be met.
    DataError: a fault in a label list; no label at all.
  """
  zones = _choose_zones(raw, data.zones)
  if space is None:
    space = make_space(order_labels(raw, data), raw)
    space = hold_out(space, data.hold_out_labels, seed)
  space = add_outside(space, raw)
  index = np.array([space.index[id_] for id_ in raw.label_ids], np.int32)
  held = space.masks().get('held_out', np.zeros(len(space), bool))
  names = [n for n in raw.splits if splits is None or n in splits]
  made = {}
  for name in names:
    split = raw.splits[name]
    hidden = held if name == TRAIN else np.zeros_like(held)
    made[name] = Split(
      name=name,
      ids=split.ids,
      gold=_relabel(split.gold, index, hidden),
      documents=CutDocuments(split.documents, zones)
      if zones
      else split.documents,
      digest=_digest(split.digest, zones),
    )
  return Corpus(space, made, _fingerprint(raw, names, zones, space))


def _relabel(gold: Ragged, index: np.ndarray, hidden: np.ndarray) -> Ragged:
  """Rows of new indices, sorted within each row, without the hidden ones."""
  values = index[gold.values]
  rows = np.repeat(np.arange(len(gold)), gold.lengths)
  values = values[np.lexsort((values, rows))]
  return Ragged(gold.indptr, values).keep(~hidden[values])


def _choose_zones(raw: RawCorpus, wanted: Sequence[str]) -> tuple[str, ...]:
  """The zones to cut documents to; empty: as they are."""
  for zone in wanted:
    if zone not in raw.zones:
      raise ConfigError(
        f'data.zones: no such zone: {zone!r}; {raw.source} has: '
        f'{", ".join(raw.zones)}'
      )
  return tuple(wanted) or raw.full_text


def _fingerprint(
  raw: RawCorpus,
  names: Sequence[str],
  zones: Sequence[str],
  space: LabelSpace,
) -> str:
  splits = [[name, raw.splits[name].digest] for name in names]
  sizes = [space.n_train, space.n_trained, space.n_held_out]
  return _digest(splits, zones, sizes, space.ids)


def _digest(*parts: Any) -> str:
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
