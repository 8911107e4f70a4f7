"""Judges a finished run on a split, or predictions of any system from files.

python -m experiments.evaluate --workdir=DIR --split=test [--data_dir=DIR]
  [--strategy=coverage --strategy_k=5 --beta=0.25]
python -m experiments.evaluate --predictions=FILE --gold=FILE
  [--train_labels=FILE --filter=FILE --inv_prop=FILE] [--protocol=all]
  [--ks=1,3,5 --slices=bin:1-9,FILE --ci] [--output=DIR]

The program prints one table, with a column for each slice. If --protocol asks
for several protocols, it prints a table for each slice, with a column for each
protocol. With --output, it writes predictions.npz, metrics.json, metrics.csv,
metrics.tex and documents.jsonl to the folder of this flag.
"""

from absl import flags as absl_flags

from experiments import flags, judging_flags, strategy_flags
from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.judge.request import JudgeRequest
from xjax.report.terminal.judged import judgement_text, write_judgement
from xjax.run.evaluate import Evaluation, evaluate_files, evaluate_split

_WORKDIR = absl_flags.DEFINE_string('workdir', None, 'Folder of the run.')
_SPLIT = absl_flags.DEFINE_string('split', 'dev', 'Split to judge.')
_DATA_DIR = absl_flags.DEFINE_string(
  'data_dir', '', 'Folder of the data, if it has moved since training.'
)
_OUTPUT = absl_flags.DEFINE_string('output', '', 'Folder for the results.')
judging_flags.define_files()
judging_flags.define_judging()
strategy_flags.define('5')
flags.define_multihost()


def main() -> None:
  """Judges the predictions and prints the tables."""
  result = _evaluate()
  if is_host0():
    # Strategies are compared by coverage, which only the full table shows.
    full = judging_flags.needs_full_table() or strategy_flags.has_strategy()
    print(judgement_text(result.metrics, result.prior, full))
    if result.folder:
      # Metrics that flags request are printed but not saved in this folder.
      requested = judging_flags.judge_request()
      print(
        f'\n{result.folder}{" (judged as in training)" if requested else ""}'
      )
    if _OUTPUT.value:
      write_judgement(
        _OUTPUT.value, result.predictions, result.criteria, result.metrics
      )
      print(f'\n{_OUTPUT.value}')


def _evaluate() -> Evaluation:
  files = judging_flags.files()
  if bool(_WORKDIR.value) == bool(files.predictions):
    raise ConfigError('give exactly one of --workdir and --predictions')
  request = judging_flags.judge_request()
  strategy = strategy_flags.requested_strategy(k=5)
  if files.predictions:
    judging_flags.check_absent(('split', 'data_dir', 'strategy'), 'workdir')
    return evaluate_files(files, request or JudgeRequest())
  judging_flags.check_no_files()
  return evaluate_split(
    _WORKDIR.value, _SPLIT.value, _DATA_DIR.value, request, strategy
  )


if __name__ == '__main__':
  flags.run(main)
