"""Judges a finished run on a split, or any system's predictions from files.

python -m experiments.evaluate --workdir=DIR --split=test [--data_dir=DIR]
  [--strategy=coverage --strategy_k=5 --beta=0.25]
python -m experiments.evaluate --predictions=FILE --gold=FILE
  [--train_labels=FILE --filter=FILE --inv_prop=FILE] [--protocol=all]
  [--ks=1,3,5 --slices=bin:1-9,FILE --ci] [--output=DIR]

Prints a table by slice, with several protocols a column for each. --output
gets predictions.npz, metrics.json, metrics.csv, metrics.tex, documents.jsonl.
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
  'data_dir', '', 'Where the data is, if not where it was in training.'
)
_OUTPUT = absl_flags.DEFINE_string('output', '', 'Folder for what was found.')
judging_flags.define_files()
judging_flags.define_judging()
strategy_flags.define('5')
flags.define_multihost()


def main() -> None:
  """Runs what the flags say."""
  found = _evaluated()
  if is_host0():
    # Coverage stands in the full table alone.
    full = judging_flags.in_full() or strategy_flags.given()
    print(judgement_text(found.metrics, found.prior, full))
    if found.folder:
      # What flags ask for besides is not there.
      as_ever = ' (judged as in training)' if judging_flags.asked() else ''
      print(f'\n{found.folder}{as_ever}')
    if _OUTPUT.value:
      write_judgement(
        _OUTPUT.value, found.predictions, found.criteria, found.metrics
      )
      print(f'\n{_OUTPUT.value}')


def _evaluated() -> Evaluation:
  files = judging_flags.files()
  if bool(_WORKDIR.value) == bool(files.predictions):
    raise ConfigError('give one of --workdir and --predictions')
  asked, strategy = judging_flags.asked(), strategy_flags.asked(k=5)
  if files.predictions:
    judging_flags.refuse(('split', 'data_dir', 'strategy'), 'workdir')
    return evaluate_files(files, asked or JudgeRequest())
  judging_flags.refuse_files()
  return evaluate_split(
    _WORKDIR.value, _SPLIT.value, _DATA_DIR.value, asked, strategy
  )


if __name__ == '__main__':
  flags.run(main)
