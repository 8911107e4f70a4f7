"""Tells the encoding of a text file, and guesses it if it is not UTF-8.

chardet tells how well the text fits a language in each usual encoding.
"""

import codecs
from collections.abc import Iterator
import dataclasses
import functools
import re
from typing import Any, BinaryIO

from absl import logging

from xjax.data.files.faults import Fault

_PIECE = 1 << 20  # bytes that are read at a time
_SAMPLE = 1 << 15  # bytes of lines that are not ASCII
_SURE = 0.1  # the fit of a guess that may be sure
_FEW = 6  # letters that are not ASCII; fewer are never sure
NUL = 'a NUL byte: the file is not text'
MOSTLY_UTF8 = 'a byte that is not UTF-8, although most of the text is UTF-8'
_MARKS = {
  codecs.BOM_UTF32_LE: 'utf-32',  # begins with the mark of UTF-16
  codecs.BOM_UTF32_BE: 'utf-32',
  codecs.BOM_UTF16_LE: 'utf-16',
  codecs.BOM_UTF16_BE: 'utf-16',
}
_WIDE = 'utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be'
NOT_UTF8 = re.compile('[\udc80-\udcff]+')  # bytes that surrogateescape escapes
_NOT_ASCII = re.compile(rb'[\x80-\xff]')
# Of those that read a text alike, the first is chosen.
_ENCODINGS = (
  'cp1252 cp1250 iso8859-2 cp1251 koi8-r koi8-u cp866 iso8859-5 cp1255 cp1253 '
  'iso8859-7 cp1254 cp1257 cp1256 cp874 cp850 mac-roman gb18030 big5hkscs '
  'cp932 euc-jp cp949'
).split()
_WORD = re.compile(r'\w*[^\W\x00-\x7f]\w*')  # that is not ASCII
# Characters of no text, and what replaces bytes that do not fit.
_UNFIT = re.compile('[\0-\x08\x0e-\x1f\x80-\x9f\ufffd]')


@dataclasses.dataclass(frozen=True)
class Encoding:
  """Says how a text is encoded, and where it is guessed, how surely."""

  name: str  # for Python
  guessed: bool = False
  doubt: str = ''  # another encoding that fits about as well, if any

  @functools.lru_cache(1000)  # noqa: B019 (a file is read several times)
  def log(self, what: str) -> None:
    """Logs a guess once, as a warning if it is not sure."""
    if self.guessed:
      doubt = f', but it may be {self.doubt}' if self.doubt else ''
      (logging.warning if doubt else logging.info)(
        '%s: read as %s (guessed%s; if not, train with '
        '--config.data.encoding=..., or save it as UTF-8)',
        what,
        self.name,
        doubt,
      )


def encoding_of(file: BinaryIO, wanted: str = '', line: int = 1) -> Encoding:
  """Returns the encoding of an open text file, and puts it back at its start.

  It is the `wanted` one; or UTF-16 or UTF-32, also without a byte order mark;
  or 'utf-8-sig' if all bytes are UTF-8; or else a guess. A Fault tells of a
  NUL, of a byte that is not UTF-8 in a text that mostly is, or of one that does
  not fit the encoding. The file begins at `line`.
  """
  encoding = Encoding(wanted or wide_encoding(file.read(_PIECE)))
  file.seek(0)
  try:
    if not encoding.name:
      sample = _sample(file, line)
      if not sample:
        return Encoding('utf-8-sig')
      file.seek(0)
      encoding = guess_encoding(sample)
    _check(file, encoding.name, line)
  except Fault:
    if encoding.guessed and encoding.name == 'cp1252':
      return dataclasses.replace(encoding, name='latin-1')
    raise
  finally:
    file.seek(0)
  is_utf8 = codecs.lookup(encoding.name).name == 'utf-8'
  return Encoding('utf-8-sig') if is_utf8 else encoding


def is_utf8(file: BinaryIO) -> bool:
  """Returns whether all bytes of an open text file are plain UTF-8."""
  try:
    return not _sample(file, 1)
  except Fault:
    return False
  finally:
    file.seek(0)


def wide_encoding(head: bytes) -> str:
  """Tells UTF-16 and UTF-32 by the first bytes of a file, else returns ''."""
  for mark, encoding in _MARKS.items():
    if head.startswith(mark):
      return encoding
  if head.count(0) * 5 <= len(head) and not re.search(b'\0\n|\n\0', head):
    return ''
  found = _detect(head, *_WIDE)['encoding']
  # The last character may be cut.
  is_text = found and not _UNFIT.search(head.decode(found, 'replace')[:-1])
  return found if is_text else ''


def _pieces(file: BinaryIO) -> Iterator[bytes]:
  """Yields pieces of a file, because a line may have any length, and b''."""
  yield from iter(lambda: file.read(_PIECE), b'')
  yield b''


def _sample(file: BinaryIO, line: int) -> bytes:
  """Returns lines that are not ASCII, or b'' if all bytes are UTF-8."""
  decoder = codecs.getincrementaldecoder('utf-8')('surrogateescape')
  bad_line = valid = broken = 0
  sample = b''
  for piece in _pieces(file):
    # The last piece, which is empty, ends a character that is cut.
    text = decoder.decode(piece, final=not piece)
    if '\0' in text:
      raise Fault(NUL, line + text.count('\n', 0, text.index('\0')))
    bad = len(text) - len(NOT_UTF8.sub('', text))
    if bad and not broken:
      bad_line = line + text.count('\n', 0, NOT_UTF8.search(text).start())
    broken += bad
    valid += len(text) - len(text.encode('ascii', 'ignore')) - bad
    line += text.count('\n')
    end = 0
    while len(sample) < _SAMPLE and (found := _NOT_ASCII.search(piece, end)):
      end = piece.find(b'\n', found.start()) + 1 or len(piece)
      start = max(piece.rfind(b'\n', 0, found.start()) + 1, found.start() - 80)
      sample += piece[start:end][:_SAMPLE]
    is_cut = not piece and bad == broken
    if broken - valid > _SAMPLE:
      break
  # Text in another encoding is seldom valid UTF-8 by accident.
  if broken and (valid > 2 * broken or valid and is_cut):
    raise Fault(MOSTLY_UTF8, bad_line)
  return sample if broken else b''


def _check(file: BinaryIO, encoding: str, line: int) -> None:
  """Raises a Fault unless the encoding can read a file."""
  decoder = codecs.getincrementaldecoder(encoding)()
  for piece in _pieces(file):
    try:
      text = decoder.decode(piece, final=not piece)
    except UnicodeDecodeError as error:
      before = error.object[: error.start].decode(encoding, 'ignore')
      raise Fault(
        f'not {encoding}: {error.reason}; correct the byte, save the file as '
        'UTF-8, or train with its encoding: --config.data.encoding=cp1251',
        line + before.count('\n'),
      ) from error
    except UnicodeError as error:
      raise Fault(f'not {encoding}: {error}', line) from error
    if '\0' in text:
      raise Fault(NUL, line + text.count('\n', 0, text.index('\0')))
    line += text.count('\n')


def guess_encoding(sample: bytes) -> Encoding:
  """Guesses the encoding of a text that is not UTF-8."""
  fits: dict[str, tuple[float, str]] = {}
  for encoding in _ENCODINGS:
    text = sample.decode(encoding, 'replace')
    best, name = fits.get(text, (0, encoding))
    fits[text] = max(best, _fit(text, encoding)), name
  (best, name), (second, other) = sorted(fits.values(), reverse=True)[:2]
  few = len(sample) - len(sample.decode('ascii', 'ignore')) < _FEW
  western = next(fit for fit in fits.values() if fit[1] == 'cp1252')
  if western[0] >= (0.2 if few else 0.7) * best and name != 'cp1252':
    # It is by far the most frequent one.
    (best, name), (second, other) = western, (best, name)
  sure = best > _SURE and not few and second < 0.97 * best
  return Encoding(name, guessed=True, doubt='' if sure else other)


def _fit(text: str, encoding: str) -> float:
  """Returns from 0 to 1 how well a text that was read so fits a language."""
  letters = ''.join(c for c in text if not c.isascii())
  words = _WORD.findall(text)
  if 2 * sum(len(w) > 1 and w.isupper() for w in words) > len(words):
    text = text.lower()  # chardet knows hardly any text in capitals
  # Without the bytes that do not fit, or else it would have no opinion.
  found = _detect(text.encode(encoding, 'ignore'), encoding)
  if found['encoding'] == 'ascii':
    return 0
  fitting = len(_UNFIT.sub('', letters)) / len(letters)
  return found['confidence'] * fitting**3


def _detect(data: bytes, *encodings: str) -> dict[str, Any]:
  """Lets chardet choose one of the encodings; 'ascii' stands for none."""
  import chardet  # late: few texts need a guess

  return chardet.detect(
    data,
    compat_names=False,
    include_encodings=(*encodings, 'ascii'),
    no_match_encoding='ascii',
    empty_input_encoding='ascii',
  )
