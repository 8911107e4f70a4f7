"""Judges a finished run on a split, or saved predictions, and prints a table.

python -m experiments.evaluate --workdir=DIR --split=test [--data_dir=DIR]
python -m experiments.evaluate --predictions=FILE.npz
"""

from absl import flags as absl_flags

from experiments import flags
from xjax.core.distributed import is_host0
from xjax.core.errors import ConfigError
from xjax.report.tables import slice_table
from xjax.evaluate.criteria import Criteria
from xjax.train.evaluation import evaluate_file, evaluate_split

_WORKDIR = absl_flags.DEFINE_string('workdir', None, 'Folder of the run.')
_SPLIT = absl_flags.DEFINE_string('split', 'dev', 'Split to judge.')
_DATA_DIR = absl_flags.DEFINE_string(
  'data_dir', '', 'Where the data is, if not where it was in training.'
)
_PREDICTIONS = absl_flags.DEFINE_string(
  'predictions', None, 'A predictions.npz with gold, instead of --workdir.'
)
flags.define_multihost()


def main() -> None:
  """Runs what the flags say."""
  if bool(_WORKDIR.value) == bool(_PREDICTIONS.value):
    raise ConfigError('give one of --workdir and --predictions')
  if _PREDICTIONS.value:
    for flag in (_SPLIT, _DATA_DIR):
      if flag.present:
        raise ConfigError(f'--{flag.name} goes with --workdir only')
    found = evaluate_file(_PREDICTIONS.value, Criteria())
  else:
    found = evaluate_split(_WORKDIR.value, _SPLIT.value, _DATA_DIR.value)
  if is_host0():
    print(slice_table(found.metrics, found.prior))
    if found.folder:
      print(f'\n{found.folder}')


if __name__ == '__main__':
  flags.run(main)
