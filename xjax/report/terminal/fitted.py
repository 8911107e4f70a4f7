"""What a finished run tells: tables, examples, where all is, what is next."""

from collections.abc import Sequence
import json
import os
import pathlib
import shlex
import sys
import textwrap

from xjax.core.types import PAD
from xjax.data.batches.sparse import SparseDocuments
from xjax.data.schema import Label, Split
from xjax.judge.calibration import Calibration, readable_scores
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.report.tables.plain import plain_slice_table
from xjax.run.fit import FitResult


def excerpt(text: str, width: int, more: str = '') -> str:
  """As many whole words as fit, without line breaks.

  A word of more than half the width is cut in two: text without spaces, such
  as Chinese, has a beginning as well.

  Args:
    text: of any length.
    width: columns at most, `more` with them.
    more: stands after it where something is left out.
  """
  words = ' '.join(text.split())
  if len(words) <= width:
    return words
  room = width - len(more)
  end = words.rfind(' ', 0, room + 1)
  return words[: end if end > room // 2 else room] + more


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


# What a workdir has, by the first of each.
_CONTENTS = {
  'config.json': 'config.json labels.jsonl            what the model is',
  'features': 'features/                           the words it knows',
  'checkpoints': 'checkpoints/                        its parameters',
  'metrics.jsonl': 'metrics.jsonl tb/                   how training went',
  'eval': 'eval/<split>/ calibration.json      predictions, metrics, '
  'probabilities',
}
_TEXT_WIDTH = 60


def run_summary(result: FitResult, imports: Sequence[str] = ()) -> str:
  """Tables by slice, a few predictions, and the commands to go on with.

  Args:
    result: of the run.
    imports: modules with parts of one's own, that the commands import as well.
  """
  parts = []
  for name, metrics in result.metrics.items():
    table = plain_slice_table(metrics, result.prior.get(name))
    of = f', checkpoint of step {result.best_step}' if result.steps else ''
    parts.append(f'{name}{of}\n{table}')
  name = next(iter(result.paths), 'train')
  split = result.corpus.split(name)
  if name in result.paths:
    predictions = Predictions.load(result.paths[name] / 'predictions.npz')
    labels = result.corpus.label_space.labels
    examples = example_text(
      predictions, split, labels, calibration=result.calibration
    )
    parts.append(f'{name}, the first documents (* is gold)\n{examples}')
  parts.append(_next_commands(result, split, imports))
  parts.append(_contents(result.workdir))
  return '\n\n'.join(parts)


def _contents(workdir: pathlib.Path) -> str:
  there = [text for at, text in _CONTENTS.items() if (workdir / at).exists()]
  return '\n  '.join([f'All of it is in {_shown(workdir)}', *there])


def _next_commands(
  result: FitResult, split: Split, imports: Sequence[str]
) -> str:
  """Commands that work as they stand."""
  python = f'{_shown(sys.executable)} -m experiments'
  own = shlex.join(f'--import={name}' for name in imports)
  workdir = f'{own} --workdir={_shown(result.workdir)}'.lstrip()
  return (
    'Next, judge it, or tag documents of your own\n'
    f'  {python}.evaluate {workdir} --split={split.name}\n'
    f'  {_tagging(split, f"{python}.predict {workdir} --k=5")}'
  )


def _tagging(split: Split, predict: str) -> str:
  """What tags a document as this run reads such."""
  if isinstance(split.documents, SparseDocuments):
    return f'{predict} --input={_shown(split.documents.source)}'
  text = excerpt(split.documents[0].text(), _TEXT_WIDTH)
  document, more = {'text': text}, ''
  if split.features is not None:
    document = {'id': split.ids[0], **document}
    more = f' --features={_shown(split.features.source)}'
  line = shlex.quote(json.dumps(document, ensure_ascii=False))
  return f'echo {line} | {predict}{more}'


def _shown(path: str | os.PathLike) -> str:
  """Relative to the current folder where it is below it, quoted."""
  path = pathlib.Path(path)
  here = pathlib.Path.cwd()
  inside = path.is_relative_to(here)
  return shlex.quote(str(path.relative_to(here) if inside else path))
