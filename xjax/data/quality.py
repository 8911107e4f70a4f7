"""Measures the documents and labels of a corpus, before a model is trained."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import DataError
from xjax.core.progress import progress
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.overlaps import Overlap, find_overlaps, find_repeats
from xjax.data.schema import Corpus, LabelSpace, Split
from xjax.data.sparse_documents import SparseDocuments

_QUICK = 1_000_000  # so many names are compared in about a second


@dataclasses.dataclass(frozen=True, eq=False)
class SplitQuality:
  """Measures the N documents of a split."""

  name: str
  labels: np.ndarray  # int [N], gold labels of each document
  sizes: np.ndarray  # int32 [N], words in the zones read, or features
  repeats: int  # documents with the text of an earlier one
  # Up to 3 pairs with the earlier id.
  repeat_examples: tuple[tuple[str, str], ...]
  conflicts: int  # repeats with other labels
  empty_example: str | None  # id of a document of size 0, if any


@dataclasses.dataclass(frozen=True, eq=False)
class Quality:
  splits: tuple[SplitQuality, ...]
  unit: str  # what sizes count: 'word' or 'feature'
  train_counts: np.ndarray  # int [L], training documents of each label
  unseen: np.ndarray  # labels of dev or test that train lacks, ascending
  twins: tuple[tuple[int, ...], ...]  # labels with similar names (find_twins)
  overlaps: tuple[Overlap, ...]


def measure(corpus: Corpus) -> Quality:
  """Measures a corpus; reads each document once."""
  splits = corpus.splits.values()
  counts = corpus.label_space.train_counts
  golden = np.zeros(len(counts), bool)
  for split in splits:
    golden[split.gold.values] = True
  sparse = any(isinstance(s.documents, SparseDocuments) for s in splits)
  return Quality(
    splits=tuple(map(_measure_split, splits)),
    unit='feature' if sparse else 'word',
    train_counts=counts,
    unseen=np.flatnonzero(golden & (counts == 0)),
    twins=find_twins(corpus.label_space),
    overlaps=tuple(find_overlaps(corpus)),
  )


def _measure_split(split: Split) -> SplitQuality:
  sizes = _sizes(split)
  empty = np.flatnonzero(sizes == 0)
  repeats, examples, conflicts = find_repeats(split)
  return SplitQuality(
    name=split.name,
    labels=split.gold.lengths,
    sizes=sizes,
    repeats=repeats,
    repeat_examples=examples,
    conflicts=conflicts,
    empty_example=split.ids[empty[0]] if len(empty) else None,
  )


def _sizes(split: Split) -> np.ndarray:
  """Returns the numbers of words or of features, int32 [N]."""
  if isinstance(split.documents, SparseDocuments):
    return np.diff(split.documents.rows.indptr).astype(np.int32)
  work = f'counting the words of {split.name}'
  with progress(split.documents, work, unit='document') as documents:
    sizes = (len(document.text().split()) for document in documents)
    return np.fromiter(sizes, np.int32, len(split))


def find_twins(space: LabelSpace) -> tuple[tuple[int, ...], ...]:
  """Finds labels whose names differ at most in case or white space."""
  # A label without a name is compared by its id.
  labels = space.labels
  keys = map(_compared, labels.ids, labels.names)
  # Hashes need much less memory than keys, and few keys share a hash.
  hashes = np.fromiter(map(hash, keys), np.int64, len(labels))
  _, inverse, counts = np.unique(
    hashes, return_inverse=True, return_counts=True
  )
  groups: dict[str, list[int]] = {}
  for row in np.flatnonzero(counts[inverse] > 1).tolist():
    key = _compared(labels.ids[row], labels.names[row])
    groups.setdefault(key, []).append(row)
  return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _compared(id_: str, names: Sequence[str]) -> str:
  """Returns the name of a label, without its case and extra white space."""
  name = names[0] if names else id_
  return ' '.join(name.split()).casefold()


def twins_warning(space: LabelSpace) -> str:
  """Returns a message about labels with similar names; '' if there are none."""
  # Above a million labels, nothing is searched: a run should not wait.
  if len(space) > _QUICK:
    return ''
  groups = find_twins(space)
  if not groups:
    return ''
  one, other = (space.labels[row].name for row in groups[0][:2])
  verb = 'differs' if len(groups) == 1 else 'differ'
  return (
    f'{plural(len(groups), "group")} of labels {verb} only in case or white '
    f'space, or not at all, such as {one!a} and {other!a}: xjax data check '
    'lists them'
  )


def check_train_split(corpus: Corpus) -> None:
  """Raises a DataError if a corpus has no split train."""
  if TRAIN not in corpus.splits:
    raise DataError(
      'the corpus has no split train; its splits are '
      + ', '.join(corpus.splits)
    )


def check_train_labels(corpus: Corpus) -> None:
  """Raises a DataError if no label has training documents."""
  if not corpus.label_space.train_counts.any():
    raise DataError(
      'no document of the split train has a label, so there is nothing to learn'
    )
