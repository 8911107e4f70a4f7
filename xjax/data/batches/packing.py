"""Short documents of a batch that share rows.

The longest document is placed first, each in the first row where it still fits
(first-fit-decreasing bin packing), among the documents of one device.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.share import Share

_SHAPES = 8  # numbers of rows that batches may have, so that traces are few


@dataclasses.dataclass(frozen=True)
class Packing:
  """Which documents of a batch may share rows.

  Attributes:
    devices: along the data axis, of all processes; each has its own of the
      documents, consecutive ones, and their rows.
    accumulate: micro-batches; they take turns at the documents of each device,
      and at its rows, and each has its documents in its rows.
  """

  devices: int = 1
  accumulate: int = 1

  def check(self, batch_size: int) -> None:
    """Refuses batches that do not divide.

    Raises:
      ConfigError: a device or micro-batch would get more than another.
    """
    packs = self.devices * self.accumulate
    if batch_size % packs:
      raise ConfigError(
        f'a batch of {batch_size} documents does not divide among '
        f'{self.devices} device(s) with {self.accumulate} micro-batch(es) each'
      )

  def plan(self, lengths_B: np.ndarray, width: int) -> 'RowPlan':
    """Places documents; every process makes the same plan.

    Args:
      lengths_B: integers from 1 to width, of all processes' documents; as many
        for each device and micro-batch.
      width: tokens of a row (T).
    """
    documents, packs = len(lengths_B), self.devices * self.accumulate
    device_B, turn_B = np.divmod(
      np.arange(documents), documents // self.devices
    )
    micro_B = turn_B % self.accumulate
    placed_B = np.zeros((documents, 3), np.int32)
    for device, micro in np.ndindex(self.devices, self.accumulate):
      pack_B = (device_B == device) & (micro_B == micro)
      placed_B[pack_B] = first_fit(lengths_B[pack_B], width)
    row_B, column_B, segment_B = placed_B.T
    height = _rounded(int(row_B.max()) + 1, documents // packs)
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
  """Where the documents of a batch lie.

  Attributes:
    rows: of the batch. Each device and micro-batch has as many as the one that
      needs most, up to the next eighth of its documents.
    width: tokens of a row (T).
    lengths_B: integers, tokens of a document.
    row_B: integers, a document's row in the batch.
    column_B: int32, that of its first token.
    segment_B: int32, 1, 2, ... by document of a row.
    first_B: int32, place of its first token in the rows of its device and
      micro-batch laid end to end.
  """

  rows: int
  width: int
  lengths_B: np.ndarray
  row_B: np.ndarray
  column_B: np.ndarray
  segment_B: np.ndarray
  first_B: np.ndarray

  def fill_rows(
    self, documents: Sequence[np.ndarray], share: Share, padding: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a process.

    A row that no document needs begins with a token of segment 1, though of no
    document: a softmax over no token would be NaN.

    Args:
      documents: token ids of its documents.
      share: of the process, in documents as in rows.
      padding: token id beyond documents.

    Returns:
      tokens_BT, segments_BT: int32 [rows of this process, T], as
        core.types.Batch has them.
    """
    mine, rows = share.rows(len(self.row_B)), share.rows(self.rows)
    tokens_BT = np.full((len(rows), self.width), padding, np.int32)
    segments_BT = np.zeros_like(tokens_BT)
    row_B = np.searchsorted(rows, self.row_B[mine])
    end_B = (self.column_B + self.lengths_B)[mine]
    spans = map(slice, self.column_B[mine], end_B)
    for row, span, segment, ids in zip(
      row_B, spans, self.segment_B[mine], documents
    ):
      tokens_BT[row, span] = ids
      segments_BT[row, span] = segment
    segments_BT[segments_BT[:, 0] == 0, 0] = 1
    return tokens_BT, segments_BT


def first_fit(lengths_B: np.ndarray, width: int) -> np.ndarray:
  """Places documents in as few rows as first-fit-decreasing finds.

  Args:
    lengths_B: integers from 1 to width.
    width: tokens of a row.

  Returns:
    int32 [B, 3]: row, column of the first token, and number in the row from 1,
    of each document. Equally long ones are placed in their order.
  """
  left_B = np.full(len(lengths_B), width)  # of each row, at most one a document
  number_B = np.zeros(len(lengths_B), np.int32)
  placed = np.zeros((len(lengths_B), 3), np.int32)
  for at in np.argsort(-lengths_B, kind='stable'):
    row = np.argmax(left_B >= lengths_B[at])
    number_B[row] += 1
    placed[at] = row, width - left_B[row], number_B[row]
    left_B[row] -= lengths_B[at]
  return placed


def _rounded(rows: int, documents: int) -> int:
  """Rows of a pack: few different numbers, never more than its documents."""
  step = -(-documents // _SHAPES)
  return min(-(-rows // step) * step, documents)
