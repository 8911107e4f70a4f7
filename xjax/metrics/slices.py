"""Slices of the label space; gold cut to one of them."""

import numpy as np

from xjax.core.types import Ragged
from xjax.data.schema import frequency_masks

ALL = 'all'
HELD_OUT = 'held_out'


def slice_masks(
  train_counts: np.ndarray, held_out: np.ndarray
) -> dict[str, np.ndarray]:
  """Slice name -> bool [L]; the first one, `all`, holds every label.

  Args:
    train_counts: int32 [L], training documents per label.
    held_out: int32 indices of held-out labels; a slice where there are any.
  """
  masks = {ALL: np.ones(len(train_counts), bool)}
  masks.update(frequency_masks(train_counts))
  if len(held_out):
    masks[HELD_OUT] = np.zeros(len(train_counts), bool)
    masks[HELD_OUT][held_out] = True
  return masks


def cut(gold: Ragged, mask: np.ndarray) -> Ragged:
  """Keeps the gold labels where mask, bool [L], is True; rows may be empty."""
  return gold.keep(mask[gold.values])
