"""What a finished run tells: tables, examples, where all is, what is next."""

import json
import os
import pathlib
import shlex
import sys

from xjax.data.batches.sparse_documents import SparseDocuments
from xjax.data.schema import Split
from xjax.judge.predictions import Predictions
from xjax.report.tables.plain import slice_table
from xjax.report.terminal.examples import example_text
from xjax.report.terminal.excerpt import excerpt
from xjax.run.fit import FitResult

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


def run_summary(result: FitResult) -> str:
  """Tables by slice, a few predictions, and the commands to go on with."""
  parts = []
  for name, metrics in result.metrics.items():
    table = slice_table(metrics, result.prior.get(name))
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
  parts.append(_next_commands(result, split))
  parts.append(_contents(result.workdir))
  return '\n\n'.join(parts)


def _contents(workdir: pathlib.Path) -> str:
  there = [text for at, text in _CONTENTS.items() if (workdir / at).exists()]
  return '\n  '.join([f'All of it is in {_shown(workdir)}', *there])


def _next_commands(result: FitResult, split: Split) -> str:
  """Commands that work as they stand."""
  python = f'{_shown(sys.executable)} -m experiments'
  workdir = f'--workdir={_shown(result.workdir)}'
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
