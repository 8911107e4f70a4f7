"""Tells the encoding of a text file, and guesses it if it is not UTF-8.

chardet tells how well the text fits a language in each usual encoding.
"""

import codecs
from collections.abc import Iterator
import dataclasses
import re
from typing import Any, BinaryIO

from absl import logging

from xjax.data.files.faults import Fault

_PIECE = 1 << 20  # bytes that are read at a time
_SAMPLE = 1 << 15  # bytes of lines that are not ASCII
_SURE = 0.1  # the fit of a guess that may be sure
_FEW = 6  # letters that are not ASCII; fewer are never sure
NUL = 'a NUL byte: the file is not text'
_MOSTLY_UTF8 = 'a byte that is not UTF-8, although most of the text is UTF-8'
_MARKS = {
  codecs.BOM_UTF32_LE: 'utf-32',  # begins with the mark of UTF-16
  codecs.BOM_UTF32_BE: 'utf-32',
  codecs.BOM_UTF16_LE: 'utf-16',
  codecs.BOM_UTF16_BE: 'utf-16',
}
_WIDE = 'utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be'
_NOT_UTF8 = re.compile('[\udc80-\udcff]+')  # bytes that surrogateescape escapes
_NOT_ASCII = re.compile(rb'[\x80-\xff]')
# Of those that read a text alike, the first is chosen.
_ENCODINGS = (
  'cp1252 cp1250 iso8859-2 cp1251 koi8-r koi8-u cp866 iso8859-5 cp1255 cp1253 '
  'iso8859-7 cp1254 cp1257 cp1256 cp874 cp850 mac-roman gb18030 big5hkscs '
  'cp932 euc-jp cp949'
).split()
# Characters of no text, and what replaces bytes that do not fit.
_UNFIT = re.compile('[\0-\x08\x0e-\x1f\x80-\x9f\ufffd]')
# Signs of texts whose words are ASCII.
_SIGNS = frozenset('\xa0“”‘’–—…•€£§©®™°·«»†±×²³½¼¾µ¿¡')
_logged: set[str] = set()  # whose guess was said


@dataclasses.dataclass(frozen=True)
class Encoding:
  """Says how a text is encoded, and where it is guessed, how surely."""

  name: str  # for Python
  guessed: bool = False
  doubt: str = ''  # another encoding that fits about as well, if any

  def log(self, what: str) -> None:
    """Logs a guess once, as a warning if it is not sure."""
    if self.guessed and what not in _logged:  # a file is read several times
      _logged.add(what)
      doubt = f', but it may be {self.doubt}' if self.doubt else ''
      (logging.warning if doubt else logging.info)(
        '%s: read as %s (guessed%s; if not, train with '
        '--config.data.encoding=..., or save it as UTF-8)',
        *(what, self.name, doubt),
      )


def encoding_of(file: BinaryIO, wanted: str = '') -> Encoding:
  """Returns the encoding of an open text file, and puts it back at its start.

  It is UTF-8 if all bytes are; or else the `wanted` one; or UTF-16 or UTF-32,
  also without a byte order mark; or a guess. A Fault tells of a NUL, of a byte
  that is not UTF-8 in a text that mostly is, or of one that does not fit.
  """
  encoding = Encoding(wanted or wide_encoding(file.read(_PIECE)))
  try:
    if encoding.name == wanted:
      try:
        # Text of ASCII bytes may be in another encoding, such as ISO-2022-JP.
        if _check(file, 'utf-8') or not wanted:
          return Encoding('utf-8-sig')
      except Fault as fault:
        if not wanted:
          if str(fault) == NUL:
            raise
          sample = not_ascii(file)
          if _is_mostly_utf8(sample, 'unexpected end' in str(fault)):
            raise Fault(_MOSTLY_UTF8, fault.line) from fault
          encoding = guess_encoding(sample)
    _check(file, encoding.name)
  except Fault:
    if encoding.guessed and encoding.name == 'cp1252':
      return dataclasses.replace(encoding, name='latin-1')
    raise
  finally:
    file.seek(0)
  return encoding


def wide_encoding(head: bytes) -> str:
  """Tells UTF-16 and UTF-32 by the first bytes of a file, else returns ''."""
  for mark, encoding in _MARKS.items():
    if head.startswith(mark):
      return encoding
  if head.count(0) * 5 <= len(head) and not re.search(b'\0\n|\n\0', head):
    return ''
  guess = _detect(head, *_WIDE)['encoding']
  # The last character may be cut.
  is_text = guess and not _UNFIT.search(head.decode(guess, 'replace')[:-1])
  return guess if is_text else ''


def _pieces(file: BinaryIO) -> Iterator[bytes]:
  """Yields all pieces of a file, as a line may have any length, and b''."""
  file.seek(0)
  yield from iter(lambda: file.read(_PIECE), b'')
  yield b''


def not_ascii(file: BinaryIO) -> bytes:
  """Returns the first lines of a file that are not ASCII."""
  sample = b''
  for piece in _pieces(file):
    end = 0
    while len(sample) < _SAMPLE and (found := _NOT_ASCII.search(piece, end)):
      end = piece.find(b'\n', found.start()) + 1 or len(piece)
      start = max(piece.rfind(b'\n', 0, found.start()) + 1, found.start() - 80)
      sample += piece[start:end][:_SAMPLE]
    if len(sample) >= _SAMPLE:
      break
  return sample


def _is_mostly_utf8(sample: bytes, is_cut: bool) -> bool:
  """Returns whether text that is not UTF-8 is damaged, or only `is_cut`."""
  text = sample.decode('utf-8', 'surrogateescape')
  broken = len(text) - len(_NOT_UTF8.sub('', text))
  valid = len(text) - len(text.encode('ascii', 'ignore')) - broken
  # Text in another encoding is seldom valid UTF-8 by accident.
  return valid > (0 if is_cut else 2 * broken)


def _check(file: BinaryIO, encoding: str) -> bool:
  """Returns whether a text is not ASCII; a Fault unless the encoding fits."""
  decoder = codecs.getincrementaldecoder(encoding)()
  is_ascii, line = True, 1
  for piece in _pieces(file):
    try:
      text = decoder.decode(piece, final=not piece)
    except UnicodeDecodeError as error:
      before = error.object[: error.start].decode(encoding, 'ignore')
      text = error.object.decode(encoding, 'ignore')
      if '\0' not in text:
        raise Fault(
          f'not {encoding}: {error.reason}; correct the byte, save the file as '
          'UTF-8, or train with its encoding: --config.data.encoding=cp1251',
          line + before.count('\n'),
        ) from error
    except UnicodeError as error:
      raise Fault(f'not {encoding}: {error}', line) from error
    if '\0' in text:
      raise Fault(NUL, line + text.count('\n', 0, text.index('\0')))
    is_ascii = is_ascii and text.isascii()
    line += text.count('\n')
  return not is_ascii


def guess_encoding(sample: bytes) -> Encoding:
  """Guesses the encoding of a text that is not UTF-8."""
  western = sample.decode('cp1252', 'replace')
  if all(map(str.isascii, re.findall(r'\w\w+', western))):
    letters = {c for c in western if not c.isascii()} - _SIGNS
    if all(map(str.isalpha, letters)):  # each of them alone, such as in Ø 5 mm
      return Encoding('cp1252', guessed=True, doubt='cp1250' * bool(letters))
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
  words = [w for w in re.findall(r'\w+', text) if not w.isascii()]
  if 2 * sum(len(w) > 1 and w.isupper() for w in words) > len(words):
    text = text.lower()  # chardet knows hardly any text in capitals
  # Without the bytes that do not fit, or else it would have no opinion.
  guess = _detect(text.encode(encoding, 'ignore'), encoding)
  if guess['encoding'] == 'ascii':
    return 0
  fitting = len(_UNFIT.sub('', letters)) / len(letters)
  return guess['confidence'] * fitting**3


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
