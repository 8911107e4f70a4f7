"""Reads what cells hold: lists, labels and what separates them, 0 and 1."""

import ast
import collections
from collections.abc import Collection, Iterable, Sequence
import contextlib
import csv
import json
import re
from typing import Any
import warnings

import numpy as np

NO_SEPARATOR = 'none'  # a cell has one label
LIST = 'list'  # a cell has a list in brackets
FLAGS = '0/1'  # a list has 0 or 1 for each label
_RARE_IN_NAMES = ';#', ';', '|', '；', '؛'  # SharePoint has the first one
USUAL = *_RARE_IN_NAMES, ',', '，', '、', '،'
_UNSURE = ' / ', '/', ' - ', ' '  # these are in many names, too
_FEWEST = 20  # cells of which so many differ that labels cannot be the cells
_MOST = 10_000  # cells with a separator from which it is told
_TRIED = 5  # the most frequent of other marks
_CODE = re.compile(r'\d|^\S+://\S+$')
_MARKS = r'\s!-/:-@\[-`{-~•·–—' + ''.join(USUAL)
_MARK = re.compile(f'[^{_MARKS}][{_MARKS}]+[^{_MARKS}]')
# Marks between two words, not within one as a hyphen is: they may separate
# labels.
_BETWEEN = re.compile(
  r"(?<=\w)(?![-.'’]\w)"
  r'(?:<br ?/?>| and |(?: ?[^\w\s\0]++){1,2}+ ?|[^\S ])(?=\w)'
)
# Brackets around all cells that are no lists, but have several labels, are odd.
_IN_BRACKETS = re.compile(r'\[.*\]|\{.*\}|\(.*\)', re.DOTALL)
_MISSING = frozenset(('nan', 'NaN', 'NaT', '<NA>'))
_FLAGS = dict.fromkeys('1 1.0 1. true yes'.split(), True)
_FLAGS |= dict.fromkeys('0 0.0 0. false no'.split(), False)
_MINUS = ('-1', '-1.0', '-1.')
_DIGITS = re.compile('[01]+')  # 0110
_WORD = re.compile(r'(?:(?<!\w)-)?[^\W_]+(?:\.\d*)?')  # of 0;1 or -1 1
# An item of a list, as Python, NumPy and pandas print it.
_TEXT = r"""[bu]?(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
_ITEM = (
  rf'(?:np\.\w+\()?(?:{_TEXT}|-?\d++(?:\.\d*+)?|\.\.\.|True|False|None'
  r'|nan|NaN|<NA>)\)?'
)
_BARE = r"""[^\s,'"‘“`\[\](){}][^,'"\[\](){}]*+"""
_IN_SPACES = re.compile(rf'\s*+(?:{_ITEM}(?:\s*+,\s*+|\s++|$))*+')
_IN_COMMAS = re.compile(rf'\s*+(?:(?:{_ITEM}\s*+|{_BARE})(?:,\s*+|$))*+')
_PARTS = re.compile(rf'({_ITEM})(?=[\s,]|$)|({_BARE})')
# Brackets, perhaps as in `array([...], dtype=object)` or `frozenset({...})`.
_LIST = re.compile(
  r'(?:<\w+>\s+)?(?:[\w.]+\()?(?:\[(.*?)\]|\{(.*?)\})(?:,\s*\w+=[^][(){},]*+)*+\)?'
  r'(?:\s+(?:Length|Categories)\b.*)?|\((.*)\)|(?:frozen)?set\(\)',
  re.DOTALL,
)
_TAGS = re.compile(r'(?:<[^<>]+>\s*)+')  # <http://x/1> <http://x/2>
_LIST_MARKS = '[{(<\'"'  # one is in each list
# How texts in a list begin, which must be one, be it damaged or of R or Spark.
_SURE_LIST = re.compile(
  rf"""(?:<\w+>\s+)?["\w.]*\(*(?:[\[{{]\s*(?:[bu]|np\.\w+\()?['"‘“`]|\[\\")"""
  rf"""|\w+\(\s*['"]|\(?{_TEXT}\s*,(?:\s*['"]|\)$)|\w*(?:Array|List|Set|Vector)\("""
)


def as_plain(value: Any) -> Any:
  """Returns a cell as text: numbers are written out, lists have lines."""
  if is_missing(value):
    return ''
  if isinstance(value, list) and all(isinstance(v, str) for v in value):
    return '\n'.join(value)
  if isinstance(value, int | float) and not isinstance(value, bool):
    return str(value)
  return value


def as_fact(cell: Any) -> Any:
  """Returns a cell as text with a line for each value, or else the cell."""
  if is_missing(cell):
    return ''
  values = parse_list(cell) if isinstance(cell, str) else cell
  if isinstance(values, list | tuple | np.ndarray):
    lines = [as_fact(value) for value in values]
    is_text = all(isinstance(line, str) for line in lines)
    return '\n'.join(filter(None, lines)) if is_text else cell
  if isinstance(cell, bool | np.bool_):
    return str(cell).lower()
  if isinstance(cell, float | np.floating) and cell.is_integer():
    return str(int(cell))
  if isinstance(cell, int | float | np.number):
    return str(cell)
  return cell.isoformat()[:10] if hasattr(cell, 'isoformat') else cell


def is_missing(value: Any) -> bool:
  """Returns whether a value is None, NaN or the missing value of pandas."""
  if value is None or type(value).__name__ in ('NAType', 'NaTType'):
    return True
  return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_empty(cell: Any) -> bool:
  """Returns whether a cell is missing or blank, or says so as pandas does."""
  if isinstance(cell, str):
    return not cell.strip() or cell.strip() in _MISSING
  return is_missing(cell)


def as_flag(value: Any) -> bool | None:
  """Returns what 0, 1, true, no etc. means, in any spelling; else None."""
  return _FLAGS.get(str(value).strip().lower())


def are_flags(rows: Iterable[Sequence[Any]]) -> bool:
  """Returns whether lists have 0 or 1 for each label, instead of labels.

  So it is if they have nothing else, and a list has a value twice, or all have
  two values, but not in one order.
  """
  repeats, seen = False, set()
  for row in rows:
    flags = tuple(map(as_flag, row))
    if None in flags:
      return False
    repeats = repeats or len({*flags}) < len(flags)
    seen |= {flags} if flags and not repeats else set()
  return repeats or seen == {(False, True), (True, False)}


def have_flags(cells: Collection[Any]) -> bool:
  """Returns whether cells have 0 or 1 for each label, in any form."""
  texts = (x.strip() for x in cells if isinstance(x, str) and not is_empty(x))
  first = next(texts, '')
  if _DIGITS.fullmatch(first):
    lowest, *others = sorted([first, *texts])
    # Numbers differ in length, or are short and do not begin with 0.
    is_number = len(lowest) < 4 and lowest[0] == '1'
    if is_number or any(len(x) != len(lowest) for x in others):
      return False
  return are_flags(split_flags(cell) for cell in cells if not is_empty(cell))


def split_flags(cell: Any) -> list[Any]:
  """Returns the values of a list of zeros and ones, in any form.

  Without a 0 in the list, -1 means 0.
  """
  values = cell if isinstance(cell, list) else [cell]
  if isinstance(cell, str):
    cell = cell.strip()
    values = [*cell] if _DIGITS.fullmatch(cell) else parse_list(cell)
    if values is None or len(values) == 1:  # [0;1]
      values = _WORD.findall(cell)
  values = [value for value in values if not is_missing(value)]
  if False in map(as_flag, values):
    return values
  return [False if str(value) in _MINUS else value for value in values]


def parse_list(text: str) -> list[Any] | None:
  """Reads a list in brackets, of JSON, Python, NumPy etc.; None if it is none.

  Missing items are left out. An Ellipsis stands for labels that NumPy left out.
  """
  if _TAGS.fullmatch(text):
    return re.findall('<([^<>]+)>', text)
  match = _LIST.fullmatch(text)
  for parse in (json.loads, _printed, ast.literal_eval) if match else ():
    try:
      with warnings.catch_warnings():
        warnings.simplefilter('ignore', SyntaxWarning)  # odd escapes
        values = parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
      continue
    if isinstance(values, list):
      return [value for value in values if not is_missing(value)]
  return None


def _printed(text: str) -> list[Any] | None:
  match = _LIST.fullmatch(text)
  inner = next((x for x in match.groups() if x is not None), '')
  if not _IN_SPACES.fullmatch(inner):
    # Words without quotes are no list in (...), which is common in names.
    if match[3] is not None or not _IN_COMMAS.fullmatch(inner):
      return None
  return [
    _item(item) if item else bare.strip()
    for item, bare in _PARTS.findall(inner)
  ]


def _item(text: str) -> Any:
  text = re.sub(r'^np\.\w+\(|(?<=.)\)$', '', text)
  if text == '...' or text in _MISSING:
    return Ellipsis if text == '...' else None
  try:
    value = ast.literal_eval(text)
  except SyntaxError:  # a number such as 007
    return text
  return value.decode() if isinstance(value, bytes) else value


def guess_separator(cells: Iterable[str]) -> str:
  """Guesses what stands between labels, or LIST or NO_SEPARATOR; '' if unsure.

  A usual character separates labels if most of the parts between it are in
  several different cells. So "oil, gas" as one label stays one, however
  often it occurs. If most cells differ, codes need not be in several cells, nor
  names between semicolons or vertical bars. Different separators in different
  cells leave it open, and so do other marks between the labels.
  """
  counts = collections.Counter(cells)
  for empty in ('', *_MISSING):
    counts.pop(empty, None)
  texts = [*dict.fromkeys(filter(None, map(str.strip, counts)))]
  many = counts.total() >= _FEWEST and 2 * len(texts) > counts.total()
  whole = '\0'.join(texts)
  brackets = any(mark in whole for mark in _LIST_MARKS)
  if brackets and _are_lists(texts, many):
    return LIST
  is_odd = brackets and all(map(_IN_BRACKETS.fullmatch, texts))
  texts = [text[1:-1] for text in texts] if is_odd else texts
  marks = *_RARE_IN_NAMES, *'\n\t', *USUAL, *_UNSURE
  marks = [x for x in dict.fromkeys(marks) if x in whole]
  found = next((x for x in marks if _divides(x, texts, many)), '\0')
  if found == '\0':
    others = _BETWEEN.findall('\0'.join(_some(texts, len(texts))))
    others = collections.Counter(others).most_common(_TRIED)
    is_odd = any(_divides(mark, texts, many) for mark, _ in others)
  is_odd |= found in (*',，、،',) and _are_halves(found, texts)
  if is_odd or _are_mixed(found, texts, marks + [LIST] * brackets):
    return ''
  if found != '\0':
    return found
  texts = _some(texts, len(texts))
  could = [x for x in texts if any(mark in x for mark in USUAL)]
  unsure = many and (2 * len(could) >= len(texts) or _are_ids(texts))
  return '' if unsure else NO_SEPARATOR


def _some(cells: Sequence[str], count: int) -> Sequence[str]:
  """Returns every n-th cell, about _MOST if `count` of them matter."""
  return cells[:: 1 + count // _MOST]


def _are_halves(mark: str, cells: Iterable[str]) -> bool:
  """Returns whether parts have one of two places: `Doe, John`, `Oslo, NO`."""
  rows = [split_cell(cell, mark) for cell in cells]
  first = {row[0] for row in rows if row}
  last = {part for row in rows for part in row[1:]}
  few = max(map(len, rows)) == 2 and not first & last
  return few and not all(map(_CODE.search, first | last))


def _are_mixed(mark: str, cells: Sequence[str], others: Iterable[str]) -> bool:
  """Returns whether other marks separate the same labels in other cells."""
  others = [x for x in others if not any(x in y and mark in y for y in cells)]
  rows = [split_cell(cell, mark) for cell in cells if others]
  labels = {label for row in rows for label in row}
  for other in others:
    rows = (split_cell(cell, other) or () for cell in cells)
    known = [str(x) in labels for row in rows if len(row) > 1 for x in row]
    share = 1 if other in _UNSURE else 0.51
    if known and sum(known) >= share * len(known):
      return True
  return False


def divisible(cells: Iterable[str]) -> list[str]:
  """Returns the cells that may have several labels."""
  return [cell for cell in cells if _MARK.search(cell)]


def split_cell(text: str, separator: str) -> list[Any] | None:
  """Returns the labels of a cell, without those that are empty.

  If it should be a list in brackets, but is none, it returns None.
  """
  if separator == LIST:
    return parse_list(text.strip())
  if '"' in text and len(separator) == 1:  # Airtable: Law,"Fish, fresh"
    with contextlib.suppress(csv.Error):
      form = {'delimiter': separator, 'skipinitialspace': True, 'strict': True}
      parts = next(csv.reader([text.strip()], **form))
      return [part for part in map(str.strip, parts) if part]
  return [part for part in map(str.strip, text.split(separator)) if part]


def _are_lists(cells: Sequence[str], many: bool) -> bool:
  """Returns whether cells have lists; so has a name in brackets if not sure."""
  if any(map(_SURE_LIST.match, cells)):
    return True
  cells = _some(cells, len(cells))
  if not cells or None in map(parse_list, cells):
    return False
  lists = [*map(parse_list, cells)]
  rows = [*{', '.join(map(str, values)) for values in lists}]
  values = [value for values in lists for value in values]
  numbers = all(not isinstance(v, str) or v.isdigit() for v in values)
  plain = numbers and all(cell[0] == '[' for cell in cells)
  iris = all('://' in str(value) for value in values)
  return [] in lists or plain or iris or _divides(',', rows, many)


def _divides(separator: str, cells: Sequence[str], many: bool) -> bool:
  """Returns whether a text separates the labels of different cells.

  `many` says that most cells differ.
  """
  cells = _some(cells, sum(separator in cell for cell in cells))
  rows = {tuple(split_cell(cell, separator)) for cell in cells}
  uses = collections.Counter(part for row in rows for part in set(row))
  several = [row for row in rows if len(row) > 1]
  if not several or separator in '\n\t':  # no label can have these
    # There may be another separator at the end of each line.
    return not all(row[0].endswith(USUAL) for row in several)
  parts = [part for row in several for part in row]
  shared = 2 * sum(uses[part] > 1 for part in parts) >= len(parts)
  first = {row[0] for row in several}
  later = {part for row in several for part in row[1:]}
  if separator == ',' and later <= {'0', '00', '000'}:  # a number
    return False
  codes = all(map(_CODE.search, uses))
  # In codes with a space, such as `G06F 17/30`, the halves have two forms.
  forms = [{re.sub(r'\d+|://.*', '9', x) for x in xs} for xs in (first, later)]
  alike = codes and not set.isdisjoint(*forms)
  if separator in USUAL:
    usual = many and 2 * len(several) > len(rows)
    return shared or usual and (alike or separator in _RARE_IN_NAMES)
  if all('://' in part for part in uses):
    return True
  size, times = collections.Counter(map(len, rows)).most_common(1)[0]
  # So many parts has a telephone number or a pair, or an indicator: 0 0 1 0.
  if size > 1 and 10 * times >= 9 * len(rows) and not are_flags(rows):
    return False
  if codes:
    apart = separator[0].isspace()  # others are in codes
    return alike and apart and (many or shared and not separator.strip())
  # Words of names, and levels of a path, are seldom fewer than the names, and
  # have their places. So have `&` and `and`: never at an end.
  inner = uses.keys() - first - {row[-1] for row in several}
  links = any(2 * uses[part] > len(several) for part in inner)
  moves = 2 * len(first & later) >= len({*parts})
  return 2 * len(uses) <= len(rows) and moves and not links


def _are_ids(cells: Iterable[str]) -> bool:
  """Returns whether cells may be ids with any mark between them.

  Then an id is in several places; years and days of dates are not. Numbers with
  one point are no ids.
  """
  for mark in {*re.findall(r'[\W_]+', max(cells, key=len))}:
    rows = [split_cell(cell, mark) for cell in cells]
    first = {part for row in rows for part in row[:1]}
    later = {part for row in rows for part in row[1:]}
    several = max(map(len, rows)) > 1 + (mark == '.')
    if several and first & later and all(map(_CODE.search, first | later)):
      return True
  return False
