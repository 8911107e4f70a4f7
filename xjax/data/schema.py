"""Documents, label spaces and corpora."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import json
import os
import pathlib
from typing import Any, BinaryIO

import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.core.texts import TextLists, TextPacker, TextRows, Texts
from xjax.core.types import PAD, Ragged
from xjax.data.batches.feature_rows import FeatureRows
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, parse_rows


def propensity_weights(
  train_counts: np.ndarray, n_train: int, a: float = 0.55, b: float = 1.5
) -> np.ndarray:
  """Inverse propensities, the label weights of propensity-scored metrics.

  w_l = 1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A (Jain et al. 2016).

  Args:
    train_counts: int [L], training documents per label, n_l.
    n_train: training documents, N.
    a: A of the formula: 0.55, Amazon-670K and its kin 0.6, Wikipedia 0.5.
    b: B of the formula: 1.5, Amazon-670K and its kin 2.6, Wikipedia 0.4.

  Returns:
    float64 [L], at least 1, larger for rarer labels.

  Raises:
    DataError: fewer than 3 training documents, for which C is negative.
  """
  if n_train < 3:
    raise DataError(
      f'propensities need at least 3 training documents, not {n_train}'
    )
  c = (np.log(n_train) - 1) * (b + 1) ** a
  return 1 + c * (np.asarray(train_counts, np.float64) + b) ** -a


FREQUENT_FROM = 50  # training documents; 1..49 is few, 0 is zero
# What labels.jsonl calls labels: trained (no flag), held out, new, outside.
HELD_OUT = 'held_out'
_FLAGS = ('', HELD_OUT, 'new', 'outside')
_OUT_OF_PLACE = 'label {!a} is out of place'


@dataclasses.dataclass(frozen=True)
class Document:
  """A view of one document.

  Attributes:
    id: unique within its split.
    zones: name -> text, in reading order.
    labels: gold label ids, as given (they may lie outside the label space);
      None: not known, of a document to be tagged.
  """

  id: str
  zones: Mapping[str, str]
  labels: tuple[str, ...] | None = ()

  def text(self, zones: Iterable[str] = ()) -> str:
    """The named zones (none named: all), joined by newlines."""
    names = tuple(zones) or tuple(self.zones)
    return '\n'.join(self.zones[n] for n in names if self.zones.get(n))


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
  """One label's descriptor."""

  id: str
  name: str = ''
  alt: tuple[str, ...] = ()
  parents: tuple[str, ...] = ()
  description: str = ''


def label_of(fields: Fields) -> Label:
  """Reads a descriptor; what is wrong is noted in fields.faults."""
  id_ = fields.identifier('id')
  return Label(
    id=id_,
    name=fields.text('name', '') or id_,
    alt=fields.texts('alt', ()),
    parents=fields.identifiers('parents', ()),
    description=fields.text('description', ''),
  )


def label_row(label: Label) -> dict[str, Any]:
  """The JSON object of a label, which label_of reads."""
  return {field: getattr(label, field) for field in Label.__slots__}


@dataclasses.dataclass(frozen=True, eq=False)
class Labels(Sequence[Label]):
  """Descriptors as arrays; a Label is made each time one is asked for.

  Attributes:
    ids: of L labels.
    names: a list of one name; an empty list where the id is the name.
    alt: further names.
    parents: ids of labels, which need not be among these.
    descriptions: '' where there is none.
  """

  ids: Texts
  names: TextLists
  alt: TextLists
  parents: TextLists
  descriptions: Texts

  @classmethod
  def of(cls, labels: Iterable[Label]) -> 'Labels':
    """Packs labels, reading each once."""
    if isinstance(labels, cls):
      return labels
    kinds = Texts, TextLists, TextLists, TextLists, Texts
    columns = [TextPacker(kind) for kind in kinds]
    for x in labels:
      names = () if x.name == x.id else (x.name,)
      row = x.id, names, x.alt, x.parents, x.description
      for column, value in zip(columns, row, strict=True):
        column.append(value)
    return cls(*(column.done() for column in columns))

  @classmethod
  def joined(cls, *parts: Iterable[Label]) -> 'Labels':
    """All labels of several, in order."""
    columns = zip(*(cls.of(part)._columns for part in parts), strict=True)
    return cls(*(type(each[0]).concatenate(each) for each in columns))

  @property
  def _columns(self) -> tuple[Texts | TextLists, ...]:
    return self.ids, self.names, self.alt, self.parents, self.descriptions

  def __len__(self) -> int:
    return len(self.ids)

  def __getitem__(self, rows: int | slice | np.ndarray) -> 'Label | Labels':
    """One label; those of a slice or of an array of rows stay arrays."""
    parts = [column[rows] for column in self._columns]
    return Labels(*parts) if isinstance(parts[0], Texts) else _label(*parts)

  def __iter__(self) -> Iterator[Label]:
    return map(_label, *self._columns)

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Sequence):
      return NotImplemented
    return self._columns == Labels.of(other)._columns

  __hash__ = None

  def described(self, ids: Sequence[str]) -> 'Labels':
    """The labels of some ids; one that is not here has its id as its name."""
    rows = self.ids.row_of.find(ids)
    return Labels.of(
      Label(id_, id_) if row == PAD else self[row]
      for id_, row in zip(ids, rows, strict=True)
    )


def _label(
  id_: str,
  names: tuple[str, ...],
  alt: tuple[str, ...],
  parents: tuple[str, ...],
  description: str,
) -> Label:
  return Label(id_, names[0] if names else id_, alt, parents, description)


def slice_masks(
  train_counts: np.ndarray,
  held_out: np.ndarray,
  frequent_from: int = FREQUENT_FROM,
) -> dict[str, np.ndarray]:
  """Slice name -> bool [L]: frequent, few and zero, perhaps held_out.

  By training count they are >= 50, 1..49 and 0, as in Chalkidis et al. 2019,
  Table 1. Held-out labels have no training documents left: they are zero-shot
  too.

  Args:
    train_counts: int32 [L], training documents per label.
    held_out: int32 indices of held-out labels; a slice where there are any.
    frequent_from: training documents from which a label is frequent.
  """
  masks = {
    'frequent': train_counts >= frequent_from,
    'few': (train_counts > 0) & (train_counts < frequent_from),
    'zero': train_counts == 0,
  }
  if len(held_out):
    masks[HELD_OUT] = np.zeros(len(train_counts), bool)
    masks[HELD_OUT][held_out] = True
  return masks


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSpace:
  """Labels in model order: trained, then held out, then new, then outside.

  An index into `labels` is a label's identity everywhere, and breaks ties.

  Attributes:
    labels: L descriptors. The first n_trained form the training label space;
      then the held-out ones; then those added by name when predicting; then
      gold labels found outside the space, which no model scores.
    train_counts: int32 [L], training documents per label; 0 for the last three.
    n_train: number of training documents.
    n_trained: size of the training label space.
    n_held_out: number of held-out labels.
    n_new: number of labels added after training.
  """

  labels: Labels
  train_counts: np.ndarray
  n_train: int
  n_trained: int
  n_held_out: int = 0
  n_new: int = 0

  def __post_init__(self) -> None:
    object.__setattr__(self, 'labels', Labels.of(self.labels))

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def n_outside(self) -> int:
    """Number of gold labels outside the label space."""
    return len(self) - self.n_inside

  @property
  def n_inside(self) -> int:
    """Number of labels of the space, the first ones: all but those outside."""
    return self.n_trained + self.n_held_out + self.n_new

  @property
  def held_out(self) -> np.ndarray:
    """int32 indices of the held-out labels."""
    first = self.n_trained
    return np.arange(first, first + self.n_held_out, dtype=np.int32)

  @property
  def ids(self) -> Texts:
    """Label ids in order."""
    return self.labels.ids

  @property
  def index(self) -> TextRows:
    """Label id -> index."""
    return self.ids.row_of

  def masks(self) -> dict[str, np.ndarray]:
    """Slice name -> bool [L], as slice_masks."""
    return slice_masks(self.train_counts, self.held_out)

  def save(self, path: str | os.PathLike) -> None:
    """Writes labels.jsonl: a label per line, in order, with its count.

    A label that is not trained has the field held_out, new or outside.
    """
    parts = (self.n_trained, self.n_held_out, self.n_new, self.n_outside)
    flags = itertools.chain(*map(itertools.repeat, _FLAGS, parts))
    with atomic_write(path) as file:
      for label, count, flag in zip(self.labels, self.train_counts, flags):
        row = {**label_row(label), 'train_count': int(count)}
        row |= {flag: True} if flag else {}
        file.write(json.dumps(row, ensure_ascii=False) + '\n')

  @classmethod
  def load(cls, path: str | os.PathLike, n_train: int) -> 'LabelSpace':
    """Reads what save wrote.

    Raises:
      DataError: the file is absent or damaged.
    """
    faults = Faults(on_error=None)
    saved = _SavedLabels(str(path), faults)
    try:
      with pathlib.Path(path).open('rb') as file:
        labels = Labels.of(saved.read(file))
    except OSError as error:
      raise DataError(f'{path}: cannot be read: {error.strerror}') from error
    if not len(labels):
      faults.add_empty(path, 'label', 0)
    for row in labels.ids.row_of.repeated():
      faults.add(path, saved.lines[row], _OUT_OF_PLACE.format(labels.ids[row]))
    faults.settle()
    return cls(
      labels=labels,
      train_counts=np.array(saved.counts, np.int32),
      n_train=n_train,
      n_trained=saved.sizes[0],
      n_held_out=saved.sizes[1],
      n_new=saved.sizes[2],
    )


class _SavedLabels:
  """A labels.jsonl while it is being read.

  Attributes:
    lines: the line of each label.
    counts: training documents of each label.
    sizes: the number of labels with each of _FLAGS.
  """

  def __init__(self, path: str, faults: Faults):
    self._path, self._faults = path, faults
    self.lines, self.counts = array('q'), array('i')
    self.sizes = [0] * len(_FLAGS)

  def read(self, file: BinaryIO) -> Iterator[Label]:
    """Yields the labels; notes what is wrong with them."""
    for number, row in parse_rows(file, self._path, self._faults):
      fields = Fields(row)
      label = label_of(fields)
      self.lines.append(number)
      self.counts.append(_read_count(fields))
      part = max(i for i, flag in enumerate(_FLAGS) if flag in ('', *row))
      self.sizes[part] += 1
      if any(self.sizes[part + 1 :]):
        fields.faults.append(_OUT_OF_PLACE.format(label.id))
      self._faults.extend(self._path, number, fields.faults)
      yield label


def _read_count(fields: Fields) -> int:
  count = fields.row.get('train_count')
  if type(count) is int and 0 <= count < 2**31:
    return count
  fields.faults.append('train_count is no count')
  return 0


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
  """One split: ids, gold, and text by random access.

  Attributes:
    name: train, dev, test or the user's own.
    ids: N document ids.
    gold: N rows of label indices, each sorted; a training split has no
      held-out labels.
    documents: N documents by random access; nothing is kept of one read.
    digest: hex digest of the documents, and of the zones they are cut to.
    features: vectors of the N documents, where models read such.
  """

  name: str
  ids: Sequence[str]
  gold: Ragged
  documents: Sequence[Document]
  digest: str
  features: FeatureRows | None = None

  def __len__(self) -> int:
    return len(self.ids)


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
  """A label space and its splits; an absent split is absent.

  Attributes:
    label_space: the labels of all splits.
    splits: name -> split.
    fingerprint: hex digest of all content (text, gold, labels).
  """

  label_space: LabelSpace
  splits: Mapping[str, Split]
  fingerprint: str

  def split(self, name: str) -> Split:
    """The named split.

    Raises:
      DataError: it is absent; the message lists those present.
    """
    if name not in self.splits:
      raise DataError(
        f'this corpus has no split {name!r}; it has: {", ".join(self.splits)}'
      )
    return self.splits[name]
