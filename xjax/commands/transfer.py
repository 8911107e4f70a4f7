r"""Transfers a corpus between hierarchical and flat form.

  xjax transfer --config=NAME [--config.data.dir=DIR ...] --to=flat \
    --output=FOLDER [--labels=all|closed|leaves]
  xjax transfer --config=NAME [--config.data.dir=DIR ...] --to=hierarchical \
    --output=FOLDER --branching=256,8 [--seed=0]
  xjax transfer --config=NAME --config.data.dir=TRANSFERRED --to=original \
    --output=FOLDER

--to=flat forgets the parents of labels. --to=hierarchical clusters the labels
into a tree; its clusters become labels too, the meta-labels, whose ids are in
FOLDER/meta_labels.txt. To train on labels and meta-labels, but to judge only
labels, add --config.eval.leave_out=meta_labels.txt to `xjax train`.
--to=original undoes an earlier transfer.

--branching=256,8 makes 256 clusters below the root, and 8 clusters below each
of them. How many labels are below a cluster of the last level follows from the
number of labels.

FOLDER gets JSON lines and labels.jsonl (--format=jsonl), or JSON lines and a
taxonomy (--format=htc). If you start the same command again, it writes only the
files that are missing.
"""

from absl import flags

from xjax.commands.flags import config, program, required
from xjax.commands.flags.config import TupleParser
from xjax.core.console import show
from xjax.core.errors import ConfigError
from xjax.core.loading import loading_libraries

_CONFIG = config.define()
_TO = flags.DEFINE_enum(
  'to', None, ('flat', 'hierarchical', 'original'), 'Form of the new corpus.'
)
_OUTPUT = flags.DEFINE_string('output', None, 'Folder to write.')
_LABELS = flags.DEFINE_enum(
  'labels',
  'all',
  ('all', 'closed', 'leaves'),
  'For --to=flat: `all` keeps all labels. `closed` also adds the ancestors of '
  "a document's labels to the document. `leaves` keeps only labels without "
  'children.',
)
_BRANCHING = flags.DEFINE(
  TupleParser(int),
  'branching',
  (),
  'For --to=hierarchical: numbers of clusters below a node, for each level.',
)
_PREFIX = flags.DEFINE_string(
  'prefix', 'meta_', 'For --to=hierarchical: beginning of ids of meta-labels.'
)
_MAX_FEATURES = flags.DEFINE_integer(
  'max_features',
  1000,
  'For --to=hierarchical: number of features to keep for each label when '
  'labels are clustered; 0 keeps all.',
  0,
)
_SEED = flags.DEFINE_integer(
  'seed', 0, 'For --to=hierarchical: seed of the clustering.', 0
)
_FORMAT = flags.DEFINE_enum(
  'format', 'jsonl', ('jsonl', 'htc'), 'Format of the new corpus.'
)
_GZIP = flags.DEFINE_bool('gzip', False, 'Gzip the JSON lines.')
_SPLITS = flags.DEFINE_list(
  'splits', [], 'Splits to transfer, besides train, dev and test.'
)
required.require('to', 'give flat, hierarchical or original')
required.require('output', 'give the folder to write')

_USERS = {'labels': 'flat'} | dict.fromkeys(
  ('branching', 'prefix', 'max_features', 'seed'), 'hierarchical'
)


def main() -> None:
  """Writes the new corpus, and says what is in it."""
  for name, target in _USERS.items():
    if flags.FLAGS[name].present and _TO.value != target:
      raise ConfigError(f'--{name} works only with --to={target}')
  with loading_libraries():
    from xjax.run.transfer.request import (
      Form,
      KeptLabels,
      Target,
      TransferRequest,
    )
    from xjax.run.transfer.transfer import transfer

  request = TransferRequest(
    Target(_TO.value),
    _OUTPUT.value,
    KeptLabels(_LABELS.value),
    _BRANCHING.value,
    _PREFIX.value,
    _MAX_FEATURES.value,
    _SEED.value,
    Form(_FORMAT.value),
    tuple(_SPLITS.value),
    _GZIP.value,
  )
  show('\n'.join(transfer(_CONFIG.value, request)))


if __name__ == '__main__':
  program.run(main)
