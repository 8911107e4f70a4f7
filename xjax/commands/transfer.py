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

The command prints what the new corpus loses, and which flags make models read
it as they read the source.

FOLDER gets JSON lines and labels.jsonl (--format=jsonl), or JSON lines and a
taxonomy (--format=htc). It appears when it is complete.
"""

from xjax.commands.flags import config, program, transfer
from xjax.core.console import loading_libraries, show

_CONFIG = config.define()
transfer.define()


def main() -> None:
  """Writes the new corpus, and says what is in it."""
  request = transfer.requested()
  with loading_libraries():
    from xjax.run.transfer.transfer import transfer as transfer_corpus

  show('\n'.join(transfer_corpus(_CONFIG.value, request)))


if __name__ == '__main__':
  program.run(main)
