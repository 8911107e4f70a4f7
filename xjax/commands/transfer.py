r"""Transfers a corpus between hierarchical and flat form.

  xjax transfer --config=NAME [--config.data.dir=DIR ...] --to=flat \
    --output=FOLDER [--labels=all|closed|leaves]
  xjax transfer --config=NAME [--config.data.dir=DIR ...] --to=hierarchical \
    --output=FOLDER --branching=256,8 [--seed=0]

--to=flat forgets the parents of labels. --to=hierarchical clusters the labels
into a tree; its clusters become labels too, the meta-labels, whose ids are in
FOLDER/meta_labels.txt. To train on labels and meta-labels, but to judge only
labels, add --config.eval.leave_out=meta_labels.txt to `xjax train`.

--branching=256,8 makes 256 clusters below the root, and 8 clusters below each
of them. How many labels are below a cluster of the last level follows from the
number of labels.

FOLDER gets JSON lines and labels.jsonl. It appears when it is complete. The
command prints which flags make models read it as they read the source.
"""

from absl import flags

from xjax.commands.flags import config, required
from xjax.core.console import show

_CONFIG = config.define()
_TO = flags.DEFINE_enum(
  'to', None, ('flat', 'hierarchical'), 'Form of the new corpus.'
)
required.require('to', 'give flat or hierarchical')
_OUTPUT = flags.DEFINE_string('output', None, 'Folder to write.')
required.require('output', 'give the folder to write')
_LABELS = flags.DEFINE_enum(
  'labels',
  'all',
  ('all', 'closed', 'leaves'),
  'For --to=flat: `all` keeps all labels. `closed` also adds the ancestors of '
  "a document's labels to the document. `leaves` keeps only labels without "
  'children.',
)
_BRANCHING = flags.DEFINE(
  config.TupleParser(int),
  'branching',
  (),
  'For --to=hierarchical: number of clusters below a node, for each level.',
)
_SEED = flags.DEFINE_integer(
  'seed', 0, 'For --to=hierarchical: seed of the clustering.', 0
)
_SPLITS = flags.DEFINE_list(
  'splits', [], 'Splits to transfer, besides train, dev and test.'
)


def main() -> None:
  """Writes the new corpus, and says what is in it."""
  is_flat = _TO.value == 'flat'
  if is_flat:
    required.check_absent(('branching', 'seed'), 'to=hierarchical')
  else:
    required.check_absent(['labels'], 'to=flat')
  from xjax.run.transfer.transfer_corpus import (
    KeptLabels,
    MetaLabelTree,
    transfer,
  )

  to = KeptLabels(_LABELS.value)
  if not is_flat:
    to = MetaLabelTree(_BRANCHING.value, _SEED.value)
  parts = _CONFIG.value, to, _OUTPUT.value, tuple(_SPLITS.value)
  show('\n'.join(transfer(*parts)))
