"""Defines the base classes of further views of training documents.

A view of a document is a changed copy of the document. Training compares the
views of a document with each other and with the views of other documents.
Predictions read only the documents themselves.
"""

import abc
import dataclasses
from typing import ClassVar

from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32

from xjax.core.config_part import ConfigPart
from xjax.data.hierarchy import Hierarchy
from xjax.networks.batch import TokenBatch


@dataclasses.dataclass(frozen=True)
class ViewInputs:
  """Holds the facts about a run that views need when they are built."""

  word_dim: int  # size of the vectors in the model's table of words or pieces
  document_dim: int  # size of a document's vector, after the pooling
  dtype: DTypeLike  # of activations and products
  hierarchy: Hierarchy | None = None  # None if the views do not read it


@dataclasses.dataclass
class ViewsConfig(ConfigPart, abstract=True):
  """Chooses the further views of training documents, and their loss."""

  reads_parents: ClassVar[bool] = False  # needs ViewInputs.hierarchy

  @abc.abstractmethod
  def build(self, inputs: ViewInputs, rngs: nnx.Rngs) -> 'Views | None':
    """Makes the module of the views, or None if there are no further views."""

  def check_hierarchy(self, hierarchy: Hierarchy) -> None:
    """Raises ConfigError if the views do not suit the hierarchy of labels."""


@dataclasses.dataclass
class NoViews(ViewsConfig):
  """Chooses no further views, so that training reads only the documents."""

  def build(self, inputs: ViewInputs, rngs: nnx.Rngs) -> None:
    return None


class Views(nnx.Module):
  """Makes a second view of each training document, and compares the views.

  The second view is the document after the vectors of its words are multiplied
  by the numbers of `kept`. The training loss is the loss of the document's
  labels, plus the same loss for the second view, plus `loss`.
  """

  def kept(
    self,
    batch: TokenBatch,
    table: Float32[Array, 'words D'],
    rngs: nnx.Rngs | None,
  ) -> Float32[Array, 'B T']:
    """Computes the factors of the words of each document.

    Each document has its own row. The vector of a token is the row of its id in
    the table. Without rngs, nothing is random. Factors at padding mean nothing.
    """
    raise NotImplementedError

  def loss(
    self,
    first_BD: Float[Array, 'B D'],
    second_BD: Float[Array, 'B D'],
    mask_B: Bool[Array, ' B'],
    rngs: nnx.Rngs | None,
  ) -> Float32[Array, '']:
    """Compares the two views of each document; sums over real documents."""
    raise NotImplementedError
