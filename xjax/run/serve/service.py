"""Reads requests, and answers them with the model of a run."""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import os
from typing import Any, Self

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import hidden_progress
from xjax.core.types import PAD
from xjax.data.files.faults import Fault
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import parse_object
from xjax.data.formats.data_config import DataConfig
from xjax.data.load import read_zones
from xjax.data.schema import Document
from xjax.judge.label_lists import LabelLists
from xjax.judge.prediction_lines import prediction_line
from xjax.run.evaluate_split import TUNED, Threshold
from xjax.run.open_run import OpenRun
from xjax.run.predict_file import open_with_labels
from xjax.version import __version__

_PARAMETERS = 'k', 'threshold', 'explain'
_DOCUMENT = 'text', 'zones', 'id', 'labels'
_USUAL_K = 5
_MAX_WORDS = 100


class RequestRefused(Exception):
  """Reports, with an HTTP status, a request that is not answered."""

  def __init__(self, status: int, message: str):
    super().__init__(message)
    self.status = status


@dataclasses.dataclass(frozen=True)
class PredictRequest:
  documents: tuple[Document, ...]  # with the zones that the model reads
  k: int  # the largest number of labels of a document
  threshold: Threshold | None = None  # None for k labels
  words: int = 0  # that explain each label


class Service:
  """Predicts and explains labels with the model of a run."""

  def __init__(self, run: OpenRun) -> None:
    tokens = run.config.data.tokens
    if tokens.dense or tokens.sparse:
      raise ConfigError(
        f'{run.workdir.path}: this run reads vectors or features from '
        'files, but requests have texts; use xjax predict'
      )
    self.run = run
    self.explains = not run.scorer.unexplained
    self.max_k = run.config.eval.depth  # labels of a document in an answer
    # Read once, so that answers never depend on later files.
    self._tuned: Threshold | None = None
    with contextlib.suppress(ConfigError):  # the run has no such threshold
      self._tuned = Threshold.of(TUNED, run)
    self.facts = {  # for /health
      'model': type(run.config.model).__name__,
      'run': run.workdir.path.name,
      'labels': run.n_labels,
      'step': run.step,
      'explains': self.explains,
      'max_k': self.max_k,
      'version': __version__,
    }

  @classmethod
  def load(
    cls, workdir: str | os.PathLike, labels: str = '', step: int | None = None
  ) -> Self:
    """Loads a run, with the labels of a file, and compiles all programs."""
    service = cls(open_with_labels(workdir, labels, step))
    service.run.warmup(service.explains)
    return service

  def parse(self, body: bytes | str, max_documents: int) -> PredictRequest:
    """Reads the body of a request, or raises RequestRefused if it has a fault.

    The body is one JSON object: a document, or the list `documents` of texts or
    of objects like the lines of `xjax predict --input`. The fields `k`,
    `threshold` and `explain` are optional.
    """
    try:
      row = parse_object(body)
    except Fault as fault:
      raise RequestRefused(400, f'body: {fault}') from fault
    parameters = {x: row.pop(x) for x in _PARAMETERS if x in row}
    k = _number(parameters, 'k', min(_USUAL_K, self.max_k), 1, self.max_k)
    words = _number(parameters, 'explain', 0, 0, _MAX_WORDS)
    if words and not self.explains:
      raise RequestRefused(400, self.run.scorer.unexplained)
    threshold = self._threshold(parameters.get('threshold'))
    data, documents = self.run.config.data, [('body', row)]
    if 'documents' in row:
      items = row.pop('documents')
      if not isinstance(items, list) or not items:
        raise RequestRefused(
          400, 'documents: must be a list of one or more documents'
        )
      _check_names(row, 'body', ())
      documents = [(f'documents[{at}]', item) for at, item in enumerate(items)]
    elif not data.is_record(Fields(row)):
      _check_names(row, 'body', _DOCUMENT)
    if len(documents) > max_documents:
      raise RequestRefused(
        413,
        f'documents: the request has {len(documents)} documents, but at most '
        f'{max_documents} are allowed; send several requests',
      )
    read = tuple(
      _document(item, number, name, data)
      for number, (name, item) in enumerate(documents)
    )
    return PredictRequest(read, k, threshold, words)

  def _threshold(self, threshold: Any) -> Threshold | None:
    if threshold == TUNED and self._tuned is None:
      raise RequestRefused(400, 'threshold: this run has no tuned threshold')
    if threshold is None or threshold == TUNED:
      return threshold and self._tuned
    try:
      return Threshold.of(threshold, self.run)
    except ConfigError as error:
      raise RequestRefused(400, str(error)) from error

  def answer(
    self, questions: Sequence[tuple[PredictRequest, Document]]
  ) -> list[str]:
    """Returns the answer for each document of a request, as JSON."""
    requests, documents = zip(*questions, strict=True)
    with hidden_progress():
      lists = self._cut(self.run.lists(documents, self.max_k), requests)
      lists = self.run.shown(lists)
      whys = self._explain(lists, requests, documents)
    rows = zip(documents, lists.ids, lists.scores, whys, strict=True)
    labels = self.run.space.labels
    return [
      prediction_line(
        document.id, ids_K, self.run.readable(ids_K, scores_K), labels, why
      )
      for document, ids_K, scores_K, why in rows
    ]

  def _cut(
    self, lists: LabelLists, requests: Sequence[PredictRequest]
  ) -> LabelLists:
    """Keeps the labels that each request asks for; the rest becomes PAD."""
    ids, scores = lists.ids.copy(), lists.scores.copy()
    for row, request in enumerate(requests):
      ids[row, request.k :], scores[row, request.k :] = PAD, -np.inf
      if request.threshold is not None:
        one = LabelLists(ids[row : row + 1], scores[row : row + 1])
        kept = request.threshold.keep(one, self.run)
        ids[row], scores[row] = kept.ids[0], kept.scores[0]
    return LabelLists(ids, scores)

  def _explain(
    self,
    lists: LabelLists,
    requests: Sequence[PredictRequest],
    documents: Sequence[Document],
  ) -> list[Any]:
    """Returns the words that explain labels, or None, per document."""
    whys: list[Any] = [None] * len(requests)
    rows = [row for row, request in enumerate(requests) if request.words]
    if not rows:
      return whys
    most = max(requests[row].words for row in rows)
    some = [documents[row] for row in rows]
    explained = self.run.explanations(some, lists.ids[rows], most)
    for at, row in enumerate(rows):
      words = requests[row].words
      whys[row] = dataclasses.replace(explained, words=words).why(at)
    return whys


def _number(
  parameters: Mapping[str, Any], name: str, usual: int, least: int, most: int
) -> int:
  number = parameters.get(name)
  number = usual if number is None else number
  if type(number) is not int or not least <= number <= most:
    raise RequestRefused(
      400, f'{name}: must be an integer from {least} to {most}'
    )
  return number


def _check_names(
  row: Mapping[str, Any], name: str, known: Sequence[str]
) -> None:
  for field in row:
    if field not in known:
      raise RequestRefused(
        400,
        f'{name}: {field!a} does not belong here; the fields of a request are '
        f'documents, {", ".join(_PARAMETERS)}, and those of a document '
        f'{", ".join(_DOCUMENT)}',
      )


def _document(item: Any, number: int, name: str, data: DataConfig) -> Document:
  if item is None or isinstance(item, str):
    item = {'text': item}
  if not isinstance(item, dict):
    raise RequestRefused(
      400, f'{name}: must be a text, or an object with "text"'
    )
  fields = Fields(item)
  if not data.is_record(fields):  # a table may have columns of these names
    for field in item.keys() & set(_PARAMETERS):
      raise RequestRefused(400, f'{name}: {field!a} belongs beside "documents"')
  fields.may_be_empty = True
  document = data.read_input_record(fields, str(number))
  if fields.faults:
    raise RequestRefused(400, f'{name}: {"; ".join(fields.faults)}')
  return read_zones(document, data)
