"""Reads the fields of a JSON object or of a row, and collects their faults."""

from collections.abc import Callable, Iterable
import re
from typing import Any

from xjax.core.texts import ODD_SPACES
from xjax.data.files.cells import as_fact
from xjax.data.files.json_values import json_type

_CONTROL = re.compile('[\x00-\x1f\x7f]')


class Fields:
  """Reads typed fields of one JSON object; collects `faults` in order.

  A field without a default is required.
  """

  may_be_empty = False  # whether null is a text, and a document needs no word

  def __init__(self, row: dict[str, Any]):
    self.row = row
    self.faults: list[str] = []

  def __contains__(self, name: str) -> bool:
    return name in self.row

  def text(self, name: str, default: str | None = None) -> str:
    return self._read(name, default, self.as_text)

  def identifier(self, name: str, default: str | None = None) -> str:
    """Reads a field that holds an id."""
    return self._read(name, default, self.as_id)

  def texts(
    self, name: str, default: tuple[str, ...] | None = None
  ) -> tuple[str, ...]:
    """Reads a list of texts."""
    values = self._read(name, default, self._as_list)
    return tuple(self.as_text(v, f'{name}[{i}]') for i, v in enumerate(values))

  def identifiers(
    self, name: str, default: tuple[str, ...] | None = None
  ) -> tuple[str, ...]:
    """Reads a list of ids, one id, or null; each id is returned once."""
    values = self._read(name, default, self._as_ids)
    values = [v.strip(ODD_SPACES) if type(v) is str else v for v in values]
    ids = (self.as_id(v, f'{name}[{i}]') for i, v in enumerate(values))
    return tuple(dict.fromkeys(ids))

  def as_text(self, value: Any, name: str) -> str:
    """Returns a value if it is text, or else adds a fault and returns ''."""
    if value is None and self.may_be_empty:
      return ''
    if not isinstance(value, str):
      self.faults.append(f'{name} is {json_type(value)}, not text')
      return ''
    try:
      value.encode('utf-8')
    except UnicodeEncodeError:
      self.faults.append(
        f'{name} holds a broken Unicode character (half of a surrogate pair)'
      )
      return ''
    return value

  def as_id(self, value: Any, name: str) -> str:
    """Returns an id, or adds a fault and returns ''; integers are ids, too."""
    # pandas has integers as 1.0 if a cell of their column is missing.
    if type(value) is int or type(value) is float and value.is_integer():
      return str(int(value))
    if not isinstance(value, str):
      kind = json_type(value)
      self.faults.append(f'{name} is {kind}, not text or an integer')
    elif not value.strip():
      self.faults.append(f'{name} is empty')
    elif value != value.strip() or _CONTROL.search(value):
      self.faults.append(
        f'{name} {value!a} has spaces around it or control characters in it'
      )
    else:
      return self.as_text(value, name)
    return ''

  def facts(self, names: Iterable[str]) -> dict[str, str]:
    """Returns fields as texts; each value of a list is a line, no value ''."""
    row = self.row
    return {x: self.as_text(as_fact(row.get(x)), x) for x in names}

  def check_text(self, zones: Iterable[str]) -> None:
    """Adds a fault if all zones are blank, unless there are faults already."""
    if self.faults or self.may_be_empty:
      return
    if not any(text.strip() for text in zones):
      self.faults.append('the document has no text')

  def _read(
    self, name: str, default: Any, read: Callable[[Any, str], Any]
  ) -> Any:
    if name in self.row:
      return read(self.row[name], name)
    if default is None:
      self.faults.append(f'no field {name!r}')
    return default or ''

  def _as_ids(self, value: Any, name: str) -> list[Any]:
    if value is None or value == '':
      return []
    if isinstance(value, str) or type(value) is int:
      return [value]
    return self._as_list(value, name)

  def _as_list(self, value: Any, name: str) -> list[Any]:
    if isinstance(value, list):
      return value
    self.faults.append(f'{name} is {json_type(value)}, not a list')
    return []
