"""Answers requests with the model of a run."""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any, Protocol

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import hidden_progress
from xjax.core.types import PAD
from xjax.data.schema import Document
from xjax.judge.label_lists import LabelLists
from xjax.judge.prediction_lines import ExplainedDocument, prediction_line
from xjax.run.evaluate import TUNED, Threshold
from xjax.run.open_run import OpenRun, Prediction
from xjax.run.predict_file import (
  PredictedDocuments,
  labelled_split,
  open_with_labels,
)
from xjax.run.serve.batcher import Question
from xjax.run.serve.request import (
  PredictRequest,
  Refused,
  parse_request,
)
from xjax.version import __version__

SHADED_WORDS = 5  # the page underlines so many words for a label


class Pages(Protocol):
  """Writes the HTML of the page on which texts are tried by hand."""

  def page(self, facts: dict[str, Any]) -> str:
    """Returns the page; `facts` are those of Service.facts."""

  def shaded(self, explained: ExplainedDocument, attends: bool) -> str:
    """Returns a document with labels; words are shaded by weight."""

  def plain(self, labels: Sequence[Prediction]) -> str:
    """Returns the labels of a document, for a model that explains nothing."""


class Service:
  """Predicts, explains and lists the labels of a model."""

  def __init__(self, run: OpenRun, pages: Pages) -> None:
    tokens = run.config.data.tokens
    if tokens.dense or tokens.sparse:
      raise ConfigError(
        f'{run.workdir.path}: this run reads vectors or features from '
        'files, but requests have texts; use xjax predict'
      )
    self.run, self._pages = run, pages
    self.explains = not run.scorer.unexplained
    self.max_k = run.config.eval.depth  # labels of a document in an answer
    # Settled once, so that answers never depend on later files.
    self._tuned: Threshold | str
    try:
      self._tuned = Threshold.of(TUNED, run)
    except ConfigError as error:
      self._tuned = str(error)
    self.facts = self._all_facts()  # of the model, for the page and /health

  @classmethod
  def load(
    cls,
    workdir: str | os.PathLike,
    pages: Pages,
    labels: str = '',
    step: int | None = None,
  ) -> 'Service':
    """Loads a run, with the labels of a file, and compiles all programs."""
    run = open_with_labels(workdir, labels, step)
    service = cls(run, pages)
    run.warmup(service.explains)
    return service

  def parse(
    self, body: bytes, max_documents: int, shaded: bool = False
  ) -> PredictRequest:
    """Reads a request; Refused if it has a fault or cannot be explained."""
    data = self.run.config.data
    request = parse_request(body, data, self.max_k, max_documents)
    words, threshold = request.words, request.threshold
    try:
      if threshold is not None:
        threshold = self._threshold(threshold)
    except ConfigError as error:
      raise Refused(400, str(error)) from error
    if words and not self.explains:
      raise Refused(400, self.run.scorer.unexplained)
    if shaded:
      words = SHADED_WORDS if self.explains else 0
    return dataclasses.replace(
      request, words=words, threshold=threshold, shaded=shaded
    )

  def answer(self, questions: Sequence[Question]) -> list[str]:
    """Returns the answer for each document, as JSON or as HTML."""
    requests, documents = zip(*questions, strict=True)
    with hidden_progress():
      lists = self._cut(self.run.lists(documents, self.max_k), requests)
      whys = self._explain(lists, requests, documents)
    space, answers = self.run.space, []
    for row, (request, document) in enumerate(questions):
      if request.shaded:
        answers.append(whys[row] or self._plain(lists, row))
        continue
      ids_K, scores_K = lists.ids[row], lists.scores[row]
      scores_K = self.run.readable(ids_K, scores_K)
      answers.append(
        prediction_line(document.id, ids_K, scores_K, space.labels, whys[row])
      )
    return answers

  def labels(self, first: int, count: int) -> dict[str, Any]:
    total, space = self.run.n_labels, self.run.space
    rows = range(min(first, total), min(first + count, total))
    described = [(space.labels[row], space.train_counts[row]) for row in rows]
    return {
      'total': total,
      'labels': [
        {'id': label.id, 'name': label.name, 'train_count': int(n)}
        for label, n in described
      ],
    }

  def _all_facts(self) -> dict[str, Any]:
    run = self.run
    return {
      'model': type(run.config.model).__name__,
      'run': run.workdir.path.name,
      'labels': run.n_labels,
      'step': run.step,
      'explains': self.explains,
      'attends': run.scorer.attends,
      'max_k': self.max_k,
      'tuned_threshold': self._tuned_probability(),
      'version': __version__,
    }

  def _tuned_probability(self) -> float | None:
    """Returns the least probability of the labels that 'tuned' assigns."""
    if isinstance(self._tuned, str):
      return None
    return min(self._tuned.probabilities(self.run), default=None)

  def page(self) -> str:
    return self._pages.page(self.facts)

  def _threshold(self, threshold: str | float) -> Threshold:
    if threshold != TUNED:
      return Threshold.of(threshold, self.run)
    if isinstance(self._tuned, str):
      raise ConfigError(self._tuned)
    return self._tuned

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
    """Returns None, HTML, or the words that explain labels, per document."""
    results: list[Any] = [None] * len(requests)
    rows = [row for row, request in enumerate(requests) if request.words]
    if not rows:
      return results
    some, ids = [documents[row] for row in rows], lists.ids[rows]
    most = max(requests[row].words for row in rows)
    n_shaded = len(rows) * any(requests[row].shaded for row in rows)
    explained = self.run.explanations(some, ids, most, n_shaded)
    unknown = [None] * len(rows)
    split, space = labelled_split(some, unknown, self.run.space)
    lists = LabelLists(ids, lists.scores[rows])
    predicted = PredictedDocuments(self.run, lists, split, space)
    for at, row in enumerate(rows):
      if requests[row].shaded:
        results[row] = self._pages.shaded(
          predicted.explained(explained, at), self.run.scorer.attends
        )
      else:
        own = dataclasses.replace(explained, words=requests[row].words)
        results[row] = own.why(at)
    return results

  def _plain(self, lists: LabelLists, row: int) -> str:
    """Returns HTML with the labels of a document, without shaded words."""
    one = LabelLists(lists.ids[row : row + 1], lists.scores[row : row + 1])
    return self._pages.plain(self.run.predictions(one)[0])
