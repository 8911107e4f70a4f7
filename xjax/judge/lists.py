"""Top-k lists of many documents."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.types import PAD


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
  """Top-k lists of N documents.

  Attributes:
    ids: int32 [N, K] label indices, by score descending, then index
      ascending; PAD where labels run out.
    scores: float32 [N, K], -inf where ids are PAD.
  """

  ids: np.ndarray
  scores: np.ndarray

  @property
  def lengths(self) -> np.ndarray:
    """int64 [N], labels in each list."""
    return (self.ids != PAD).sum(-1)

  def floor(self, n_listable: int) -> np.ndarray:
    """float32 [N], a score that no label outside the list is above.

    Args:
      n_listable: labels there are; lists of as many hold them all, and so do
        lists that end in PAD. Theirs is -inf.
    """
    ended = self.ids[:, -1] == PAD
    whole = ended | (self.ids.shape[1] >= n_listable)
    return np.where(whole, np.float32(-np.inf), self.scores[:, -1])

  def cut(self, mask: np.ndarray) -> 'Lists':
    """The entries where mask, bool [L], is True; PAD and -inf after them."""
    kept = self.ids != PAD
    kept[kept] = mask[self.ids[kept]]
    return self._keep(kept)

  def above(self, floor: np.ndarray) -> 'Lists':
    """The entries above a score of each document, float32 [N]."""
    return self._keep((self.ids != PAD) & (self.scores > floor[:, None]))

  def first(self, k: int | None) -> 'Lists':
    """The first k entries; None: all."""
    return Lists(self.ids[:, :k], self.scores[:, :k])

  @classmethod
  def merged(cls, parts: Sequence['Lists']) -> 'Lists':
    """Every entry of several lists of the same documents, each label once.

    A label has the same score wherever it is listed.
    """
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores), axis=-1)
    ids = np.take_along_axis(ids, order, -1)
    scores = np.take_along_axis(scores, order, -1)
    kept = ids != PAD
    kept[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    return cls(ids, scores)._keep(kept)

  def _keep(self, kept: np.ndarray) -> 'Lists':
    """The entries where kept, bool [N, K]; PAD and -inf after them."""
    order = np.argsort(~kept, axis=-1, kind='stable')
    ids = np.where(kept, self.ids, PAD)
    scores = np.where(kept, self.scores, np.float32(-np.inf))
    return Lists(
      np.take_along_axis(ids, order, -1), np.take_along_axis(scores, order, -1)
    )
