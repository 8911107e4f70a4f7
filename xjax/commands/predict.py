r"""Predicts labels and scores for new documents with a finished run.

  xjax predict --workdir=DIR --input=docs.jsonl \
    --output=X.jsonl [--k=5] [--explain=5] [--labels=labels.jsonl]

The input has JSON lines {"text": "..."} or {"zones": {...}}, with optional "id"
and "labels"; or it has the form of the run's corpus, such as CSV. The ranked
lists are also written to X.npz. If the documents have labels, metrics are
written to X.metrics.json. The file name "-" stands for standard input or
standard output; each line of a pipe is answered when it comes.

--threshold=tuned writes only the labels that the model assigns; X.npz still has
the ranked lists. --explain=5 adds the 5 words that explain each label best, and
writes X.html, which shades the words of the first documents. Neural models
explain a label by attention; linear models and label trees by how much a word
adds to the score of the label.
--output=X.csv writes a table with a row per label: id, rank, label, name, score
and, with --explain, why.
--labels=FILE also scores the labels in FILE, by their names. A line of FILE is
a name, or JSON with "name" and optionally "id" and "alt" (alternative names).
--strategy=coverage --beta=0.25 chooses labels by coverage instead of by the
best scores. The other strategy is propensity.
"""

from absl import flags

from xjax.commands.flags import checkpoint, compile_cache, strategy

_WORKDIR, _STEP = checkpoint.define(required=True)
_INPUT = flags.DEFINE_string(
  'input',
  '-',
  'File of JSON lines, or of the form of the corpus; - is standard input.',
)
_OUTPUT = flags.DEFINE_string(
  'output', '-', 'A file X.jsonl or X.csv; - is standard output.'
)
_K = flags.DEFINE_integer(
  'k',
  5,
  'Number of labels per document. With --threshold, and without --k, there may '
  'be as many as eval.depth.',
)
_LABELS = flags.DEFINE_string(
  'labels', '', 'File of further labels to score, besides those of the run.'
)
_EXPLAIN = flags.DEFINE_integer(
  'explain',
  0,
  'Number of words to show per label: those with the most attention, or, for '
  'linear models and trees, those that raise the score most.',
)
_FEATURES = flags.DEFINE_string(
  'features',
  '',
  'For runs on feature vectors: the path STEM of the files STEM.npy and '
  'STEM.ids.txt.',
)
_THRESHOLD = flags.DEFINE_string(
  'threshold',
  '',
  'Write only labels with at least this probability, at most k per document. '
  '`tuned` is the threshold with the best micro-F1 on dev.',
)
_SKIP_BAD_LINES = flags.DEFINE_bool(
  'skip_bad_lines', False, 'Leave out faulty lines of --input, and count them.'
)
strategy.define('--k')
compile_cache.define()


HEARTBEAT = False  # what waits for documents says nothing


def main() -> None:
  """Predicts labels for the documents and writes the predictions."""
  from xjax.run.predict_file import predict_file

  page = None
  if _EXPLAIN.value:
    from xjax.report.page.explanation_page import explanation_page as page

  predict_file(
    _WORKDIR.value,
    _INPUT.value,
    _OUTPUT.value,
    _K.value if _K.present or not _THRESHOLD.value else None,
    _LABELS.value,
    _EXPLAIN.value,
    _FEATURES.value,
    strategy.requested_strategy(_K.value),
    _STEP.value,
    page,
    _THRESHOLD.value,
    _SKIP_BAD_LINES.value,
  )
