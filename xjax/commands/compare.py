"""Compares systems with a baseline, with p-values.

xjax compare A B [C ...] [--split=test] [--output=DIR]

The systems were judged on the same documents, and A is the baseline. Each
argument is the folder of a run (the --workdir of train), the folder of an
evaluation, or a file of predictions (in a format that evaluate reads). Runs
that differ only in their seeds count as one system.
"""

from absl import flags

from xjax.commands.flags import judging
from xjax.core.console import show
from xjax.core.errors import ConfigError

_SPLIT = flags.DEFINE_string(
  'split', '', 'Split of the runs (default: dev, or test if dev is not judged).'
)
_METRICS = flags.DEFINE_list(
  'metrics',
  None,
  'Metrics to compare, such as P@5,macro-F1@5[1-9] (default: the usual ones). '
  'Here [1-9] stands for the labels with 1 to 9 training documents.',
)
_BY_FREQUENCY = flags.DEFINE_bool(
  'by_frequency', False, 'Also compare on the slices frequent, few and zero.'
)
_ITERATIONS = flags.DEFINE_integer(
  'iterations', 10_000, 'Number of iterations of approximate randomization.', 1
)
_NAMES = flags.DEFINE_list(
  'names', [], 'Names of the systems, one per argument, separated by commas.'
)
_OUTPUT = flags.DEFINE_string('output', '', 'Folder for comparison.json.')
judging.define_companions()
judging.define_shared()


def main(arguments: list[str]) -> None:
  """Compares the systems and prints the tables."""
  if len(arguments) < 2:
    raise ConfigError(
      'give two systems or more, and the baseline first. A system is the '
      'folder of a run, the folder of an evaluation, or a file of predictions'
    )
  from xjax.judge.comparison_request import METRICS, ComparisonRequest
  from xjax.report.run_comparison import compare_runs
  from xjax.report.tables.differences import comparison_text, save_comparison

  plan = ComparisonRequest(
    metrics=tuple(dict.fromkeys(_METRICS.value or METRICS)),
    by_frequency=_BY_FREQUENCY.value,
    iterations=_ITERATIONS.value,
    **judging.comparison_options(),
  )
  files = judging.files()
  compared = compare_runs(arguments, plan, _SPLIT.value, _NAMES.value, files)
  show(comparison_text(compared))
  if _OUTPUT.value:
    save_comparison(compared, _OUTPUT.value)
    show(f'\n{_OUTPUT.value}')
