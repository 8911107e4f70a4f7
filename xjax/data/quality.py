"""Measures the documents and labels of a corpus, before a model is trained."""

from collections.abc import Sequence
import dataclasses
import itertools
import re

import numpy as np

from xjax.core.errors import DataError
from xjax.core.progress import progress
from xjax.core.texts import plain_name
from xjax.data.documents import SparseDocuments
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import USUAL
from xjax.data.schema import Corpus, LabelSpace, Split, may_repeat
from xjax.data.text.words import split_words

_QUICK = 1_000_000  # so many names are compared in about a second
# Ids that are no ids of the user: of lines, and numbers of files in a folder.
_NUMBERED = re.compile(r'line-\d+|.+/[\d_-]+(?:\.txt)?')
_SHOWN = 3  # examples of each kind


@dataclasses.dataclass(frozen=True)
class Overlap:
  """Counts the documents of a split that are in another split too.

  Texts that differ only in case, white space or Unicode form are the same text.
  Documents without text are not counted.
  """

  split: str
  other: str
  documents: int  # all documents of the split
  same_text: int  # documents whose text is in the other split
  same_id: int  # documents whose id is there, with another text
  text_examples: tuple[tuple[str, str], ...]  # up to 3 pairs of ids
  id_examples: tuple[str, ...]  # up to 3 ids of different texts

  def warnings(self) -> list[str]:
    messages = []
    both = f'{self.split} and {self.other}'
    if self.same_text:
      counted = share_text(self.same_text, self.documents, self.split)
      messages.append(
        f'{both} share documents: {counted} the same text as a document of '
        f'{self.other}, such as {pairs_text(self.text_examples)}. So metrics '
        f'on {self.split} are too high. Remove these documents from one of '
        'the splits'
      )
    if self.same_id:
      counted = share_text(self.same_id, self.documents, self.split)
      messages.append(
        f'{both} share ids: {counted} the id of a document of {self.other}, '
        f'but another text, such as {", ".join(map(ascii, self.id_examples))}. '
        'If these are versions of the same documents, keep all versions in one '
        'split'
      )
    return messages


def share_text(count: int, total: int, split: str) -> str:
  """Returns a text such as `2 of 30 documents of dev have`."""
  verb = 'has' if count == 1 else 'have'
  return f'{count:,} of {plural(total, "document")} of {split} {verb}'


def pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
  """Returns a text that shows pairs of ids."""
  return ', '.join(f'{one!a} and {two!a}' for one, two in pairs)


def find_overlaps(corpus: Corpus) -> list[Overlap]:
  """Compares dev with train, test with train, and test with dev."""
  splits = [corpus.splits[name] for name in USUAL if name in corpus.splits]
  splits = [split for split in splits if split.text_digests is not None]
  # Splits that were drawn are of one file, whose rows the ids may number.
  drawn = [id_ for x in splits if x.name in corpus.drawn for id_ in x.ids]
  files = {x.name: drawn if x.name in corpus.drawn else x.ids for x in splits}
  numbered = {name for name, ids in files.items() if _has_numbers(ids)}
  pairs = itertools.combinations(splits, 2)
  overlaps = [_compare(split, other, numbered) for other, split in pairs]
  return [overlap for overlap in overlaps if overlap.warnings()]


def _compare(split: Split, other: Split, numbered: set[str]) -> Overlap:
  ours, theirs = split.text_digests, other.text_digests
  same = np.flatnonzero(np.isin(ours, theirs) & (ours != 0))
  text_examples = tuple(
    (split.ids[row], other.ids[np.flatnonzero(theirs == ours[row])[0]])
    for row in same[:_SHOWN]
  )
  row_of = {id_: row for row, id_ in enumerate(split.ids)}
  shared = [
    id_
    for row, id_ in enumerate(other.ids)
    if id_ in row_of
    and ours[row_of[id_]] != theirs[row]
    and not _NUMBERED.fullmatch(id_)
  ]
  if {split.name, other.name} <= numbered:
    shared = []
  return Overlap(
    split=split.name,
    other=other.name,
    documents=len(split),
    same_text=len(same),
    same_id=len(shared),
    text_examples=text_examples,
    id_examples=tuple(shared[:_SHOWN]),
  )


def _has_numbers(ids: Sequence[str]) -> bool:
  """Returns whether the ids look like row numbers of a file."""
  # Numbers up to twice the number of documents, also as 007 or 7.0.
  numbers = (id_.removesuffix('.0') for id_ in ids)
  largest = 2 * len(ids)
  return all(n.isdecimal() and int(n[-18:]) <= largest for n in numbers)


def find_repeats(split: Split) -> tuple[int, tuple[tuple[str, str], ...], int]:
  """Finds documents whose text an earlier document of the split has too.

  Returns their number (0 without text), up to 3 pairs of ids, each with the
  earlier document, and how many have other labels than the earlier document.
  """
  if split.text_digests is None:
    return 0, (), 0
  _, first, inverse = np.unique(
    split.text_digests, return_index=True, return_inverse=True
  )
  earlier = first[inverse]
  later = earlier != np.arange(len(split))
  rows = np.flatnonzero(later & (split.text_digests != 0))
  ids, gold = split.ids, split.gold
  examples = tuple((ids[row], ids[earlier[row]]) for row in rows[:_SHOWN])
  same = [np.array_equal(gold[row], gold[earlier[row]]) for row in rows]
  return len(rows), examples, same.count(False)


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
class CorpusQuality:
  splits: tuple[SplitQuality, ...]
  unit: str  # what sizes count: 'word' or 'feature'
  train_counts: np.ndarray  # int [L], training documents of each label
  unseen: np.ndarray  # labels of dev or test that train lacks, ascending
  similar_names: tuple[tuple[int, ...], ...]  # labels (find_similar_names)
  overlaps: tuple[Overlap, ...]


def measure_quality(corpus: Corpus) -> CorpusQuality:
  """Measures a corpus; reads each document once."""
  splits = corpus.splits.values()
  counts = corpus.label_space.train_counts
  golden = np.zeros(len(counts), bool)
  for split in splits:
    golden[split.gold.values] = True
  sparse = any(isinstance(s.documents, SparseDocuments) for s in splits)
  return CorpusQuality(
    splits=tuple(map(_measure_split, splits)),
    unit='feature' if sparse else 'word',
    train_counts=counts,
    unseen=np.flatnonzero(golden & (counts == 0)),
    similar_names=find_similar_names(corpus.label_space),
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
    sizes = (len(split_words(doc.text(), True)) for doc in documents)
    return np.fromiter(sizes, np.int32, len(split))


def find_similar_names(space: LabelSpace) -> tuple[tuple[int, ...], ...]:
  """Finds labels whose names differ at most in case or in form (plain_name)."""
  # A label without a name is compared by its id.
  labels = space.labels
  keys = map(_compared, labels.ids, labels.names)
  groups: dict[str, list[int]] = {}
  for row in np.flatnonzero(may_repeat(keys, len(labels))).tolist():
    key = _compared(labels.ids[row], labels.names[row])
    groups.setdefault(key, []).append(row)
  return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _compared(id_: str, names: Sequence[str]) -> str:
  """Returns the name of a label in its one form, without its case."""
  name = names[0] if names else id_
  return plain_name(name).casefold()


def similar_names_warning(space: LabelSpace) -> str:
  """Returns a message about labels with similar names; '' if there are none."""
  # Above a million labels, nothing is searched: a run should not wait.
  if len(space) > _QUICK:
    return ''
  groups = find_similar_names(space)
  if not groups:
    return ''
  pair = [space.labels[row] for row in groups[0][:2]]
  one, other = (
    f'{label.name!a}' + (f' ({label.id!a})' if label.name != label.id else '')
    for label in pair
  )
  verb = 'differs' if len(groups) == 1 else 'differ'
  return (
    f'{plural(len(groups), "group")} of labels {verb} only in case or white '
    f'space, or not at all, such as {one} and {other}: xjax data check lists '
    'them'
  )


def check_train_labels(corpus: Corpus) -> None:
  """Raises a DataError if no label has training documents."""
  if not corpus.label_space.train_counts.any():
    raise DataError(
      'no document of the split train has a label, so there is nothing to learn'
    )
