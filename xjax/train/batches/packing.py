"""Packs short documents of a batch into shared rows.

Documents share rows only within a group. A group is the documents of one
micro-batch on one device.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.mesh_config import ProcessShare

# Batches have at most 8 different numbers of rows, since jit compiles a program
# for each number.
_SHAPES = 8


@dataclasses.dataclass(frozen=True)
class Packing:
  """Divides a batch into groups of documents that can share rows.

  Each device has consecutive documents of the batch. Of the documents and rows
  of a device, number i belongs to micro-batch i % accumulate.
  """

  devices: int = 1  # along the data axis, over all processes
  accumulate: int = 1  # number of micro-batches

  def pack(
    self,
    documents: Sequence[np.ndarray],
    lengths_B: np.ndarray,
    width: int,
    share: ProcessShare,
    padding: int,
  ) -> dict[str, np.ndarray]:
    """Returns the rows of a process, by field of TokenBatch.

    `documents` are those of this process; `lengths_B` are the lengths of the
    documents of all processes, so that every process makes the same plan.
    """
    placed_B3, row_B, rows = self._plan(lengths_B, width)
    own_B, own_rows = share.rows(len(lengths_B)), share.rows(rows)
    tokens_BT = np.full((len(own_rows), width), padding, np.int32)
    segments_BT = np.zeros_like(tokens_BT)
    own_row_B = np.searchsorted(own_rows, row_B[own_B])
    for ids, row, (_, column, segment) in zip(
      documents, own_row_B, placed_B3[own_B]
    ):
      span = slice(column, column + len(ids))
      tokens_BT[row, span] = ids
      segments_BT[row, span] = segment
    # A softmax over no tokens would be NaN, so an empty row gets a segment.
    segments_BT[segments_BT[:, 0] == 0, 0] = 1
    return {
      'tokens_BT': tokens_BT,
      'segments_BT': segments_BT,
      'lengths_B': lengths_B[own_B],
      # Each first token's place in the concatenated rows of the group.
      'first_B': (placed_B3 @ np.int32([width, 1, 0]))[own_B],
    }

  def _plan(
    self, lengths_B: np.ndarray, width: int
  ) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns first_fit of each group, rows in the batch, and their number."""
    # Every group must have equally many documents.
    documents, packs = len(lengths_B), self.devices * self.accumulate
    device_B, turn_B = np.divmod(
      np.arange(documents), documents // self.devices
    )
    micro_B = turn_B % self.accumulate
    # Documents are packed within a group, so a row never needs the tokens of
    # another device, and micro-batches stay independent.
    placed_B3 = np.zeros((documents, 3), np.int32)
    for device, micro in np.ndindex(self.devices, self.accumulate):
      pack_B = (device_B == device) & (micro_B == micro)
      placed_B3[pack_B] = first_fit(lengths_B[pack_B], width)
    row_B = placed_B3[:, 0]
    # Rounded up, so that few different numbers of rows occur.
    sizes = possible_rows(documents // packs)
    height = next(size for size in sizes if size > row_B.max())
    row_B = (device_B * height + row_B) * self.accumulate + micro_B
    return placed_B3, row_B, height * packs


def first_fit(lengths_B: np.ndarray, width: int) -> np.ndarray:
  """Places documents in rows by first-fit-decreasing bin packing.

  Returns [B, 3]: each document's row, the column of its first token, and its
  number in the row (1, 2, ...). Equal lengths keep their order.
  """
  left_B = np.full(len(lengths_B), width)  # free tokens of each row
  number_B = np.zeros(len(lengths_B), np.int32)
  placed = np.zeros((len(lengths_B), 3), np.int32)
  for at in np.argsort(-lengths_B, kind='stable'):
    row = np.argmax(left_B >= lengths_B[at])
    number_B[row] += 1
    placed[at] = row, width - left_B[row], number_B[row]
    left_B[row] -= lengths_B[at]
  return placed


def possible_rows(documents: int) -> list[int]:
  """Returns the possible rows of a group: eighths of `documents`, ascending."""
  step = -(-documents // _SHAPES)
  return [*range(step, documents, step), documents]
