"""Makes label spaces: orders, holds out, leaves out and adds labels."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
import dataclasses
import hashlib
import os
import pathlib
import re

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.rng import host_generator
from xjax.core.texts import Texts, known_name, plain_name
from xjax.core.types import PAD
from xjax.data.files.faults import SHOWN, Faults, plural
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import numbered_lines, open_text, read_records
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import (
  JQ,
  Descriptors,
  is_table,
  label_records,
  read_ids,
)
from xjax.data.schema import Label, Labels, LabelSpace, read_label
from xjax.data.text.words import has_letters

# Only labels with 1 to 200 training documents can be held out.
HOLD_OUT_RANGE = (1, 200)
_SHOWN = 3  # unknown labels that a message names
# The pattern also matches a list of JSON objects, so that the error can say
# that lines must be objects. No label name matches the pattern.
_JSON = re.compile(rb'\s*(\{|\[\s*([{"]|$))')


def hold_out(
  space: LabelSpace, n: int, seed: int, never: Sequence[str] = ()
) -> LabelSpace:
  """Removes n labels from the training label space, for zero-shot judging.

  They are drawn by draw_labels from labels with 1 to 200 training documents,
  except those in `never`, and then follow the labels to train, with counts of
  0. `space` must have no held-out and no outside labels.
  """
  if n == 0:
    return space
  counts = space.train_counts
  rng = host_generator(seed, 'hold_out')
  field = 'data.hold_out_labels'
  candidates = counts.copy()
  rows = space.index.find(never)
  candidates[rows[rows != PAD]] = 0  # this is outside of the range
  drawn = draw_labels(candidates, n, HOLD_OUT_RANGE, rng, field)
  is_held_out = np.zeros(len(space), bool)
  is_held_out[drawn] = True
  order = np.argsort(is_held_out, kind='stable')
  return dataclasses.replace(
    space,
    labels=space.labels[order],
    train_counts=np.where(is_held_out, 0, counts)[order].astype(np.int32),
    n_trained=space.n_trained - n,
    n_held_out=n,
  )


def ids_of_names(
  labels: Sequence[Iterable[str] | None], space: LabelSpace
) -> list[Collection[str]]:
  """Returns gold labels of documents as ids; none if they are unknown (None).

  A text that is no id may be the name of one label, as in training.
  """
  used = {x for row in labels for x in row or () if x not in space.index}
  new = {}
  if used := used.difference(space.left_out_ids):
    labels_meant = Descriptors(space.labels).meant
    meant = {x: labels_meant(x) for x in used}
    new = {x: y[0] if len(y) == 1 else plain_name(x) for x, y in meant.items()}
  return [dict.fromkeys(new.get(x, x) for x in row or ()) for row in labels]


def draw_labels(
  train_counts: np.ndarray,
  n: int,
  counts: tuple[int, int],
  rng: np.random.Generator,
  field: str,
) -> np.ndarray:
  """Draws n labels, int64 [n], spread evenly from rare to frequent labels.

  The labels with training counts in `counts` (both ends included) are sorted by
  count and cut into n groups of nearly equal size; each group gives one label.
  If there are fewer than n, a ConfigError names `field`.
  """
  low, high = counts
  ranked = np.argsort(train_counts, kind='stable')
  inside = (train_counts[ranked] >= low) & (train_counts[ranked] <= high)
  ranked = ranked[inside]
  if not 0 < n <= len(ranked):
    raise ConfigError(
      f'{field}={n}: must be from 0 to {len(ranked)}, the number of labels '
      f'with {low} to {high} training documents; set a smaller number with '
      f'--config.{field}={len(ranked) // 10}'
    )
  bounds = np.arange(n + 1) * len(ranked) // n
  return ranked[rng.integers(bounds[:-1], bounds[1:])]


def order_labels(raw: SourceCorpus, data: DataConfig) -> Labels:
  """Returns the labels to train, in the order in which the model numbers them.

  data.label_space decides which labels are trained:

  - 'all': all labels with a descriptor, in the order of the descriptors. If
    there are no descriptors, 'all' means the same as 'corpus'.
  - 'corpus': the labels that the splits use, in the order of the descriptors if
    raw.ordered is True, else in the order of ids.
  - a file: the labels in the file, in the order of the file.
  """
  described = raw.labels.ids.row_of
  match data.label_space:
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
      path = _find_label_list(data.labels, data.dir)
      if path is None:
        raise ConfigError(
          f"data.labels={data.labels!r}: must be 'corpus', 'all' or a file in "
          'the current folder or in data.dir'
        )
      ids = read_ids(path, faults, described=described)
      faults.raise_or_log()
      ids = dict.fromkeys(known_name(id_, described) for id_ in ids)
      return raw.labels.with_ids(tuple(ids))


def _find_label_list(
  name: str, folder: str, folder_first: bool = False
) -> pathlib.Path | None:
  """Returns the path of a file of label ids; None if there is no such file."""
  # data.dir is searched for a bare file name, too, after the current folder, or
  # before it if `folder_first`.
  path = pathlib.Path(name).expanduser()
  near = pathlib.Path(folder).expanduser()
  near = near if near.is_dir() else near.parent
  places = [path]
  if folder and len(path.parts) == 1:
    places.insert(0 if folder_first else 1, near / path)
  return next((place for place in places if place.is_file()), None)


def read_left_out(name: str, field: str, folder: str = '') -> tuple[str, ...]:
  """Reads the ids of the labels that judging leaves out, in the file's order.

  `name` is a file with one id per line, plain or gzipped, or '' for none. If it
  is only a file name, `folder` is searched before the current folder. Messages
  name the `field`. An empty file leaves out nothing. A ConfigError says that
  there is no such file, a DataError that it has faults.
  """
  if not name:
    return ()
  path = _find_label_list(name, folder, folder_first=True)
  if path is None:
    more = ' or in data.dir' if folder else ''
    raise ConfigError(
      f'{field}={name!r}: there is no such file in the current folder{more}; '
      'give a file with one label id per line'
    )
  if folder:  # there were two places
    logging.info('%s: the ids are read from %s', field, path)
  faults = Faults(on_error=None)
  ids = tuple(read_ids(path, faults, may_be_empty=True))
  faults.raise_or_log()
  return ids


def left_out_digest(ids: Sequence[str]) -> str:
  """Returns the SHA-256 of the ids of left-out labels, in any order."""
  text = ''.join(f'{id_}\n' for id_ in sorted(ids))
  return hashlib.sha256(text.encode()).hexdigest()


def known_left_out(
  ids: Sequence[str],
  labels: Container[str],
  concepts: Container[str],
  source: str,
  where: str,
) -> tuple[str, ...]:
  """Returns the known ids among those that are to be left out of judging.

  All ids but labels and concepts are ignored, and a warning counts them. If no
  id is a label, a DataError is raised. Messages name the `source` of the ids,
  and `where` labels are.
  """
  ids = [id_ if id_ in concepts else known_name(id_, labels) for id_ in ids]
  known = tuple(id_ for id_ in ids if id_ in labels or id_ in concepts)
  unknown = [id_ for id_ in ids if id_ not in labels and id_ not in concepts]
  if ids and not any(id_ in labels for id_ in known):
    raise DataError(
      f'{source}: {where} has none of these labels ({_shown(ids)}); give the '
      'file that belongs to it'
    )
  if unknown:
    logging.warning(
      f'{source}: {plural(len(unknown), "id")} ignored, because {where} has no '
      f'such label: {_shown(unknown)}'
    )
  return known


def _shown(ids: Sequence[str]) -> str:
  shown = ', '.join(map(ascii, ids[:_SHOWN]))
  return shown + ', ...' * (len(ids) > _SHOWN)


def mark_left_out(
  space: LabelSpace, ids: Sequence[str], source: str
) -> LabelSpace:
  """Marks labels as labels that are neither predicted nor judged.

  Ids that are no labels are ignored; `source` names their field and file. A
  DataError says that no id is a label, or that no label would be left.
  """
  if not len(ids):
    return space
  concepts = space.concepts.ids
  known = known_left_out(ids, space.index, concepts, source, 'the corpus')
  all_ids = dict.fromkeys((*space.left_out_ids, *known))
  marked = dataclasses.replace(space, left_out_ids=all_ids)
  inside = marked.allowed
  if inside is not None and not inside[: space.n_inside].any():
    raise DataError(
      f'{source}: has all {plural(space.n_inside, "label")} of this corpus, so '
      'that no label is left to judge; leave at least one label out of the file'
    )
  return marked


def make_space(labels: Labels, raw: SourceCorpus) -> LabelSpace:
  """Makes a label space of the labels to train; counts are 0 without train."""
  n_train, counts = 0, np.zeros(len(labels), np.int32)
  if TRAIN in raw.splits:
    gold = raw.splits[TRAIN].gold
    rows = labels.ids.row_of.find(raw.label_ids)
    uses = np.bincount(gold.values, minlength=len(raw.label_ids))
    counts[rows[rows != PAD]] = uses[rows != PAD]
    n_train = len(gold)
  return LabelSpace(labels, counts, n_train, n_trained=len(labels))


def add_concepts(space: LabelSpace, raw: SourceCorpus) -> LabelSpace:
  """Adds the concepts of the source's taxonomy that are not labels.

  A concept belongs to the taxonomy if it has a parent or a child. Concepts are
  added before outside labels, so that the gold labels of dev and test decide
  nothing: a concept that is an outside label is a concept all the same.
  """
  others = raw.labels[space.index.find(raw.labels.ids) == PAD]
  above = np.diff(others.parents.offsets) > 0
  named = {p for part in (space.labels, others) for p in part.parents.flat()}
  inside = above | np.array([id_ in named for id_ in others.ids], bool)
  return dataclasses.replace(space, concepts=others[np.flatnonzero(inside)])


def add_outside(space: LabelSpace, raw: SourceCorpus) -> LabelSpace:
  """Appends gold labels that the space lacks, sorted by id, with count 0."""
  rows = space.index.find(raw.label_ids)
  outside = sorted(raw.label_ids[i] for i in np.flatnonzero(rows == PAD))
  if not outside:
    return space
  return dataclasses.replace(
    space,
    labels=Labels.join(space.labels, raw.labels.with_ids(outside)),
    train_counts=np.pad(space.train_counts, (0, len(outside))),
  )


def read_new_labels(
  path: str | os.PathLike, space: LabelSpace
) -> tuple[Label, ...]:
  """Reads labels that are to be added to the labels of a run.

  Every line of the file, plain or gzipped, is a name; or every line is a JSON
  object as in labels.jsonl, where only `name` is required, and is the default
  id; or it is a table of labels or SKOS. A DataError tells of faulty lines, or
  as add_new_labels does.
  """
  path = os.path.expanduser(path)
  faults = Faults(on_error=None)
  labels = []
  records = label_records if is_table(path) else _named_records
  for _, fields in records(path, faults):
    name = fields.text('name')
    if not fields.faults:
      has_id = 'id' in fields
      fields.row.setdefault('id', name.strip())
      label = read_label(fields)
      id_ = label.id if has_id else plain_name(label.id)
      labels.append(dataclasses.replace(label, id=id_))
  if not labels:
    faults.add_empty(path, 'label', 0)
  faults.raise_or_log()
  try:
    add_new_labels(space, labels)
  except DataError as error:
    raise DataError(f'{path}: {error}') from error
  return tuple(labels)


def _named_records(path: str, faults: Faults) -> Iterator[tuple[int, Fields]]:
  with open_text(path) as file:
    first = next((x for _, x in numbered_lines(file, path) if x.strip()), b'')
    is_json = path.removesuffix('.gz').endswith('.jsonl') or _JSON.match(first)
    file.seek(0)
    plain = '' if is_json else 'name'
    yield from read_records(file, faults, path, plain, jq=JQ)


def add_new_labels(space: LabelSpace, labels: Sequence[Label]) -> LabelSpace:
  """Adds labels to a label space after training.

  First come the labels that the model scores already, then the new labels, with
  counts of 0, then the gold labels outside the space; one of these can become
  new. A DataError says that there is no label, that a name has no letters, or
  that an id occurs twice or is scored already.
  """
  scored = space.ids[: space.n_inside]
  new = Texts.of(label.id for label in labels)
  if not new:
    raise DataError('there are no new labels: give at least one')
  is_taken = scored.row_of.find(new) != PAD
  is_taken[new.row_of.repeated()] = True
  if is_taken.any():
    taken = (ascii(new[row]) for row in np.flatnonzero(is_taken)[:SHOWN])
    raise DataError(
      f'each new label needs an id that no other label has: {", ".join(taken)}'
    )
  if unnamed := [label.id for label in labels if not has_letters(label.name)]:
    shown = ', '.join(map(ascii, unnamed[:SHOWN]))
    raise DataError(f'new labels need names with letters: {shown}')
  outside = space.labels[len(scored) :]
  outside = outside[new.row_of.find(outside.ids) == PAD]
  counts = np.zeros(len(scored) + len(new) + len(outside), np.int32)
  counts[: len(scored)] = space.train_counts[: len(scored)]
  return dataclasses.replace(
    space,
    labels=Labels.join(space.labels[: len(scored)], labels, outside),
    train_counts=counts,
    n_new=space.n_new + len(new),
  )
