"""Tells the encoding of text files by their bytes."""

import codecs
import re
from typing import BinaryIO

from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import UTF16_MARKS

_PIECE = 1 << 20  # bytes that are read at a time
_NOT_IN_CP1252 = re.compile(rb'[\x81\x8d\x8f\x90\x9d]')


def encoding_of(file: BinaryIO) -> str:
  """Returns the encoding of an open text file, and puts it back at its start.

  The encoding is 'utf-16' if the file starts with its byte order mark,
  'utf-8-sig' if all bytes are UTF-8, else 'cp1252', or 'latin-1' if cp1252
  lacks a byte. A NUL byte, or a byte that is not UTF-8 in a text that mostly
  is, raises a Fault with the number of the line.
  """
  decoder = codecs.getincrementaldecoder('utf-8')()
  line, encoding, seen = 1, 'utf-8-sig', False
  try:
    while piece := file.read(_PIECE):
      if line == 1 and piece.startswith(UTF16_MARKS):
        return 'utf-16'
      if (at := piece.find(0)) >= 0:
        line += piece.count(b'\n', 0, at)
        raise Fault('a NUL byte: the file is not text', line)
      if encoding == 'utf-8-sig':
        encoding = _check_utf8(decoder, piece, line, seen)
        # Bytes at the end may be the start of a character.
        whole = piece[: len(piece) - len(decoder.getstate()[0])]
        seen = seen or not whole.isascii()
      elif _NOT_IN_CP1252.search(piece):
        encoding = 'latin-1'
      line += piece.count(b'\n')
    if encoding == 'utf-8-sig' and decoder.getstate()[0]:
      if seen:
        raise Fault('the last character is cut off: the file is damaged', line)
      return 'cp1252'
    return encoding
  finally:
    file.seek(0)


def _check_utf8(
  decoder: codecs.IncrementalDecoder, piece: bytes, line: int, seen: bool
) -> str:
  """Returns the encoding of a piece: utf-8-sig, cp1252 or latin-1.

  `seen` says whether the pieces before have characters of several bytes. If so,
  or if most such characters here are valid, damage is a Fault.
  """
  try:
    decoder.decode(piece)
  except UnicodeDecodeError as error:
    text = piece.decode('utf-8', 'replace')
    broken = text.count('\ufffd')
    # Text in another encoding is hardly ever valid UTF-8 by accident.
    valid = len(text) - len(text.encode('ascii', 'ignore'))
    if seen or valid > 2 * broken:
      raise Fault(
        'a byte that is not UTF-8, although most of the text is UTF-8',
        line + piece.count(b'\n', 0, error.start),
      ) from error
    return 'latin-1' if _NOT_IN_CP1252.search(piece) else 'cp1252'
  return 'utf-8-sig'
