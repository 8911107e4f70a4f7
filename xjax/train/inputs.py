"""From documents to batches, as one run reads them."""

from collections.abc import Sequence
import dataclasses

import jax

from xjax.core.types import Ragged
from xjax.data.config import DataConfig
from xjax.data.load import model_view
from xjax.data.pipeline import EvalBatches, TrainBatches, eval_batches
from xjax.data.schema import Document, Split
from xjax.data.tokens import default_cache_dir, encode, tokenise
from xjax.data.vocab import Vocabulary
from xjax.train.config import Config


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
  """Turns documents into batches of word ids.

  Attributes:
    config: of the run.
    vocab: numbers the words.
  """

  config: Config
  vocab: Vocabulary

  def train_batches(self, split: Split, n_labels: int) -> TrainBatches:
    """Shuffled batches of this process's rows; gold from n_labels on goes."""
    config = self.config
    return TrainBatches(
      self._tokens(split),
      split.gold.keep(split.gold.values < n_labels),
      batch_size=config.train.batch_size,
      buckets=config.data.tokens.buckets,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
      workers=config.data.workers,
    )

  def split_batches(self, split: Split) -> EvalBatches:
    """Batches to judge a split by: every document once."""
    rows = self.config.eval.batch_size
    return self._once(self._tokens(split), split.gold, rows)

  def text_batches(
    self, documents: Sequence[str | Document], devices: int
  ) -> EvalBatches:
    """Batches to predict for texts, every one once.

    Args:
      documents: texts, or documents whose zones are cut as in training.
      devices: along the data axis, among which a batch must divide.
    """
    data = self.config.data
    tokens = encode(
      (_text(document, data) for document in documents),
      self.vocab,
      data.tokens.max_tokens,
    )
    no_gold = Ragged.of([()] * len(documents))
    rows = self.config.eval.batch_size
    # A few texts need no full batch; halving keeps the shapes few.
    while rows % (2 * devices) == 0 and rows // 2 >= len(documents):
      rows //= 2
    return self._once(tokens, no_gold, rows)

  def _tokens(self, split: Split) -> Ragged:
    data = self.config.data
    return tokenise(
      split, self.vocab, data.tokens.max_tokens, default_cache_dir(data)
    )

  def _once(self, tokens: Ragged, gold: Ragged, rows: int) -> EvalBatches:
    return eval_batches(
      tokens,
      gold,
      batch_size=rows,
      buckets=self.config.data.tokens.buckets,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
    )


def fit_vocabulary(split: Split, data: DataConfig) -> Vocabulary:
  """The vocabulary of a training split."""
  documents = (split.documents[row] for row in range(len(split)))
  texts = (document.text(data.zones) for document in documents)
  return Vocabulary.fit(texts, data.tokens)


def _text(document: str | Document, data: DataConfig) -> str:
  if isinstance(document, str):
    return document
  return model_view(data, document).text()
