r"""Tags documents with a finished run: text in, labels and scores out.

  python -m experiments.predict --workdir=DIR --input=docs.jsonl \
    --output=X.jsonl [--k=20] [--explain=5] [--labels=labels.jsonl]

A document is {"text": "..."} or {"zones": {...}}, perhaps with "id" and
"labels", or a record of the corpus that the run was trained on. Beside X.jsonl,
X.npz gets the ranked lists and, where the input has labels, X.metrics.json what
they are worth. "-" is standard input or output.

--explain=5 tells the 5 words that each label attends to most, and writes
X.html, where the first documents' words are shaded by attention. --labels adds
labels to those of the run, by their names: JSON lines {"name", perhaps "id",
"alt"}, or a name on each line. --strategy=coverage --beta=0.25 chooses labels
otherwise than by score; it may also be propensity, bounded_random or cost.
"""

from absl import flags as absl_flags

from experiments import flags, strategy_flags
from xjax.report.page.attention import remove_page, save_page
from xjax.run.tag import STREAM, tag_file

_WORKDIR = absl_flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_INPUT = absl_flags.DEFINE_string(
  'input', '-', 'JSON lines, perhaps gzipped; - is standard input.'
)
_OUTPUT = absl_flags.DEFINE_string(
  'output', '-', 'A file X.jsonl; - is standard output.'
)
_K = absl_flags.DEFINE_integer('k', 20, 'Labels per document.')
_LABELS = absl_flags.DEFINE_string(
  'labels', '', 'File of labels to score beside those of the run.'
)
_EXPLAIN = absl_flags.DEFINE_integer(
  'explain', 0, 'Words to tell of each label, those it attends to most.'
)
_FEATURES = absl_flags.DEFINE_string(
  'features', '', 'STEM of STEM.npy and STEM.ids.txt, for runs on features.'
)
strategy_flags.define('--k')


def main() -> None:
  """Runs what the flags say."""
  explained = tag_file(
    _WORKDIR.value,
    _INPUT.value,
    _OUTPUT.value,
    _K.value,
    _LABELS.value,
    _EXPLAIN.value,
    _FEATURES.value,
    strategy_flags.asked(_K.value),
  )
  if explained:
    save_page(explained)
  elif _OUTPUT.value != STREAM:
    remove_page(_OUTPUT.value)


if __name__ == '__main__':
  flags.run(main)
