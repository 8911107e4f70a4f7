"""Makes the batches of runs that use several models, their members.

The members may read documents in different ways. Members that read equal sparse
features share them.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses

import numpy as np

from xjax.core.types import PAD, Batch, Ragged
from xjax.data.schema import Document, Split
from xjax.data.shared_documents import SharedDocuments
from xjax.data.sparse_documents import SparseDocuments
from xjax.data.text.words import WordPlace, document_words
from xjax.data.vectors.feature_rows import FeatureRows
from xjax.judge.predictions import list_length
from xjax.models.config import Config
from xjax.models.predictor import Predictor
from xjax.train.batches.inputs import check_reads_features, read_zones


@dataclasses.dataclass(frozen=True, eq=False)
class MemberInputs:
  """Makes batches that have the batches of each member.

  Attributes:
    config: config of the run that the members belong to.
    stages: models of the members, by the names of their stages.
    depth: number of labels that each member lists for a document.
  """

  config: Config
  stages: Mapping[str, Predictor]
  depth: int

  @property
  def members(self) -> tuple[Predictor, ...]:
    """Returns the models of the members."""
    return tuple(self.stages.values())

  @property
  def reads_rows(self) -> bool:
    """Returns whether documents must already have sparse features."""
    return self.config.data.sparse

  @property
  def n_features(self) -> int:
    """Returns the number of sparse features that documents must have."""
    return self.members[0].inputs.n_features

  def split_batches(self, split: Split) -> 'MemberBatches':
    """Returns batches for judging a split; each document occurs once."""
    return self._batches(split.documents, split.gold, split.features)

  def text_batches(
    self,
    documents: Sequence[str | Document],
    features: FeatureRows | None = None,
  ) -> 'MemberBatches':
    """Returns batches for predicting labels; each document occurs once.

    Args:
      documents: texts, or documents whose zones are read as in training.
      features: vectors of the documents, if a member reads vectors.

    Raises:
      ConfigError: there are features, but no member reads vectors.
    """
    if features is not None and not any(map(_reads_vectors, self.members)):
      check_reads_features(self.members[0].config)
    return self._batches(documents, Ragged.of([()] * len(documents)), features)

  def document(self, document: str | Document) -> Document:
    """Returns a document with only the zones that the run reads."""
    return read_zones(document, self.config.data)

  def words(self, document: str | Document) -> list[WordPlace]:
    """Returns the words of a document that the run reads, in reading order."""
    return document_words(self.document(document))

  def warmup(self) -> None:
    """Compiles the programs of all members."""
    for member in self.members:
      member.warmup(size=list_length(self.depth, member.n_labels))

  def _batches(
    self,
    documents: Sequence[str | Document],
    gold: Ragged,
    features: FeatureRows | None,
  ) -> 'MemberBatches':
    size = self.config.eval.batch_size
    return MemberBatches(self.members, documents, gold, features, size)


@dataclasses.dataclass(frozen=True, eq=False)
class MemberBatches:
  """Yields all documents once, in order.

  Entry m of the field `proposed` of a batch is a Batch whose field `proposed`
  has the batches of member m.

  Attributes:
    members: models of the members.
    documents: N documents.
    gold: the gold labels of the documents.
    features: vectors of the documents, or None.
    size: number of documents of a batch.
  """

  members: tuple[Predictor, ...]
  documents: Sequence[str | Document]
  gold: Ragged
  features: FeatureRows | None
  size: int

  def __len__(self) -> int:
    return -(-len(self.documents) // self.size)

  def __iter__(self) -> Iterator[Batch]:
    for start in range(0, len(self.documents), self.size):
      end = min(start + self.size, len(self.documents))
      yield self._batch(np.arange(start, end, dtype=np.int32))

  def _batch(self, rows: np.ndarray) -> Batch:
    """Makes a batch of some documents."""
    documents, features = self.documents, None
    if isinstance(documents, SparseDocuments):
      documents = documents.select(rows)
    elif isinstance(documents, SharedDocuments):
      documents = documents.part(rows)
    else:
      rows_of = [documents[row] for row in rows.tolist()]
      documents = SharedDocuments(rows_of)
    if self.features is not None:
      ids = [self.features.ids[row] for row in rows.tolist()]
      features = self.features.select(rows, ids)
    width = max(1, int(self.gold.lengths[rows].max()))
    whole = Batch(
      tokens_BT=None,
      lengths_B=np.zeros(len(rows), np.int32),
      positives_BP=self.gold.padded(rows, width, PAD),
      mask_B=np.ones(len(rows), bool),
      doc_B=rows,
    )
    local = dataclasses.replace(whole, doc_B=np.arange(len(rows)))
    parts = []
    for member in self.members:
      vectors = features if _reads_vectors(member) else None
      own = tuple(member.text_batches(documents, vectors))
      parts.append(dataclasses.replace(local, proposed=own))
    return dataclasses.replace(whole, proposed=tuple(parts))


def _reads_vectors(member: Predictor) -> bool:
  """Returns whether a member, or a member of a member, reads vectors."""
  inner = member.inputs
  if isinstance(inner, MemberInputs):
    return any(map(_reads_vectors, inner.members))
  return member.config.data.tokens.dense
