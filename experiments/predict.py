r"""Tags documents with a finished run: text in, labels and scores out.

  python -m experiments.predict --workdir=DIR --input=docs.jsonl \
    --output=X.jsonl [--k=20]

A document is {"text": "..."} or {"zones": {...}}, perhaps with "id" and
"labels", or a record of the corpus that the run was trained on. Beside X.jsonl,
X.npz gets the ranked lists and, where the input has labels, X.metrics.json what
they are worth. "-" is standard input or output.
"""

from absl import flags as absl_flags

from experiments import flags
from xjax.train.tagging import tag_file

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


def main() -> None:
  """Runs what the flags say."""
  tag_file(_WORKDIR.value, _INPUT.value, _OUTPUT.value, _K.value)


if __name__ == '__main__':
  flags.run(main)
