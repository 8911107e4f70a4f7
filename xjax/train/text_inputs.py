"""From the text of documents to batches of sparse features."""

from collections.abc import Callable, Sequence
import dataclasses

from xjax.core.share import own_share
from xjax.core.types import Ragged
from xjax.data.feature_rows import FeatureRows
from xjax.data.schema import Document, Split
from xjax.data.sparse_batches import Featurise, SparseBatches
from xjax.train.config import Config
from xjax.train.document_features import check_reads_features
from xjax.train.inputs import as_read


@dataclasses.dataclass(frozen=True, eq=False)
class TextInputs:
  """Turns documents into batches of what is made of their text.

  Attributes:
    config: of the run.
    featurise: texts -> their features.
  """

  config: Config
  featurise: Featurise

  def split_batches(self, split: Split) -> SparseBatches:
    """Batches to judge a split by: every document once."""
    return self._once(lambda row: split.documents[row].text(), split.gold)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> SparseBatches:
    """Batches to predict for texts, every one once.

    Args:
      documents: texts, or documents whose zones are cut as in training.
      features: None; of other runs.

    Raises:
      ConfigError: features are given.
    """
    if features is not None:
      check_reads_features(self.config)
    data = self.config.data
    no_gold = Ragged.of([()] * len(documents))
    return self._once(lambda row: as_read(documents[row], data).text(), no_gold)

  def _once(self, text_of: Callable[[int], str], gold: Ragged) -> SparseBatches:
    return SparseBatches(
      text_of,
      gold,
      self.featurise,
      batch_size=self.config.eval.batch_size,
      share=own_share(),
    )
