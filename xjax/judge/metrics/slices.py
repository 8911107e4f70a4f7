"""Computes the slices of the label space, and the gold labels in a slice."""

from jaxtyping import Bool, Int
import numpy as np

from xjax.core.types import Ragged
from xjax.data.schema import FREQUENT_FROM, slice_masks

ALL = 'all'


def judged_masks(
  train_counts: Int[np.ndarray, ' L'],
  held_out: Int[np.ndarray, ' held_out'],
  frequent_from: int = FREQUENT_FROM,
  left_out: Int[np.ndarray, ' left_out'] | None = None,
) -> dict[str, Bool[np.ndarray, ' L']]:
  """Returns the labels of each judged slice, by name; `all` comes first."""
  all_L = np.ones(len(train_counts), bool)
  if left_out is not None:
    all_L[left_out] = False
  masks = slice_masks(train_counts, held_out, frequent_from, left_out)
  return {ALL: all_L, **masks}


def cut_gold(gold: Ragged, mask: Bool[np.ndarray, ' L']) -> Ragged:
  """Returns the gold labels that are in a slice; a row may become empty."""
  return gold.keep(mask[gold.values])
