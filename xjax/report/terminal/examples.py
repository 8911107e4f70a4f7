"""A few documents with what was predicted for them, to be read by eye."""

from collections.abc import Sequence
import textwrap

from xjax.core.types import PAD
from xjax.data.schema import Label, Split
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.report.terminal.excerpt import excerpt

_WIDTH = 79


def example_text(
  predictions: Predictions,
  split: Split,
  labels: Sequence[Label],
  n: int = 3,
  k: int = 5,
  calibration: Calibration | None = None,
) -> str:
  """The first n documents: text, gold labels, best k labels with scores.

  Args:
    predictions: of the split's documents, row by row.
    split: gives text and gold.
    labels: descriptors by label index.
    n: documents shown.
    k: labels shown of each list.
    calibration: of the scores, if there is one.

  Returns:
    Lines of at most 79 columns; a `*` marks a predicted label that is gold.
  """
  return '\n\n'.join(
    _one(predictions, split, labels, row, k, calibration)
    for row in range(min(n, len(split)))
  )


def _one(
  predictions: Predictions,
  split: Split,
  labels: Sequence[Label],
  row: int,
  k: int,
  calibration: Calibration | None,
) -> str:
  lists, gold = predictions.lists[ALL], set(split.gold[row].tolist())
  kind = predictions.score_kind
  scores_K = readable_scores(lists.scores[row, :k], kind, calibration)
  predicted = [
    f'{_name(labels[i])} {score:.2f}{"*" if i in gold else ""}'
    for i, score in zip(lists.ids[row, :k].tolist(), scores_K, strict=True)
    if i != PAD
  ]
  text = f'{split.ids[row]}: {split.documents[row].text()}'
  return '\n'.join(
    [
      excerpt(text, _WIDTH, ' ...'),
      *_listed('gold', sorted(_name(labels[i]) for i in gold)),
      *_listed('predicted', predicted),
    ]
  )


def _name(label: Label) -> str:
  return label.name or label.id


def _listed(title: str, items: Sequence[str]) -> list[str]:
  return textwrap.wrap(
    ', '.join(items) or '-',
    _WIDTH,
    initial_indent=f'  {title:10}',
    subsequent_indent=' ' * 12,
  )
