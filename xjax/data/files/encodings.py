"""Tells the encoding of a text file, and guesses it if it is not UTF-8.

The guess is the encoding in which the words that are not ASCII look most like
words, each of one alphabet, and fit a language, as chardet knows it.
"""

import codecs
from collections.abc import Iterator, Sequence
import dataclasses
import re
from typing import Any, BinaryIO

from absl import logging

from xjax.data.files.faults import Fault

_PIECE = 1 << 20  # bytes that are read at a time
_SAMPLE = 1 << 15  # bytes of words that are not ASCII
_LONGEST = 1 << 12  # bytes of a word, or of a text without spaces
_FEW = 6  # letters that are not ASCII; fewer are never sure
_CLOSE = 0.7  # of the best fit has another encoding that may be right
_SHOWN = 3  # words, and encodings, in a message
NUL = 'a NUL byte: the file is not text'
_MARKS = {
  codecs.BOM_UTF32_LE: 'utf-32',  # begins with the mark of UTF-16
  codecs.BOM_UTF32_BE: 'utf-32',
  codecs.BOM_UTF16_LE: 'utf-16',
  codecs.BOM_UTF16_BE: 'utf-16',
}
_WIDE = 'utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be'
_ESCAPED = 'iso2022_jp_2', 'iso2022_kr', 'hz', 'utf-7'  # in ASCII bytes
_ESCAPE = re.compile(rb'\x1b\$|~\{|\+[\w/]{2,}-')
# The second byte of a letter may be ASCII.
_WORD = re.compile(rb'[\x80-\xff][@-~\x80-\xff]{0,%d}' % _LONGEST)
_NO_WORD = re.compile(rb'[^@-~\x80-\xff]')
# Of those that read a text alike, the first is chosen. The later ones are rare.
_USUAL = (
  'cp1252 cp1251 gb18030 big5hkscs cp932 cp949 cp1253 cp1254 cp1255 cp1256 '
  'cp874 iso8859-15'
).split()
_RARE = (
  'cp1250 cp1257 cp1258 iso8859-2 koi8-r koi8-u koi8-t kz1048 iso8859-5 '
  'iso8859-6 iso8859-7 iso8859-8 euc-jp johab cp850 cp437 cp852 cp857 cp775 '
  'cp737 cp869 cp862 cp720 cp866 cp1125 mac-roman mac-latin2 mac-cyrillic '
  'mac-greek'
).split()
# Characters of no text, and what replaces bytes that do not fit.
_UNFIT = re.compile('[\0-\x08\x0e-\x1f\x80-\x9f\ufffd]')
# What is between words, as an apostrophe may be; around them; and no word.
_BETWEEN = re.compile(
  r'(?:[\s\xad!-@\[-`{-~、。〈-〟！-／：-＠]|(?<!\w{3})’|(?<=\w)[–—](?=\w)|'
  r'’(?=(?:[dmst]|ll|re|ve)?(?!\w)))+'
)
_SIGNS = '©®±×¼½¾µ'
_BEFORE, _AFTER = '‘“„‚«¿¡–—•…°€£§·', '”»…™°º²³–—•·'
_TYPED = {*'‘’“”–…'}  # as programs of Windows type them
_ALPHABETS = (
  'A-Za-zÀ-ÖØ-öø-žƠ-ưȘ-ț\u0300-\u0323',
  'Ѐ-ӿ',
  'Ά-ώ',
  '\u0591-ת',
  '،-ۿ',
  'ก-๛',
  '々-〇ぁ-ゖァ-ー一-鿿',
  '가-힣',
)
_PLAIN = re.compile(
  rf'[{_BEFORE}]*µ?({"|".join(f"[{x}]+" for x in _ALPHABETS)}|[{_SIGNS}]?)'
  rf'(?:(?<=[a-zA-Z])[{_SIGNS}])?[{_AFTER}]*'
)
_logged: set[str] = set()  # whose guess was said


@dataclasses.dataclass(frozen=True)
class Encoding:
  """Says how a text is encoded, and where it is guessed, how surely."""

  name: str  # for Python
  guessed: bool = False
  doubt: str = ''  # other encodings that may be right, and how they read it
  unclear: bool = False  # whether these fit as well
  words: str = dataclasses.field(default='', compare=False)  # as it is read

  def log(self, what: str) -> None:
    """Logs a guess once, as a warning if it is not sure."""
    if self.guessed and what not in _logged:  # a file is read several times
      _logged.add(what)
      log = logging.warning if self.doubt else logging.info
      log('%s: read as %s', what, self)

  def __str__(self) -> str:
    doubt = f', but it may be {self.doubt}' if self.doubt else ''
    guess = 'choose one' if self.unclear else 'guessed; if not'
    return (
      f'{self.words}{doubt} ({guess}, train with '
      '--config.data.encoding=..., or save it as UTF-8)'
    )


def encoding_of(file: BinaryIO, wanted: str = '') -> Encoding:
  """Returns the encoding of an open text file, and puts it back at its start.

  It is UTF-8 if all bytes are; or else the `wanted` one; or UTF-16 or UTF-32,
  also without a byte order mark; or a guess. A Fault tells of a NUL, of a byte
  that is not UTF-8 in a text that partly is, or of one that does not fit.
  """
  head = file.read(_PIECE)
  encoding = Encoding(wanted or wide_encoding(head))
  try:
    if encoding.name == wanted:
      try:
        # Text of ASCII bytes may be in another encoding, such as ISO-2022-JP.
        if _check(file, 'utf-8') or not (wanted or _ESCAPE.search(head)):
          return Encoding('utf-8-sig')
        encoding = encoding if wanted else _escaped(head)
      except Fault as fault:
        if not wanted:
          if str(fault) == NUL:
            raise
          sample = not_ascii(file)
          guess = guess_encoding(sample)
          for line, word, is_utf8 in _rows(sample):
            # If UTF-8 by accident, it is a word in the other encoding, too.
            if is_utf8 and _plainness([word.decode(guess.name, 'replace')]) < 1:
              message = 'a byte that is not UTF-8, although other text is, as'
              raise Fault(f'{message} on line {line}', fault.line) from fault
          encoding = guess
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


def _escaped(head: bytes) -> Encoding:
  """Returns the encoding of a text that may be one of ASCII bytes."""
  name = _detect(head, *_ESCAPED)['encoding']
  if name == 'ascii':
    return Encoding('utf-8-sig')
  start = _ESCAPE.search(head).start()
  words = head[start:].decode(name, 'replace').split('\n')[0]
  return Encoding(name, guessed=True, words=f'{name}: {words[:40]!r}')


def _pieces(file: BinaryIO) -> Iterator[bytes]:
  """Yields all pieces of a file, as a line may have any length, and b''."""
  file.seek(0)
  yield from iter(lambda: file.read(_PIECE), b'')
  yield b''


def not_ascii(file: BinaryIO) -> bytes:
  """Returns the first different words of a file that are not ASCII.

  Each is on a line, after the number of its line in the file.
  """
  words: dict[bytes, int] = {}
  line, size = 1, 0
  for piece in _pieces(file):
    end = 0
    for match in _WORD.finditer(piece):
      start = match.start()
      line += piece.count(b'\n', end, start)
      before = _NO_WORD.split(piece[max(end, start - 80) : start])[-1]
      end, word = match.end(), before + match[0]
      if size < _SAMPLE and word not in words:
        words[word] = line
        size += len(word)
    line += piece.count(b'\n', end)
    if size >= _SAMPLE:
      break
  return b''.join(b'%d %b\n' % (line, word) for word, line in words.items())


def _rows(sample: bytes) -> list[tuple[int, bytes, bool]]:
  """Returns the line of each word of a sample, and if it is mostly UTF-8."""
  rows = []
  for line, word in re.findall(rb'(?m)^(\d+) (.+)$', sample):
    text = word.decode('utf-8', 'replace')
    odd = len(text) - len(text.encode('ascii', 'ignore'))
    rows.append((int(line), word, odd > 3 * text.count('\ufffd')))
  return rows


def guess_encoding(sample: bytes) -> Encoding:
  """Guesses the encoding of words of `not_ascii` that are not all UTF-8."""
  rows = _rows(sample)
  rows = [row for row in rows if not row[2]] or rows
  fits: dict[tuple[str, ...], tuple[float, str]] = {}
  for encoding in _USUAL + _RARE:
    words = tuple(row[1].decode(encoding, 'replace') for row in rows)
    best, name = fits.get(words, (0, encoding))
    fits[words] = max(best, _fit(words, encoding)), name
  ranked = sorted(fits, key=lambda x: fits[x][0], reverse=True)[:_SHOWN]
  best, second = (fits[words][0] for words in ranked[:2])
  # Few texts of other alphabets than that of cp1252 have so few such letters.
  close = _CLOSE * (1.2 if fits[ranked[0]][1] == 'cp1252' else 1)
  letters, plain = len(_letters(ranked[0])), _plainness(ranked[0])
  is_sure = best > 0.5 or (
    min(letters / _FEW, plain / 0.8) >= 1
    and second < best * min(_CLOSE, letters / 15)
  )
  read = [words for words in ranked if fits[words][0] >= 0.3 * second]
  read = read[:1] if is_sure else read
  # Where several encodings are told, the words in which they differ.
  shown = [i for i, x in enumerate(zip(*read)) if len({*x}) > (len(read) > 1)]
  told = [
    f'{fits[words][1]}: '
    + ', '.join(repr(words[i][:40]) for i in shown[:_SHOWN])
    for words in read
  ]
  lines = ', '.join(str(rows[i][0]) for i in shown[:_SHOWN])
  return Encoding(
    fits[ranked[0]][1],
    guessed=True,
    words=f'{told[0]} on line {lines}',
    doubt=' or '.join(told[1:]),
    unclear=not is_sure and (plain < 0.5 or second >= close * best),
  )


def _fit(words: Sequence[str], encoding: str) -> float:
  """Returns how well words that were read so fit a language."""
  plain = _plainness(words) ** 6
  if encoding == 'cp1252' and plain > 0.5:
    letters = [word for word in words if _letters(word)]
    if all(len(word) == 1 for word in letters):
      return 0.4 if letters else 1  # letters alone, as in Ø 5, or only signs
    # Most texts with few such letters are Western. These six are Icelandic, or
    # Turkish ones of cp1254.
    if len(letters) <= _FEW and not {*'ÐðÝýÞþ'} & {*''.join(letters)}:
      plain *= 2 if _TYPED & {*''.join(words)} else 1.4
  if 2 * sum(len(w) > 1 and w.isupper() for w in words) > len(words):
    words = [word.lower() for word in words]  # chardet hardly knows capitals
  # Without the bytes that do not fit, or else it would have no opinion.
  parts = [word.encode(encoding, 'ignore') for word in words]
  guess = _detect(b'\n'.join(x for x in parts if len(x) > 1), encoding)
  known = guess['confidence'] if guess['encoding'] != 'ascii' else 0
  return plain * (known + 1e-3) * (1 if encoding in _USUAL else 0.7)


def _plainness(words: Sequence[str]) -> float:
  """Returns the share of words in one alphabet, with capitals where usual."""
  parts = [part for part in _BETWEEN.split(' '.join(words)) if part]
  plain = 0
  for part in parts:
    if match := _PLAIN.fullmatch(part):
      word = match[1]
      plain += word in (word.lower(), word.upper(), word.title())
  return plain / max(len(parts), 1)


def _letters(words: Sequence[str]) -> list[str]:
  """Returns the letters that are not ASCII."""
  letters = (c for c in ''.join(words) if c.isalpha() and not c.isascii())
  return [c for c in letters if c not in _SIGNS]


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
