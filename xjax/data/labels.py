"""Label spaces: order, training counts, held-out and outside labels."""

from collections.abc import Collection
import dataclasses
import pathlib

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.rng import host_generator
from xjax.core.types import PAD
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields, decode_utf8, read_file_lines
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.draft import TRAIN, RawCorpus
from xjax.data.schema import Labels, LabelSpace

HOLD_OUT_RANGE = (1, 200)  # training documents of a label that may be held out


def hold_out(space: LabelSpace, n: int, seed: int) -> LabelSpace:
  """Takes n labels out of the training label space, for zero-shot judging.

  Candidates are the labels with 1 to 200 training documents, in the order of
  that number (then of their index), cut into n runs of equal length; one label
  is drawn from each run. So the draw is even over the candidates' ranks by
  frequency, and the held-out labels are as frequent as the candidates are.

  Args:
    space: trained labels with their counts; none held out or outside yet.
    n: how many to take.
    seed: decides the draw.

  Returns:
    The space with the drawn labels after the trained ones, both in their
    former order; the drawn labels' counts are 0.

  Raises:
    ConfigError: fewer than n candidates.
  """
  if n == 0:
    return space
  counts = space.train_counts
  rng = host_generator(seed, 'hold_out')
  field = 'data.hold_out_labels'
  drawn = draw_labels(counts, n, HOLD_OUT_RANGE, rng, field)
  held = np.zeros(len(space), bool)
  held[drawn] = True
  order = np.argsort(held, kind='stable')
  return dataclasses.replace(
    space,
    labels=space.labels[order],
    train_counts=np.where(held, 0, counts)[order].astype(np.int32),
    n_trained=space.n_trained - n,
    n_held_out=n,
  )


def draw_labels(
  train_counts: np.ndarray,
  n: int,
  counts: tuple[int, int],
  rng: np.random.Generator,
  field: str,
) -> np.ndarray:
  """Draws labels evenly over the ranks by frequency of those in a range.

  The candidates in the order of their counts, then of their index, are cut
  into n runs of equal length; one is drawn from each.

  Args:
    train_counts: int [L].
    n: how many, at least 1.
    counts: the least and the most training documents of a candidate.
    rng: decides the draw.
    field: of the config, that n is the value of.

  Returns:
    int64 [n] indices.

  Raises:
    ConfigError: fewer than n candidates.
  """
  low, high = counts
  ranked = np.argsort(train_counts, kind='stable')
  inside = (train_counts[ranked] >= low) & (train_counts[ranked] <= high)
  ranked = ranked[inside]
  if not 0 < n <= len(ranked):
    raise ConfigError(
      f'{field}={n}: {len(ranked)} labels have {low} to {high} training '
      'documents and could be set apart'
    )
  bounds = np.arange(n + 1) * len(ranked) // n
  return ranked[rng.integers(bounds[:-1], bounds[1:])]


def read_label_list(
  path: pathlib.Path, described: Collection[str], faults: Faults
) -> tuple[str, ...]:
  """Reads one label id per line, in the given order.

  Args:
    path: the file, perhaps gzipped.
    described: ids that have a descriptor; another id is a fault, unless there
      are no descriptors at all.
    faults: what is wrong is noted here.
  """
  ids: dict[str, None] = {}
  before = faults.count
  for number, line in read_file_lines(path, faults):
    id_, whats = _label_id(line)
    if id_ in ids:
      whats.append(f'duplicate label {id_!a}')
    if id_ and described and id_ not in described:
      whats.append(f'unknown label {id_!a}: it has no descriptor')
    if faults.extend(path, number, whats):
      ids[id_] = None
  if not ids:
    faults.add_empty(path, 'label', before)
  return tuple(ids)


def _label_id(line: bytes) -> tuple[str, list[str]]:
  """The id on a line, and what is wrong with it."""
  try:
    text = decode_utf8(line)
  except Fault as fault:
    return '', [str(fault)]
  fields = Fields({})
  return fields.as_id(text, 'the label id'), fields.faults


def order_labels(raw: RawCorpus, data: DataConfig) -> Labels:
  """The training label space, in order.

  That of the given list; for 'all' that of the descriptors; for 'corpus', and
  where there are no descriptors, the labels that any split uses, sorted by id
  unless the source has an order of its own.

  Raises:
    ConfigError: no such file.
    DataError: the file has faults, or the splits use no label.
  """
  described = raw.labels.ids.row_of
  match data.labels:
    case 'all' if described:
      return raw.labels
    case 'all' | 'corpus':
      if not raw.label_ids:
        raise DataError(f'{raw.source}: no document has a label')
      if not raw.ordered:
        return raw.labels.with_ids(sorted(raw.label_ids))
      rows = described.find(raw.label_ids)
      return raw.labels[np.sort(rows[rows != PAD])]
    case _:
      faults = Faults(data.on_error)
      ids = read_label_list(_find_list(data), described, faults)
      faults.settle()
      return raw.labels.with_ids(ids)


def _find_list(data: DataConfig) -> pathlib.Path:
  """The file data.labels names, here or (a bare name) in data.dir."""
  path = pathlib.Path(data.labels).expanduser()
  if path.is_file():
    return path
  folder = pathlib.Path(data.dir).expanduser()
  folder = folder if folder.is_dir() else folder.parent
  if data.dir and len(path.parts) == 1 and (folder / path).is_file():
    return folder / path
  raise ConfigError(
    f"data.labels={data.labels!r} is neither 'corpus' nor 'all' nor a file "
    'here or in data.dir'
  )


def make_space(labels: Labels, raw: RawCorpus) -> LabelSpace:
  """Counts the training documents of each label of a training label space."""
  n_train, counts = 0, np.zeros(len(labels), np.int32)
  if TRAIN in raw.splits:
    gold = raw.splits[TRAIN].gold
    rows = labels.ids.row_of.find(raw.label_ids)
    found = np.bincount(gold.values, minlength=len(raw.label_ids))
    counts[rows[rows != PAD]] = found[rows != PAD]
    n_train = len(gold)
  return LabelSpace(labels, counts, n_train, n_trained=len(labels))


def add_outside(space: LabelSpace, raw: RawCorpus) -> LabelSpace:
  """Appends the gold labels that the space lacks, sorted, with count 0."""
  rows = space.index.find(raw.label_ids)
  outside = sorted(raw.label_ids[i] for i in np.flatnonzero(rows == PAD))
  if not outside:
    return space
  return dataclasses.replace(
    space,
    labels=Labels.join(space.labels, raw.labels.with_ids(outside)),
    train_counts=np.concatenate(
      [space.train_counts, np.zeros(len(outside), np.int32)]
    ),
  )
