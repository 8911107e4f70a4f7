r"""Trains word vectors on the documents of a corpus (word2vec).

  xjax embeddings --config=NAME --output=l2v.bin \
    [--config.data.dir=DIR ...]

To train a model with these vectors:

  xjax train --config=NAME --workdir=DIR \
    --config.model.embedding.vectors=l2v.bin --config.model.embedding.dim=200

It needs the library of the extra [vectors].
"""

from absl import flags

from xjax.commands.flags import config, required
from xjax.core.console import show

_CONFIG = config.define()
_OUTPUT = flags.DEFINE_string(
  'output', None, 'File to write, in word2vec binary format.'
)
required.require('output', 'give the file to write')
_DIM = flags.DEFINE_integer('dim', 200, 'Dimensions of a vector.', 1)
_WINDOW = flags.DEFINE_integer(
  'window', 5, 'Number of neighbours of a word on each side.', 1
)
_EPOCHS = flags.DEFINE_integer(
  'epochs', 5, 'Number of passes over the documents.', 1
)
_MIN_COUNT = flags.DEFINE_integer(
  'min_count', 2, 'Words that occur less often than this get no vector.', 1
)
_SKIPGRAM = flags.DEFINE_bool(
  'skipgram', True, 'Use skip-gram instead of the faster CBOW.'
)
_WORKERS = flags.DEFINE_integer(
  'workers', 2, 'Number of threads; only 1 gives reproducible results.', 1
)


def main() -> None:
  """Trains word vectors and writes them to a file."""
  from xjax.train.initial.word2vec import WordTraining, train_word_vectors

  training = WordTraining(
    dim=_DIM.value,
    window=_WINDOW.value,
    epochs=_EPOCHS.value,
    min_count=_MIN_COUNT.value,
    skipgram=_SKIPGRAM.value,
    seed=_CONFIG.value.seed,
  )
  words = train_word_vectors(
    _CONFIG.value.data, training, _OUTPUT.value, _WORKERS.value
  )
  show(f'{_OUTPUT.value}: {words} words, {training.dim} dimensions')
