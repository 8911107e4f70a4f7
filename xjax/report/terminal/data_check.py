"""Checks the data of a run, and shows what is in them as text."""

from collections.abc import Iterator, Sequence
import tempfile

import numpy as np

from xjax.core.errors import UserError
from xjax.data.files.faults import plural
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.quality import (
  CorpusQuality,
  SplitQuality,
  measure_quality,
  pairs_text,
  share_text,
)
from xjax.data.schema import Label, Labels
from xjax.models.contract import Config, Run
from xjax.report.table import Table, list_item, plain_text
from xjax.run.fit import check_corpus, read_for_run
from xjax.train.workdir import Workdir

_SHORT = 3  # a text with fewer words is very short
_WIDTH = 80
_BAR = 40  # characters of the longest bar
_SHOWN = 50  # groups of labels in a warning
_NAMED = 5  # labels without training documents in a warning
# Ranges of a label's number of training documents; None is no upper end.
_BINS = ((0, 0), (1, 1), (2, 4), (5, 9), (10, 49), (50, None))
_QUANTILES = (10, 25, 50, 75, 90)


def check_data(config: Config) -> tuple[str, bool]:
  """Describes the corpus of a config, and returns whether a run accepts it."""
  # If not, the text says why. A run in a new folder is checked; it has none of
  # the files that a resumed run trusts.
  text, refused = '', '\n\nA run would refuse these data.'
  with tempfile.TemporaryDirectory() as folder:
    run = Run(config, Workdir.at(folder))
    try:
      run, corpus = read_for_run(run, log=False)
      labels = corpus.label_space.labels
      text = quality_text(measure_quality(corpus), labels) + '\n\n'
      check_corpus(run, corpus)
    except UserError as error:
      return f'{text}{error}{refused}', False
  return f'{text}A run would accept these data.', True


def quality_text(quality: CorpusQuality, labels: Labels) -> str:
  """Returns tables, histograms and warnings about a corpus."""
  parts = [_split_text(quality), _label_text(quality), _size_text(quality)]
  if quality.unit == 'word' and not any(
    [*quality.overlaps, *(split.repeats for split in quality.splits)]
  ):
    parts.append('no text is in two splits, or twice in one split')
  warnings = _warnings(quality, labels)
  parts += [list_item(message, '! ', _WIDTH) for message in warnings]
  return '\n\n'.join(parts)


def _split_text(quality: CorpusQuality) -> str:
  unit, is_words = f'{quality.unit}s', quality.unit == 'word'
  header = ('split', 'documents', 'no label', 'labels', 'most')
  header += (unit, '90 %', 'most', 'empty', *(['short'] * is_words))
  rows = [
    [
      split.name,
      len(split.labels),
      int((split.labels == 0).sum()),
      f'{split.labels.mean():.2f}',
      int(split.labels.max()),
      f'{np.median(split.sizes):,.0f}',
      f'{np.percentile(split.sizes, 90):,.0f}',
      int(split.sizes.max()),
      int((split.sizes == 0).sum()),
      *([int((split.sizes < _SHORT).sum())] * is_words),
    ]
    for split in quality.splits
  ]
  lines = [
    plain_text(Table.of(header, rows)),
    'labels: mean and maximum per document',
    f'{unit}: median, 90 % quantile and maximum per document',
    *([f'short: documents with fewer than {_SHORT} words'] * is_words),
  ]
  return '\n'.join(lines)


def _label_text(quality: CorpusQuality) -> str:
  counts = quality.train_counts
  quantiles = ', '.join(
    f'{q} % {value:,.0f}'
    for q, value in zip(_QUANTILES, np.percentile(counts, _QUANTILES))
  )
  rows = []
  for low, high in _BINS:
    inside = (counts >= low) & (counts <= (np.inf if high is None else high))
    name = f'{low}+' if high is None else f'{low}-{high}'
    name = f'{low}' if low == high else name
    share = counts[inside].sum() / max(counts.sum(), 1)
    rows.append((name, int(inside.sum()), f'{share:.0%}'))
  return (
    f'{plural(len(counts), "label")}, with {counts.min():,} to '
    f'{counts.max():,} training documents\n'
    f'quantiles of training documents: {quantiles}\n'
    + _histogram(('training documents', 'labels', 'of gold'), rows)
    + '\nof gold: share of all gold labels of train'
  )


def _size_text(quality: CorpusQuality) -> str:
  """Returns a histogram of sizes, whose bins double: 0, 1, 2-3, 4-7, ..."""
  sizes = np.concatenate([split.sizes for split in quality.splits])
  # frexp gives the number of binary digits of an integer.
  counts = np.bincount(np.frexp(sizes)[1])
  rows = []
  for digits in range(np.flatnonzero(counts)[0], len(counts)):
    low, high = 2**digits // 2, max(2**digits - 1, 0)
    name = f'{low:,}' if low == high else f'{low:,}-{high:,}'
    share = counts[digits] / len(sizes)
    rows.append((name, int(counts[digits]), f'{share:.0%}'))
  return _histogram((f'{quality.unit}s', 'documents', 'share'), rows)


def _histogram(
  header: Sequence[str], rows: Sequence[tuple[str, int, str]]
) -> str:
  largest = max(count for _, count, _ in rows) or 1
  bars = ['', *('#' * -(-_BAR * count // largest) for _, count, _ in rows)]
  lines = plain_text(Table.of(header, rows, n_text=0)).splitlines()
  return '\n'.join(
    f'{line}  {bar}'.rstrip() for line, bar in zip(lines, bars, strict=True)
  )


def _warnings(quality: CorpusQuality, labels: Labels) -> Iterator[str]:
  for overlap in quality.overlaps:
    yield from overlap.warnings()
  for split in quality.splits:
    yield from _split_warnings(split, quality.unit)
  if len(quality.unseen):
    yield _unseen_warning(quality.unseen, labels)
  yield from _twin_warnings(quality, labels)
  if not any(split.name == 'dev' for split in quality.splits):
    yield (
      'there is no split dev: probabilities are not calibrated, and no '
      'checkpoint or threshold is chosen. Move some documents of train to dev'
    )


def _split_warnings(split: SplitQuality, unit: str) -> Iterator[str]:
  name, total = split.name, len(split.labels)
  if split.repeats:
    others, advice = 'None has', 'Keep one document of each text'
    if split.conflicts:
      verb = 'has' if split.conflicts == 1 else 'have'
      others = f'{split.conflicts:,} of {split.repeats:,} {verb}'
      advice = 'Make one document of each text, with the labels of all'
    yield (
      f'{share_text(split.repeats, total, name)} the same text as an earlier '
      f'document of {name}, such as {pairs_text(split.repeat_examples)}. '
      f'{others} other labels than the earlier document. {advice}'
    )
  if split.empty_example is not None:
    empty = int((split.sizes == 0).sum())
    yield (
      f'{share_text(empty, total, name)} no {unit}, such as '
      f'{split.empty_example!a}. Remove them, or add their text'
    )
  unlabelled = int((split.labels == 0).sum())
  if unlabelled:
    harm = 'Most metrics leave them out'
    if name == TRAIN:
      harm = 'A model learns that no label fits them'
    yield (
      f'{share_text(unlabelled, total, name)} no label. {harm}. Remove them if '
      'their labels are not known'
    )


def _unseen_warning(unseen: np.ndarray, labels: Labels) -> str:
  named = [ascii(labels.shown(row)) for row in unseen[:_NAMED]]
  more = len(unseen) - len(named)
  named += [f'and {more:,} more'] if more else []
  verb = 'has' if len(unseen) == 1 else 'have'
  return (
    f'{plural(len(unseen), "label")} of dev or test {verb} no training '
    "document. Only models that read labels' names can predict such labels, "
    f'here {", ".join(named)}'
  )


def _twin_warnings(quality: CorpusQuality, labels: Labels) -> Iterator[str]:
  """Yields a warning of names of labels that may be one, and of other names.

  Labels with different parents are different labels.
  """
  alike, apart = [], []
  for group in quality.similar_names:
    by_parents: dict[frozenset[str], list[int]] = {}
    for row in group:
      by_parents.setdefault(frozenset(labels[row].parents), []).append(row)
    alike += [rows for rows in by_parents.values() if len(rows) > 1]
    apart += [group] if len(by_parents) > 1 else []

  def names(groups: Sequence[Sequence[int]]) -> str:
    texts = [
      ', '.join(_twin(labels[i], quality.train_counts[i]) for i in group)
      for group in groups[:_SHOWN]
    ]
    more = len(groups) - len(texts)
    texts += [f'and {plural(more, "more group")}'] if more else []
    return (
      'differ only in case or white space, or not at all (in brackets, their '
      f'training documents): {"; ".join(texts)}. '
    )

  if alike:
    advice = 'Merge the labels of a group, unless they mean different things'
    yield f'the names of some labels {names(alike)}{advice}'
  if apart:
    advice = 'They stay apart, and their ids are shown beside equal names'
    yield f'the names of labels with different parents {names(apart)}{advice}'


def _twin(label: Label, count: int) -> str:
  id_ = '' if label.name == label.id else f'{label.id!a} '
  return f'{id_}{label.name!a} ({count:,})'
