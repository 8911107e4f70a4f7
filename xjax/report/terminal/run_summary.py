"""Summarises a finished run: tables, example predictions, next commands."""

from collections.abc import Sequence
import json
import os
import pathlib
import shlex
import textwrap

from xjax.core.console import command_words
from xjax.core.types import PAD
from xjax.data.documents import SparseDocuments
from xjax.data.schema import Labels, Split
from xjax.judge.calibration import Calibration, by_shown, readable_scores
from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.slices import ALL
from xjax.judge.predictions import Predictions
from xjax.models.contract import DEV, load_config
from xjax.report.terminal.judgement import plain_slice_table
from xjax.run.fit import FitResult
from xjax.train.workdir import Workdir


def excerpt(text: str, width: int, more: str = '') -> str:
  """Shortens a text to one line of `width`; `more` marks what is left out."""
  # It is cut at the last space of the second half; without one, as in Chinese,
  # at the end of the line.
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
  labels: Labels,
  n: int = 3,
  k: int = 5,
  calibration: Calibration | None = None,
) -> str:
  """Shows gold and predicted labels of n documents; `*` marks gold ones."""
  return '\n\n'.join(
    _example(predictions, split, labels, row, k, calibration)
    for row in range(min(n, len(split)))
  )


def _example(
  predictions: Predictions,
  split: Split,
  labels: Labels,
  row: int,
  k: int,
  calibration: Calibration | None,
) -> str:
  lists, inside_L = predictions.lists[ALL], predictions.masks[ALL]
  gold = {i for i in split.gold[row].tolist() if inside_L[i]}
  kind = predictions.score_kind
  ids_K, scores_K = lists.ids[row, :k], lists.scores[row, :k]
  counts_K = predictions.train_counts[ids_K]
  shown_K = readable_scores(scores_K, kind, calibration, counts_K)
  order = by_shown(ids_K, shown_K)
  predicted = [
    f'{labels.shown(i)} {score:.2f}{"*" if i in gold else ""}'
    for i, score in zip(ids_K[order].tolist(), shown_K[order], strict=True)
    if i != PAD
  ]
  text = f'{split.ids[row]}: {split.documents[row].text()}'
  return '\n'.join(
    [
      excerpt(text, _WIDTH, ' ...'),
      *_listed('gold', sorted(labels.shown(i) for i in gold)),
      *_listed('predicted', predicted),
    ]
  )


def _listed(title: str, items: Sequence[str]) -> list[str]:
  return textwrap.wrap(
    ', '.join(items) or '-',
    _WIDTH,
    initial_indent=f'  {title:10}',
    subsequent_indent=' ' * 12,
  )


_TEXT_WIDTH = 60


def run_summary(result: FitResult, imports: Sequence[str] = ()) -> str:
  """Returns tables by slice, a few predictions, and commands to run next."""
  parts = []
  for name, metrics in result.metrics.items():
    table = plain_slice_table(metrics, result.prior.get(name))
    step = f', checkpoint of step {result.best_step}' if result.steps else ''
    parts.append(f'{name}{step}\n{table}')
  name = next(iter(result.paths), 'train')
  split = result.corpus.split(name)
  if name in result.paths:
    predictions = Predictions.load(result.paths[name] / 'predictions.npz')
    labels = result.corpus.label_space.labels
    examples = example_text(
      predictions, split, labels, calibration=result.calibration
    )
    parts.append(f'{name}, first documents (* marks a gold label)\n{examples}')
  parts.append(_next_commands(result, split, imports))
  parts.append(f'Everything is saved in {_quote_path(result.workdir)}')
  return '\n\n'.join(parts)


def _next_commands(
  result: FitResult, split: Split, imports: Sequence[str]
) -> str:
  command = command_words()
  import_flags = shlex.join(f'--import={name}' for name in imports)
  workdir = f'{import_flags} --workdir={_quote_path(result.workdir)}'.lstrip()
  return (
    'Next: judge the model, or tag your own documents\n'
    f'  {command} evaluate {workdir} --split={split.name}\n'
    f'  {_tagging(split, f"{command} predict {workdir} --k=5")}'
    f'{_more_commands(result, f"{command} serve {workdir}")}'
  )


def _more_commands(result: FitResult, serve: str) -> str:
  lines = ''
  dev = result.metrics.get(DEV, {}).get(PROTOCOL, {}).get(ALL, {})
  if dev.get('threshold-tuned') is not None:
    lines += (
      '\nInstead of --k=5, --threshold=tuned writes only the labels that fit a '
      'document'
    )
  config = load_config(Workdir.at(result.workdir).config)
  if not (config.data.tokens.dense or config.data.tokens.sparse):
    lines += f'\nAnswer requests over HTTP\n  {serve}'
  return lines


def _tagging(split: Split, predict: str) -> str:
  """Returns a command that tags a document in the format of the run's data."""
  if isinstance(split.documents, SparseDocuments):
    return f'{predict} --input={_quote_path(split.documents.source)}'
  text = excerpt(split.documents[0].text(), _TEXT_WIDTH)
  document, more = {'text': text}, ''
  if split.features is not None:
    document = {'id': split.ids[0], **document}
    more = f' --features={_quote_path(split.features.source)}'
  line = shlex.quote(json.dumps(document, ensure_ascii=False))
  return f'echo {line} | {predict}{more}'


def _quote_path(path: str | os.PathLike) -> str:
  """Quotes a path for the shell; it is relative inside the current folder."""
  path = pathlib.Path(path)
  cwd = pathlib.Path.cwd()
  inside = path.is_relative_to(cwd)
  return shlex.quote(str(path.relative_to(cwd) if inside else path))
