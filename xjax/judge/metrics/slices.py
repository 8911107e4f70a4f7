"""Slices of the label space; gold cut to one of them."""

import numpy as np

from xjax.core.types import Ragged
from xjax.data.schema import FREQUENT_FROM, slice_masks

ALL = 'all'


def judged_masks(
  train_counts: np.ndarray,
  held_out: np.ndarray,
  frequent_from: int = FREQUENT_FROM,
) -> dict[str, np.ndarray]:
  """Slice name -> bool [L]; `all`, every label, before those of slice_masks."""
  every = np.ones(len(train_counts), bool)
  return {ALL: every, **slice_masks(train_counts, held_out, frequent_from)}


def cut(gold: Ragged, mask: np.ndarray) -> Ragged:
  """Keeps the gold labels where mask, bool [L], is True; rows may be empty."""
  return gold.keep(mask[gold.values])
