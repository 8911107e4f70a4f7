"""Defines the types of a corpus: documents, labels, label spaces, splits."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import os
from typing import Any
import unicodedata

import numpy as np

from xjax.core.atomic import atomic_write
from xjax.core.errors import DataError
from xjax.core.texts import TextIndex, TextLists, TextPacker, Texts, plain_name
from xjax.core.types import PAD, Ragged
from xjax.data.files.faults import Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import read_records, write_json_lines
from xjax.data.vectors.feature_rows import FeatureRows

# A and B of the propensity formula (Jain et al. 2016). Amazon-670K and similar
# corpora have (0.6, 2.6), and Wikipedia corpora have (0.5, 0.4).
PROPENSITY = (0.55, 1.5)


def propensity_weights(
  train_counts: np.ndarray,
  n_train: int,
  a: float = PROPENSITY[0],
  b: float = PROPENSITY[1],
) -> np.ndarray:
  """Returns inverse propensities, the weights of propensity-scored metrics.

  w_l = 1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A (Jain et al. 2016),
  float64 [L], at least 1. Label l has n_l of the N training documents. For data
  like Amazon-670K, use A = 0.6 and B = 2.6; for Wikipedia, 0.5 and 0.4. With
  fewer than 3 documents, C is negative: a DataError.
  """
  if n_train < 3:
    raise DataError(
      f'propensities need at least 3 training documents, not {n_train}'
    )
  c = (np.log(n_train) - 1) * (b + 1) ** a
  return 1 + c * (np.asarray(train_counts, np.float64) + b) ** -a


FREQUENT_FROM = 50  # smallest training count of a frequent label
# Flags of labels in labels.jsonl: trained (no flag), held out, new, outside.
HELD_OUT = 'held_out'
_FLAGS = ('', HELD_OUT, 'new', 'outside')
_MOST_COMPARED = 1_000_000  # names; comparing so many takes a few seconds


nfc = functools.partial(unicodedata.normalize, 'NFC')


@dataclasses.dataclass(frozen=True)
class Document:
  """Holds one document: its id, its text by zone, and its gold labels."""

  id: str  # unique within its split
  zones: Mapping[str, str]  # zone name -> text, in reading order
  labels: tuple[str, ...] | None = ()  # gold ids as given; None: unknown

  def text(self, zones: Iterable[str] = ()) -> str:
    """Joins the named zones, or all zones, with newlines; the text is in NFC.

    So models read the same text, however its accents are stored. The places of
    words are those in `zones`, which stay as they are.
    """
    names = tuple(zones) or tuple(self.zones)
    return nfc('\n'.join(self.zones[n] for n in names if self.zones.get(n)))

  def with_facts(self, facts: Mapping[str, str]) -> 'Document':
    """Returns the document with facts (Fields.facts) as more zones."""
    return dataclasses.replace(self, zones={**facts, **self.zones})


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
  """Holds the descriptor of one label: id, names, parents, description."""

  id: str
  name: str = ''
  alt: tuple[str, ...] = ()
  parents: tuple[str, ...] = ()
  description: str = ''


def read_label(fields: Fields) -> Label:
  """Reads a descriptor and adds what is wrong with it to fields.faults."""
  id_ = fields.identifier('id')
  return Label(
    id=id_,
    name=plain_name(fields.text('name', '')) or id_,
    alt=tuple(filter(None, map(plain_name, fields.texts('alt', ())))),
    parents=fields.identifiers('parents', ()),
    description=fields.text('description', ''),
  )


def label_row(label: Label) -> dict[str, Any]:
  """Returns the JSON object of a label, which read_label reads."""
  return {field: getattr(label, field) for field in Label.__slots__}


@dataclasses.dataclass(frozen=True, eq=False)
class Labels(Sequence[Label]):
  """Holds the descriptors of L labels as arrays.

  Each access makes a new Label. An entry of `names` has one name, or none if
  the name is the same as the id. Some `parents` may not be in `ids`.
  """

  ids: Texts
  names: TextLists
  alt: TextLists  # alternative names
  parents: TextLists  # parent ids
  descriptions: Texts  # '' if a label has none

  @classmethod
  def of(cls, labels: Iterable[Label]) -> 'Labels':
    if isinstance(labels, cls):
      return labels
    kinds = Texts, TextLists, TextLists, TextLists, Texts
    columns = [TextPacker(kind) for kind in kinds]
    for label in labels:
      names = () if label.name == label.id else (label.name,)
      row = label.id, names, label.alt, label.parents, label.description
      for column, value in zip(columns, row, strict=True):
        column.append(value)
    return cls(*(column.done() for column in columns))

  @classmethod
  def join(cls, *parts: Iterable[Label]) -> 'Labels':
    columns = zip(*(cls.of(part)._columns for part in parts), strict=True)
    return cls(*(type(column[0]).concatenate(column) for column in columns))

  @property
  def _columns(self) -> tuple[Texts | TextLists, ...]:
    return self.ids, self.names, self.alt, self.parents, self.descriptions

  def __len__(self) -> int:
    return len(self.ids)

  def __getitem__(self, rows: int | slice | np.ndarray) -> 'Label | Labels':
    """Returns one label, or Labels for a slice or an array of rows."""
    parts = [column[rows] for column in self._columns]
    return Labels(*parts) if isinstance(parts[0], Texts) else _label(*parts)

  def __iter__(self) -> Iterator[Label]:
    return map(_label, *self._columns)

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Sequence):
      return NotImplemented
    return self._columns == Labels.of(other)._columns

  __hash__ = None

  def shown(self, row: int) -> str:
    """Returns the name of a label as people read it.

    The id stands beside a name that another label has too.
    """
    label = self[row]
    name = plain_name(label.name) or label.id
    # Very many names would take long to compare.
    is_twice = len(self) > _MOST_COMPARED or self._is_named_twice[row]
    return f'{name} ({label.id})' if is_twice and name != label.id else name

  @functools.cached_property
  def _is_named_twice(self) -> np.ndarray:
    pairs = zip(self.ids, self.names)
    names = (plain_name(''.join(names)) or id_ for id_, names in pairs)
    return may_repeat(names, len(self))

  def with_ids(self, ids: Sequence[str]) -> 'Labels':
    """Returns labels with these ids; the name of an unknown label is its id."""
    rows = self.ids.row_of.find(ids)
    return Labels.of(
      Label(id_, id_) if row == PAD else self[row]
      for id_, row in zip(ids, rows, strict=True)
    )


def may_repeat(keys: Iterable[str], n: int) -> np.ndarray:
  """Returns which of n keys seem to be equal to another one, bool [n]."""
  # Hashes need much less memory than keys, and few keys share a hash.
  hashes = np.fromiter(map(hash, keys), np.int64, n)
  _, inverse, counts = np.unique(
    hashes, return_inverse=True, return_counts=True
  )
  return counts[inverse] > 1


def _label(id_: str, names: tuple[str, ...], *others: Any) -> Label:
  return Label(id_, names[0] if names else id_, *others)


def slice_masks(
  train_counts: np.ndarray,
  held_out: np.ndarray,
  frequent_from: int = FREQUENT_FROM,
  left_out: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
  """Returns the masks of label slices, bool [L], by name of the slice.

  Labels are frequent with at least 50 training documents (`frequent_from`), few
  with 1 to 49, and zero without any. Held-out labels are in the slice zero too,
  and form the slice held_out, if there are any. Labels of `left_out` are in no
  slice.
  """
  masks = {
    'frequent': train_counts >= frequent_from,
    'few': (train_counts > 0) & (train_counts < frequent_from),
    'zero': train_counts == 0,
  }
  if len(held_out):
    masks[HELD_OUT] = np.zeros(len(train_counts), bool)
    masks[HELD_OUT][held_out] = True
  if left_out is not None:
    for mask_L in masks.values():
      mask_L[left_out] = False
  return masks


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSpace:
  """Holds labels in a fixed order: trained, held out, new, outside.

  A label's index in `labels` identifies it everywhere; of equal scores, the
  smaller index comes first. New labels were added by name after training.
  Outside labels are gold labels that no model scores.
  """

  labels: Labels
  train_counts: np.ndarray  # int32 [L], documents; 0 unless trained
  n_train: int  # number of training documents
  n_trained: int  # size of the training label space
  n_held_out: int = 0
  n_new: int = 0
  # Other concepts of the labels' taxonomy, which no model predicts.
  concepts: Labels = ()
  left_out_ids: Sequence[str] = ()  # trained, but neither predicted nor judged

  def __post_init__(self) -> None:
    object.__setattr__(self, 'labels', Labels.of(self.labels))
    object.__setattr__(self, 'concepts', Labels.of(self.concepts))
    object.__setattr__(self, 'left_out_ids', tuple(self.left_out_ids))

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def n_outside(self) -> int:
    return len(self) - self.n_inside

  @property
  def n_inside(self) -> int:
    """Returns the number of labels before those outside the label space."""
    return self.n_trained + self.n_held_out + self.n_new

  @property
  def held_out(self) -> np.ndarray:
    """Returns the indices of the held-out labels, int32."""
    first = self.n_trained
    return np.arange(first, first + self.n_held_out, dtype=np.int32)

  @functools.cached_property
  def left_out(self) -> np.ndarray:
    """Returns the indices of the left-out labels, int32, ascending."""
    rows = self.index.find(self.left_out_ids)
    return np.sort(rows[rows != PAD]).astype(np.int32)

  @functools.cached_property
  def allowed(self) -> np.ndarray | None:
    """Returns which labels are predicted and judged, bool [L]; None: all."""
    if not len(self.left_out):
      return None
    allowed_L = np.ones(len(self), bool)
    allowed_L[self.left_out] = False
    return allowed_L

  @property
  def ids(self) -> Texts:
    return self.labels.ids

  @property
  def taxonomy_digest(self) -> str | None:
    """Returns the digest of ids and parents; None if nothing has a parent."""
    parts = self.labels, self.concepts
    if not any(len(part.parents.bytes()) for part in parts):
      return None
    digest = hashlib.sha256()
    for part in parts:
      for row in zip(part.ids, part.parents, strict=True):
        digest.update(json.dumps(row).encode())
      digest.update(b'\n')
    return digest.hexdigest()

  @property
  def index(self) -> TextIndex:
    return self.ids.row_of

  def masks(self) -> dict[str, np.ndarray]:
    return slice_masks(self.train_counts, self.held_out, left_out=self.left_out)

  def save(self, path: str | os.PathLike) -> None:
    """Writes labels.jsonl: a label, its count and its kind on each line."""
    parts = (self.n_trained, self.n_held_out, self.n_new, self.n_outside)
    flags = itertools.chain(*map(itertools.repeat, _FLAGS, parts))
    rows = (
      {**label_row(label), 'train_count': int(count)}
      | ({flag: True} if flag else {})
      for label, count, flag in zip(self.labels, self.train_counts, flags)
    )
    write_json_lines(path, rows)

  def save_concepts(self, path: str | os.PathLike) -> None:
    """Writes the concepts, one per line, in the form of labels.jsonl."""
    write_json_lines(path, map(label_row, self.concepts))

  def save_left_out(self, path: str | os.PathLike) -> None:
    with atomic_write(path) as file:
      file.writelines(f'{id_}\n' for id_ in self.left_out_ids)

  @classmethod
  def load(cls, path: str | os.PathLike, n_train: int) -> 'LabelSpace':
    """Reads what `save` wrote; a DataError if it is missing or damaged."""
    # Concepts and left-out labels are not in the file.
    faults = Faults(on_error=None)
    counts, sizes = array('i'), [0] * len(_FLAGS)

    def read() -> Iterator[Label]:
      for _, fields in read_records(path, faults):
        label = read_label(fields)
        counts.append(_read_count(fields))
        # '' is among the flags of every label; the last one that it has counts.
        row = '', *fields.row
        part = max(i for i, flag in enumerate(_FLAGS) if flag in row)
        sizes[part] += 1
        if any(sizes[part + 1 :]):
          fields.faults.append(
            f'label {label.id!a} is in the wrong place; the order is trained, '
            'held out, new, outside'
          )
        yield label

    labels = Labels.of(read())
    if not len(labels):
      faults.add_empty(path, 'label', 0)
    for row in labels.ids.row_of.repeated():
      faults.add(path, None, f'duplicate label {labels.ids[row]!a}')
    faults.raise_or_log()
    return cls(
      labels=labels,
      train_counts=np.array(counts, np.int32),
      n_train=n_train,
      n_trained=sizes[0],
      n_held_out=sizes[1],
      n_new=sizes[2],
    )


def load_concepts(path: str | os.PathLike) -> Labels:
  """Reads a file that LabelSpace.save_concepts wrote; none if it is missing."""
  if not os.path.exists(path):
    return Labels.of(())
  faults = Faults(on_error=None)
  labels = Labels.of(read_label(row) for _, row in read_records(path, faults))
  faults.raise_or_log()
  return labels


def _read_count(fields: Fields) -> int:
  """Returns the training count of a label; 0 if the count is faulty."""
  count = fields.row.get('train_count')
  if type(count) is int and 0 <= count < 2**31:
    return count
  fields.faults.append('train_count must be an integer from 0 to 2**31 - 1')
  return 0


def json_digest(*parts: Any) -> str:
  """Returns the SHA-256 of values that JSON has."""
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
  """Holds one split of a corpus: ids, gold labels, text by random access."""

  name: str  # train, dev, test or a name from the user
  ids: Sequence[str]
  gold: Ragged  # N sorted rows; those of train have no held-out labels
  # By random access; each access reads a document again.
  documents: Sequence[Document]
  digest: str  # of the documents and the zones that they keep
  features: FeatureRows | None = None  # vectors; None if models read none
  # uint64 [N], equal if texts differ only in case, white space or Unicode form;
  # 0 if empty.
  text_digests: np.ndarray | None = None

  def __len__(self) -> int:
    return len(self.ids)

  def part(
    self, rows: np.ndarray, documents: Sequence[Document], gold: Ragged
  ) -> 'Split':
    """Returns some rows of the split, with their documents and gold."""
    ids = tuple(self.ids[row] for row in rows.tolist())
    features, texts = self.features, self.text_digests
    return dataclasses.replace(
      self,
      ids=ids,
      gold=gold,
      documents=documents,
      digest=json_digest(self.digest, rows.tolist()),
      features=None if features is None else features.select(rows, ids),
      text_digests=None if texts is None else texts[rows],
    )

  @property
  def source(self) -> str:
    has_vectors = self.features is not None
    documents = self.features if has_vectors else self.documents
    return getattr(documents, 'source', self.name)


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
  """Holds the splits of a corpus, and the label space that they share."""

  label_space: LabelSpace
  splits: Mapping[str, Split]  # by name; only the splits that exist
  fingerprint: str  # hex digest of all content (text, gold, labels)
  drawn: tuple[str, ...] = ()  # names of the splits that xjax drew
  left_out: str = ''  # says how many faulty records are left out

  @property
  def trained_gold(self) -> Ragged:
    """Returns the gold labels of the split train that are trained."""
    gold = self.split('train').gold
    return gold.keep(np.asarray(gold.values) < self.label_space.n_trained)

  def split(self, name: str) -> Split:
    """Returns the named split, or raises a DataError that lists the splits."""
    if name not in self.splits:
      raise DataError(
        f'this corpus has no split {name!r}; it has: {", ".join(self.splits)}'
      )
    return self.splits[name]
