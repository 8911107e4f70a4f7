"""Reads the body of a request for predictions, and checks every field."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from xjax.data.files.faults import Fault
from xjax.data.files.json_lines import Fields, parse_object
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import model_view
from xjax.data.schema import Document
from xjax.run.evaluate import TUNED

_PARAMETERS = 'k', 'threshold', 'explain'
USUAL_K = 5
_MAX_WORDS = 100
_WHOLE = 'body'  # name of a document that is the whole body


class Refused(Exception):
  """Reports, with an HTTP status, a request that is not answered."""

  def __init__(self, status: int, message: str):
    super().__init__(message)
    self.status = status


@dataclasses.dataclass(frozen=True)
class PredictRequest:
  documents: tuple[Document, ...]  # with the zones that the model reads
  k: int  # the largest number of labels of a document
  # None for k labels. Otherwise 'tuned' or a number, which is not checked yet,
  # or an evaluate.Threshold.
  threshold: Any
  words: int  # that explain each label
  shaded: bool = False  # whether the answers are HTML with shaded words


def parse_request(
  body: bytes, data: DataConfig, max_k: int, max_documents: int
) -> PredictRequest:
  """Reads the body of a request, or raises Refused if it has a fault.

  The body is one JSON object: a document, or the list `documents` of texts or
  of objects like the lines of `xjax predict --input`. The fields `k`,
  `threshold` and `explain` are optional.
  """
  try:
    row = parse_object(body)
  except Fault as fault:
    raise Refused(400, f'body: {fault}') from fault
  items, parameters = _items(row), {}
  for name in _PARAMETERS:
    if row.get(name) is not None:
      parameters[name] = row[name]
  if len(items) > max_documents:
    raise Refused(
      413,
      f'documents: the request has {len(items)} documents, but at most '
      f'{max_documents} are allowed; send several requests',
    )
  k = _number(parameters, 'k', min(USUAL_K, max_k), 1, max_k)
  words = _number(parameters, 'explain', 0, 0, _MAX_WORDS)
  threshold = parameters.get('threshold')
  if threshold not in (None, TUNED) and type(threshold) not in (int, float):
    message = f"threshold: must be '{TUNED}' or a probability from 0 to 1"
    raise Refused(400, message)
  documents = tuple(
    _document(item, number, name, data)
    for number, (name, item) in enumerate(items)
  )
  return PredictRequest(documents, k, threshold, words)


def _items(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
  """Returns the documents of a body, each with its name for messages."""
  if 'documents' not in row:
    return [(_WHOLE, {k: v for k, v in row.items() if k not in _PARAMETERS})]
  for name in row:
    if name not in ('documents', *_PARAMETERS):
      raise Refused(
        400,
        f'{name!a} is not a field of a request; the fields are documents, '
        f'{", ".join(_PARAMETERS)}',
      )
  items = row['documents']
  if not isinstance(items, list) or not items:
    raise Refused(400, 'documents: must be a list of one or more documents')
  return [(f'documents[{at}]', item) for at, item in enumerate(items)]


def _number(
  parameters: Mapping[str, Any], name: str, usual: int, least: int, most: int
) -> int:
  number = parameters.get(name, usual)
  if type(number) is not int or not least <= number <= most:
    raise Refused(400, f'{name}: must be an integer from {least} to {most}')
  return number


def _document(item: Any, number: int, name: str, data: DataConfig) -> Document:
  if isinstance(item, str):
    item = {'text': item}
  if not isinstance(item, dict):
    raise Refused(400, f'{name}: must be a text, or an object with "text"')
  fields = Fields(item)
  if not data.is_record(fields):
    _check_names(item, name)
  document = data.read_input_record(fields, str(number))
  if fields.faults:
    raise Refused(400, f'{name}: {"; ".join(fields.faults)}')
  return model_view(data, document)


def _check_names(item: Mapping[str, Any], name: str) -> None:
  """Checks that an object in the form of JsonlData has no mistyped field."""
  known = 'text', 'zones', 'id', 'labels'
  whole = name == _WHOLE  # other fields of a document in a list are ignored
  for field in item:
    if field in _PARAMETERS or (whole and field not in known):
      raise Refused(
        400,
        f'{name}: {field!a} does not belong here; fields of a document are '
        f'{", ".join(known)}, and those of a request are documents, '
        f'{", ".join(_PARAMETERS)}',
      )
