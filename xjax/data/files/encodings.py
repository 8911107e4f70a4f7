"""Tells the encoding of a text file, and guesses it if it is not UTF-8.

A guess is the encoding in which the letters are those of one language, most of
them frequent ones, and none of them odd. Of short texts, this tells more than
charset-normalizer, which decides between the East Asian encodings.
"""

import codecs
import collections
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import re
from typing import BinaryIO

from absl import logging

from xjax.data.files.faults import Fault

_PIECE = 1 << 20  # bytes that are read at a time
_SAMPLE = 1 << 15  # bytes of lines that are not ASCII
NUL = 'a NUL byte: the file is not text'
MOSTLY_UTF8 = 'a byte that is not UTF-8, although most of the text is UTF-8'
_MARKS = {
  codecs.BOM_UTF32_LE: 'utf-32',  # begins with the mark of UTF-16
  codecs.BOM_UTF32_BE: 'utf-32',
  codecs.BOM_UTF16_LE: 'utf-16',
  codecs.BOM_UTF16_BE: 'utf-16',
}
NOT_UTF8 = re.compile('[\udc80-\udcff]+')  # bytes that surrogateescape escapes
_NOT_ASCII = re.compile(rb'[\x80-\xff]')
# Of two that fit as well, the first is chosen.
_ENCODINGS = (
  'cp1252 cp1250 iso8859_2 cp1251 koi8_r koi8_u cp866 iso8859_5 cp1255 cp1253 '
  'iso8859_7 cp1254 cp1257 cp1256 cp874 cp850 mac_roman'
).split()
# The groups of their languages; of all others, it is 'other'.
_GROUPS = {
  'cp1252': 'western',
  'cp850': 'western',
  'mac_roman': 'western',
  'cp1250': 'central',
  'iso8859_2': 'central',
  'cp1254': 'turkish',
  'cp1257': 'baltic',
}
# The letters of languages that are not ASCII, and other alphabets with frequent
# letters first, because some encodings differ only in the order of letters.
_LANGUAGES = {
  # French, German, Spanish, Portuguese, Italian, Catalan, Swedish, Danish,
  # Icelandic, Dutch.
  'western': 'àâçéèêëîïôùûüœæ äöüßé áéíóúüñ¿¡ªº àáâãçéêíóôõúü àèéìòù '
  'àçéèíïóòúü· åäöé åæøéô áðéíóúýþæö ëéèïöü',
  # Polish, Czech, Slovak, Hungarian, Romanian, Croatian.
  'central': 'ąćęłńóśźż áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž áéíóöőúüű '
  'ăâîșțşţ čćđšž',
  'turkish': 'çğıİöşüâîû',
  # Latvian, Lithuanian, Estonian.
  'baltic': 'āčēģīķļņšūž ąčęėįšųūž äõöüšž',
  # Russian, Ukrainian, Serbian, Bulgarian, Greek; Hebrew, Arabic, Persian;
  # Thai.
  'other': 'оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё '
  'оанивтерслкмдпуяіьзгбчйхїжєшюцщґф аоеинтсрјвкмдпулзгљњбчшцжћђхџф '
  'аитоенрсвлдкпмзяъгубчйжщшцхюфь αοιετσνηυρπκμλςίόάέήγδωθύώχβφξζψϊϋΐΰ '
  'יוהלאמרתבשנעדםקחפסכגטצןזךףץ اليمنتربوعدهسفكقأحةىجشصخطضذءزثغظئإآؤ '
  'ایردنهومتبسلکشزفگعخقجآپحطصضغذثژچظئ '
  'านรอกเงมยลวดท่้ัิีตสะปบคหแจพชขใไโืุูำธณผถ็ฐศษญซภฉึฟ์ฎฏฑฒฌฆฬฮฝๆ',
}
# A charset whose first bytes tell the frequent characters of an encoding.
_EAST_ASIAN = {
  'gb18030': ('gb2312', range(0xB0, 0xD8)),
  'big5': ('big5', range(0xA4, 0xC7)),
  'big5hkscs': ('big5', range(0xA4, 0xC7)),
  'cp932': ('euc_jp', range(0xB0, 0xD0)),
  'euc_jp': ('euc_jp', range(0xB0, 0xD0)),
  'cp949': ('euc_kr', range(0xB0, 0xC9)),
}
_SURE = 0.75  # a fit that may be sure
_WIDE_LINE_END = re.compile(b'\0\n|\n\0')
_CONTROL = re.compile('[\0-\x08\x0e-\x1f\ufffd]')
_PUNCTUATION = frozenset('«»“”„‘’‚–—…•°€§№\xa0·、。，！？：；（）「」《》')
_OTHER = '[\u0370-\u06ff\u0e00-\u0e7f]'  # no Latin letters
# A small letter before a capital one, two scripts in a word, and final letters
# that are not final.
_ODD = re.compile(
  '[a-zß-öø-ÿąćęłńśźżčďěňřšťůžа-яёα-ωά-ώ](?=[A-ZÀ-ÖØ-ÞĄĆĘŁŃŚŹŻČĎĚŇŘŠŤŮŽА-ЯЁΑ-Ω])'
  f'|[A-Za-zÀ-ÿ](?={_OTHER})|{_OTHER}(?=[A-Za-zÀ-ÿ])'
  '|ς(?=[α-ωά-ώ])|[ךםןףץ](?=[א-ת])'
)


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
        '%s: read as %s (guessed%s; --config.data.encoding=... sets another)',
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
  # Without a mark: ASCII characters have their NULs at the same place.
  nuls = [head[at : len(head) // 4 * 4 : 4].count(0) for at in range(4)]
  if sum(nuls) * 5 < len(head) and not _WIDE_LINE_END.search(head):
    return ''
  for encoding, zero, letters in (
    ('utf-32-le', nuls[2:], nuls[0]),
    ('utf-32-be', nuls[:2], nuls[3]),
    ('utf-16-le', nuls[1::2], nuls[0] + nuls[2]),
    ('utf-16-be', nuls[::2], nuls[1] + nuls[3]),
  ):
    text = head.decode(encoding, 'replace')
    lines = '\n' in text and '\u0a00' not in text
    if lines or not letters and 3 * sum(zero) >= len(head):
      wide = encoding.startswith('utf-16') or min(zero) > len(text) // 2
      if wide and not _CONTROL.search(text[:-1]):
        return encoding
  return ''


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
        f'not {encoding}: {error.reason}; name the encoding of the file, as in '
        '--config.data.encoding=cp1251, or correct the byte',
        line + before.count('\n'),
      ) from error
    except UnicodeError as error:
      raise Fault(f'not {encoding}: {error}', line) from error
    if '\0' in text:
      raise Fault(NUL, line + text.count('\n', 0, text.index('\0')))
    line += text.count('\n')


def guess_encoding(sample: bytes) -> Encoding:
  """Guesses the encoding of a text that is not UTF-8."""
  import charset_normalizer  # late: few texts need a guess

  matches = charset_normalizer.from_bytes(
    sample, cp_isolation=[*_EAST_ASIAN], enable_fallback=False
  )
  texts: dict[str, str] = {}
  # It leaves out those that a damaged character does not fit.
  found = dict.fromkeys([*(match.encoding for match in matches), *_EAST_ASIAN])
  for encoding in (*_ENCODINGS, *found):
    texts.setdefault(sample.decode(encoding, 'replace'), encoding)
  fits = [(_fit(text, encoding), encoding) for text, encoding in texts.items()]
  fits.sort(
    key=lambda fit: -fit[0]
  )  # keeps the order of those that fit as well
  best, name = fits[0]
  letters = len(_letters(sample.decode(name, 'replace')))
  # Of two East Asian encodings, charset-normalizer is sure.
  second, other = next(
    fit for fit in fits[1:] if not {name, fit[1]} <= _EAST_ASIAN.keys()
  )
  sure = best > _SURE and (best - second) * letters > 0.9
  return Encoding(name, guessed=True, doubt='' if sure else other)


def _letters(text: str) -> list[str]:
  return [c for c in text if not c.isascii() and c not in _PUNCTUATION]


def _fit(text: str, encoding: str) -> float:
  """Returns about which share of the letters are those of one language."""
  counts = collections.Counter(_letters(text))
  if not (total := counts.total()):
    return 1
  if encoding in _EAST_ASIAN:
    common = functools.partial(_is_common, *_EAST_ASIAN[encoding])
    return sum(n for char, n in counts.items() if common(char)) / total
  best = max(
    sum(weights.get(char, 0) * n for char, n in counts.items())
    for weights in _weights(_GROUPS.get(encoding, 'other'))
  )
  return min(total, best - len(_ODD.findall(text))) / total


def _is_common(charset: str, leads: range, char: str) -> bool:
  if charset == 'euc_jp' and '\u3041' <= char <= '\u30ff':  # kana
    return True
  code = char.encode(charset, 'ignore')
  return len(code) > 1 and code[0] in leads


@functools.cache
def _weights(group: str) -> list[Mapping[str, float]]:
  """Returns the weights of the letters of each language of a group."""
  top, slope = (1.15, 0.7) if group == 'other' else (1, 0)
  languages = []
  for letters in _LANGUAGES[group].split():
    weights = {c: top - slope * i / len(letters) for i, c in enumerate(letters)}
    capitals = {c.upper(): 0.95 * weight for c, weight in weights.items()}
    languages.append(capitals | weights)
  return languages
