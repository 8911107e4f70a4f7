"""Aligns the columns of tables in plain text."""

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]], n_text: int) -> list[str]:
  """Aligns the first n_text columns to the left and the others to the right."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(
      cell.ljust(width) if i < n_text else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  ]
