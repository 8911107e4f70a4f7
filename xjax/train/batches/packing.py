"""Packs short documents of a batch into shared rows.

Documents share rows only within a group. A group is the documents of one
micro-batch on one device. In each group, documents are placed from the longest
to the shortest. Each document goes to the first row with enough room
(first-fit-decreasing bin packing).
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.mesh_config import Share

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

  def plan(self, lengths_B: np.ndarray, width: int) -> 'RowPlan':
    """Decides where the documents of a batch are placed in rows."""
    # Every process makes the same plan, from the lengths of the documents of
    # all processes. Every group must have equally many documents.
    documents, packs = len(lengths_B), self.devices * self.accumulate
    device_B, turn_B = np.divmod(
      np.arange(documents), documents // self.devices
    )
    micro_B = turn_B % self.accumulate
    # Documents are packed within a group, so a row never needs the tokens of
    # another device, and micro-batches stay independent.
    placed_B = np.zeros((documents, 3), np.int32)
    for device, micro in np.ndindex(self.devices, self.accumulate):
      pack_B = (device_B == device) & (micro_B == micro)
      placed_B[pack_B] = first_fit(lengths_B[pack_B], width)
    row_B, column_B, segment_B = placed_B.T
    height = _round_rows(int(row_B.max()) + 1, documents // packs)
    return RowPlan(
      rows=height * packs,
      width=width,
      lengths_B=lengths_B,
      row_B=(device_B * height + row_B) * self.accumulate + micro_B,
      column_B=column_B,
      segment_B=segment_B,
      first_B=row_B * np.int32(width) + column_B,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class RowPlan:
  """Says where documents are in shared rows, equally many in each group."""

  rows: int  # of the batch
  width: int  # tokens of a row (T)
  lengths_B: np.ndarray
  row_B: np.ndarray  # in the batch
  column_B: np.ndarray  # of each document's first token
  segment_B: np.ndarray  # each document's number in its row: 1, 2, ...
  # Each first token's place in the concatenated rows of the group.
  first_B: np.ndarray

  def fill_rows(
    self, documents: Sequence[np.ndarray], share: Share, padding: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens_BT and segments_BT of a process's documents."""
    own_B, rows = share.rows(len(self.row_B)), share.rows(self.rows)
    tokens_BT = np.full((len(rows), self.width), padding, np.int32)
    segments_BT = np.zeros_like(tokens_BT)
    row_B = np.searchsorted(rows, self.row_B[own_B])
    end_B = (self.column_B + self.lengths_B)[own_B]
    spans = map(slice, self.column_B[own_B], end_B)
    for row, span, segment, ids in zip(
      row_B, spans, self.segment_B[own_B], documents
    ):
      tokens_BT[row, span] = ids
      segments_BT[row, span] = segment
    # A softmax over no tokens would be NaN, so an empty row gets a segment.
    segments_BT[segments_BT[:, 0] == 0, 0] = 1
    return tokens_BT, segments_BT


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


def _round_rows(rows: int, documents: int) -> int:
  """Rounds up a group's number of rows, so that few different numbers occur."""
  return min(n for n in possible_rows(documents) if n >= rows)
