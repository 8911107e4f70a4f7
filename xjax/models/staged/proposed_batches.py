"""Makes batches that also have the batches of a model that proposes labels."""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from xjax.core.types import PAD, Batch
from xjax.data.schema import Document, Split
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.models.predictor import Predictor
from xjax.train.batches.dense import EvalBatches
from xjax.train.batches.inputs import Inputs


@dataclasses.dataclass(frozen=True, eq=False)
class ShortlistInputs(Inputs):
  """Makes batches that also have the batches of the model that proposes labels.

  Attributes:
    stage: name of the stage that proposes labels.
    predictor: model of this stage.
  """

  stage: str = ''
  predictor: Predictor | None = None

  @property
  def stages(self) -> dict[str, Predictor]:
    """Returns the model that proposes labels."""
    return {self.stage: self.predictor}

  def split_batches(self, split: Split) -> 'ProposedBatches':
    """Returns batches for judging a split; each document occurs once."""
    batches = super().split_batches(split)
    return ProposedBatches(batches, split.documents, self.predictor)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> 'ProposedBatches':
    """Returns batches for predicting labels; see Inputs.text_batches."""
    batches = super().text_batches(documents, features)
    return ProposedBatches(batches, documents, self.predictor)


@dataclasses.dataclass(frozen=True, eq=False)
class ProposedBatches:
  """Adds the batches of another model to the batches of documents.

  Attributes:
    batches: batches of documents; doc_B are rows of `documents`.
    documents: the documents.
    predictor: the other model.
  """

  batches: EvalBatches
  documents: Sequence[str | Document]
  predictor: Predictor

  def __len__(self) -> int:
    return len(self.batches)

  def __iter__(self) -> Iterator[Batch]:
    for batch in self.batches:
      (places,) = np.nonzero(batch.doc_B != PAD)
      rows = batch.doc_B[places].tolist()
      documents = [self.documents[row] for row in rows]
      proposed = tuple(
        dataclasses.replace(
          other, doc_B=np.where(other.doc_B == PAD, PAD, places[other.doc_B])
        )
        for other in self.predictor.text_batches(documents)
      )
      yield dataclasses.replace(batch, proposed=proposed)
