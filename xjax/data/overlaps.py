"""Finds documents that are in two splits of a corpus, or twice in one split."""

from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np

from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import USUAL
from xjax.data.schema import Corpus, Split

_NUMBERED = 'line-'  # prefix of the id of a document without an id
_SHOWN = 3  # examples of each kind


@dataclasses.dataclass(frozen=True)
class Overlap:
  """Counts the documents of a split that are in another split too.

  Texts that differ only in white space are the same text. Documents without
  text are not counted.
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
  pairs = itertools.combinations(splits, 2)
  overlaps = [_compare(split, other) for other, split in pairs]
  return [overlap for overlap in overlaps if overlap.warnings()]


def _compare(split: Split, other: Split) -> Overlap:
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
    if id_ in row_of and ours[row_of[id_]] != theirs[row]
  ]
  if shared and _has_numbers(split.ids) and _has_numbers(other.ids):
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
  """Returns whether the ids look like row or line numbers of a split."""
  # Numbers, perhaps after `line-`, up to twice the number of documents.
  largest = 2 * len(ids)
  numbers = [id_.removeprefix(_NUMBERED) for id_ in ids]
  return all(
    n.isdecimal() and len(n) <= len(str(largest)) and int(n) <= largest
    for n in numbers
  )


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
  examples = tuple(
    (split.ids[row], split.ids[earlier[row]]) for row in rows[:_SHOWN]
  )
  gold = split.gold
  conflicts = sum(
    not np.array_equal(gold[row], gold[earlier[row]]) for row in rows
  )
  return len(rows), examples, conflicts
