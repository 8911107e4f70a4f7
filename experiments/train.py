r"""Trains a model, judges it, and shows what it predicts.

  python -m experiments.train --config=FILE.py --workdir=DIR \
    [--config.FIELD=VALUE ...]

The same command again resumes.
"""

from absl import flags as absl_flags

from experiments import flags
from xjax.core.distributed import is_host0
from xjax.report.summary import run_summary
from xjax.train.fit import fit

_CONFIG = flags.define_config()
_WORKDIR = absl_flags.DEFINE_string(
  'workdir', None, 'Folder of the run; made where absent.', required=True
)
flags.define_multihost()


def main() -> None:
  """Runs what the flags say."""
  result = fit(_CONFIG.value, _WORKDIR.value)
  if is_host0():
    print(run_summary(result))


if __name__ == '__main__':
  flags.run(main)
