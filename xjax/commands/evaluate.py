"""Judges a split of a run, or a file of scores of any system.

xjax evaluate --workdir=DIR --split=test [--data_dir=DIR] [--leave_out=FILE]
  [--strategy=coverage --strategy_k=5 --beta=0.25]
xjax evaluate --predictions=FILE --gold=FILE
  [--train_labels=FILE --filter=FILE --inv_prop=FILE] [--protocol=all]
  [--ks=1,3,5 --slices=bin:1-9,FILE --ci] [--output=DIR]

The program prints one table, with a column for each slice. If --protocol asks
for several protocols, it prints a table for each slice, with a column for each
protocol. With --output, it writes predictions.npz, metrics.json, metrics.csv
and documents.jsonl to the folder of this flag, and for a run calibration.json.
"""

from absl import flags

from xjax.commands.flags import (
  checkpoint,
  compile_cache,
  judging,
  processes,
  required,
  strategy,
)
from xjax.core.console import show
from xjax.core.errors import ConfigError

_WORKDIR, _STEP = checkpoint.define(required=False)
_SPLIT = flags.DEFINE_string('split', 'dev', 'Split to judge.')
_DATA_DIR = flags.DEFINE_string(
  'data_dir', '', 'Folder of the data, if it has moved since training.'
)
_OUTPUT = flags.DEFINE_string('output', '', 'Folder for the results.')
judging.define_files()
judging.define_judging()
strategy.define('5')
processes.define()
compile_cache.define()


def main() -> None:
  """Judges the predictions and prints the tables."""
  files = judging.files()
  if bool(_WORKDIR.value) == bool(files.predictions):
    raise ConfigError('give exactly one of --workdir and --predictions')
  request, chosen = judging.judge_request(), strategy.requested_strategy(k=5)
  from xjax.core.distributed import is_host0
  from xjax.judge.request import JudgeRequest
  from xjax.report.terminal.judgement import judgement_text, write_judgement
  from xjax.run.evaluate_split import evaluate_files, evaluate_split

  if files.predictions:
    required.check_absent(('split', 'data_dir', 'strategy', 'step'), 'workdir')
    result = evaluate_files(files, request or JudgeRequest())
  else:
    required.check_absent(judging.FILE_FLAGS, 'predictions')
    place = _WORKDIR.value, _SPLIT.value, _DATA_DIR.value
    how = request, chosen, _STEP.value, files.leave_out
    result = evaluate_split(*place, *how)
  if not is_host0():
    return
  # Strategies are compared by coverage, which only the full table shows.
  full = judging.needs_full_table() or strategy.has_strategy()
  show(judgement_text(result.metrics, result.prior, full))
  if result.is_saved:
    # Metrics that flags request are printed but not saved in this folder.
    show(f'\n{result.folder}{" (judged as in training)" if request else ""}')
  if _OUTPUT.value:
    write_judgement(
      _OUTPUT.value,
      result.predictions,
      result.criteria,
      result.metrics,
      result.calibration,
      result.folder.name if result.folder else '',
    )
    show(f'\n{_OUTPUT.value}')
