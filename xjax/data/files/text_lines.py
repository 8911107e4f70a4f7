"""Lines of a text file, gzipped or not, whatever its name is."""

from collections.abc import Iterator
import contextlib
import gzip
import os
import pathlib
from typing import BinaryIO
import zlib

from xjax.core.errors import DataError
from xjax.data.files.json_lines import GZIP_MAGIC, UTF8_MARK, UTF16_MARKS


@contextlib.contextmanager
def open_text(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a file, through gzip where its first bytes say so.

  Raises:
    DataError: it cannot be opened.
  """
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(pathlib.Path(path).open('rb'))
      zipped = file.read(2) == GZIP_MAGIC
      file.seek(0)
    except OSError as error:
      raise DataError(f'{path}: cannot be read: {error.strerror}') from error
    if zipped:
      file = stack.enter_context(gzip.GzipFile(fileobj=file))
    yield file


def numbered_lines(
  file: BinaryIO, path: str | os.PathLike
) -> Iterator[tuple[int, bytes]]:
  """Yields number, from 1, and bytes of each line, without its end.

  Blank lines count: where a row is a document, one may have nothing in it.

  Raises:
    DataError: the file is damaged or UTF-16; the message names the line.
  """
  number = 0
  try:
    for number, line in enumerate(file, 1):
      if number == 1:
        line = line.removeprefix(UTF8_MARK)
        if line.startswith(UTF16_MARKS):
          raise DataError(f'{path}:1: UTF-16 text: save the file as UTF-8')
      yield number, line.rstrip(b'\r\n')
  except EOFError as error:
    raise DataError(
      f'{path}:{number + 1}: the gzip file is cut short: get it anew'
    ) from error
  except (OSError, zlib.error) as error:
    raise DataError(
      f'{path}:{number + 1}: the file is damaged: {error}'
    ) from error
