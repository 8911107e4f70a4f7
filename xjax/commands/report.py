"""Writes a page with tables and pictures about judged systems.

xjax report A B [C ...] --output=report.html

The systems were judged on the same documents. Each argument is the folder of a
run (the --workdir of train), the folder of an evaluation, or a file of
predictions (in a format that evaluate reads). Runs that differ only in their
seeds count as one system; the report shows their mean and standard error. The
pictures need the library of the extra [report].
"""

import shlex
import sys

from absl import flags

from xjax.commands.flags import judging, required
from xjax.core.console import show
from xjax.core.errors import ConfigError, optional

_OUTPUT = flags.DEFINE_string('output', None, 'HTML file to write.')
_MARKDOWN = flags.DEFINE_string(
  'markdown', '', 'Markdown file to write too, with tables but no pictures.'
)
_NAMES = flags.DEFINE_list(
  'names', [], 'Names of the systems, one per argument, separated by commas.'
)
_SPLIT = flags.DEFINE_string(
  'split', '', 'Split of the runs (default: dev, or test if dev is not judged).'
)
_LATEX = flags.DEFINE_string(
  'latex',
  '',
  'LaTeX file to write too: the table of results, with values times 100.',
)
_LATEX_DECIMALS = flags.DEFINE_integer(
  'latex_decimals', 1, 'Decimals of the values in the LaTeX file.', 0
)
_METRICS = flags.DEFINE_list(
  'metrics',
  [],
  'Metrics of the table of results, such as P@5,R@10,macro-F1@5 (default: the '
  'usual ones).',
)
_DATASET = flags.DEFINE_string(
  'dataset',
  '',
  'Dataset whose published numbers are shown (default: the dataset of the '
  'runs).',
)
judging.define_companions()
judging.define_conventions()


def main(arguments: list[str]) -> None:
  """Writes the report about the systems in the arguments."""
  if not arguments:
    raise ConfigError(
      'give at least one system: the folder of a run, the folder of an '
      'evaluation, or a file of predictions'
    )
  if not _LATEX.value:
    required.check_absent(('latex_decimals',), 'latex')
  if not _OUTPUT.value:
    raise ConfigError('--output is missing; give the file as --output=X.html')
  optional('matplotlib', 'a report', 'report')
  from xjax.report.page.page import save_report
  from xjax.report.report_page import report

  command = f'xjax report {shlex.join(sys.argv[1:])}'
  page = report(
    arguments,
    command,
    _SPLIT.value,
    _NAMES.value,
    _DATASET.value,
    judging.files(),
    judging.judge_request(without=('metrics',)),
    _METRICS.value,
  )
  paths = _OUTPUT.value, _MARKDOWN.value, _LATEX.value
  for path in save_report(page, *paths, _LATEX_DECIMALS.value):
    show(path)
