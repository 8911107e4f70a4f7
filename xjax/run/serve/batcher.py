"""Answers the documents of many requests together, in one thread.

While a batch is computed, further requests wait in a queue. The next batch
takes documents from all of them. So batches are large when there are many
requests, and no request waits for a batch to become full.
"""

import collections
from collections.abc import Callable, Iterable, Sequence
import concurrent.futures
import dataclasses
import threading

from xjax.data.schema import Document
from xjax.run.serve.request import PredictRequest, Refused

# A request, and one of its documents.
Question = tuple[PredictRequest, Document]
# Returns an answer for each question.
AnswerBatch = Callable[[Sequence[Question]], Sequence[str]]

_FAILED = 'the server has failed'


@dataclasses.dataclass(eq=False)
class _Job:
  request: PredictRequest
  future: concurrent.futures.Future[list[str]] = dataclasses.field(
    default_factory=concurrent.futures.Future
  )
  answers: list[str] = dataclasses.field(default_factory=list)
  taken: int = 0  # number of documents that were put into a batch

  @property
  def waiting(self) -> int:
    return len(self.request.documents) - self.taken

  def take(self, most: int) -> list[Question]:
    documents = self.request.documents[self.taken : self.taken + most]
    self.taken += len(documents)
    return [(self.request, document) for document in documents]

  def add(self, answers: Iterable[str]) -> None:
    self.answers += answers
    if len(self.answers) == len(self.request.documents):
      if self._is_wanted():
        self.future.set_result(self.answers)

  def fail(self, error: Exception) -> None:
    self.taken = len(self.request.documents)
    if self._is_wanted():
      self.future.set_exception(error)

  def _is_wanted(self) -> bool:
    """Returns False if the request was given up, or is answered already."""
    future = self.future
    return not future.done() and future.set_running_or_notify_cancel()


class Batcher:
  """Collects the documents of requests, and answers them in batches."""

  def __init__(
    self, answer: AnswerBatch, batch_size: int, most_waiting: int
  ) -> None:
    """Starts the thread, which alone calls `answer`."""
    self.waiting = 0  # documents that are in no batch yet
    self._answer, self._batch_size = answer, batch_size
    self._most_waiting = most_waiting
    self._jobs: collections.deque[_Job] = collections.deque()
    self._changed = threading.Condition()
    self._closed = ''  # why no request is accepted
    self._doing: list[_Job] = []  # those of the batch that is computed
    # A daemon, so that it keeps no process alive that ends with an error.
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._thread.start()

  def submit(
    self, request: PredictRequest
  ) -> concurrent.futures.Future[list[str]]:
    """Queues a request; returns a future of an answer for each document.

    A future that is cancelled drops the documents that still wait. Raises
    Refused if too many documents wait, or the server is stopping.
    """
    count, job = len(request.documents), _Job(request)
    with self._changed:
      if self._closed:
        raise Refused(503, self._closed)
      if self.waiting + count > self._most_waiting:
        raise Refused(
          503,
          f'the queue is full: {self.waiting} documents are waiting; try again '
          'later',
        )
      self.waiting += count
      self._jobs.append(job)
      self._changed.notify()
    return job.future

  @property
  def is_alive(self) -> bool:
    return self._thread.is_alive()

  def close(self) -> None:
    """Answers what is waiting, and ends the thread; no more is accepted."""
    with self._changed:
      self._closed = self._closed or 'the server is stopping'
      self._changed.notify()
    self._thread.join()

  def _run(self) -> None:
    try:
      while parts := self._next():
        self._doing = [job for job, _ in parts]
        self._answer_parts(parts)
    finally:  # at the end no job is left, unless the thread has failed
      with self._changed:
        self._closed = self._closed or _FAILED
        jobs, self._doing = [*self._doing, *self._jobs], []
        self._jobs.clear()
      for job in jobs:
        job.fail(Refused(503, _FAILED))

  def _next(self) -> list[tuple[_Job, list[Question]]]:
    """Returns the questions of the next batch, by request; [] at the end."""
    with self._changed:
      while True:
        if parts := self._take():
          return parts
        if self._closed:
          return []
        self._changed.wait()

  def _take(self) -> list[tuple[_Job, list[Question]]]:
    parts, room = [], self._batch_size
    while self._jobs and room:
      job = self._jobs.popleft()
      if job.future.done():  # the request was given up, or has failed
        self.waiting -= job.waiting
        continue
      questions = job.take(room)
      room -= len(questions)
      self.waiting -= len(questions)
      parts.append((job, questions))
    for job, _ in parts:
      if job.waiting:  # the rest goes to the end, so that others have a turn
        self._jobs.append(job)
    return parts

  def _answer_parts(self, parts: list[tuple[_Job, list[Question]]]) -> None:
    try:
      answers = iter(self._answer([q for _, part in parts for q in part]))
      by_part = [[next(answers) for _ in part] for _, part in parts]
    except Exception as error:
      if len(parts) == 1:
        self._drop(parts[0][0], error)
        return
      for part in parts:  # only the requests with a fault must fail
        self._answer_parts([part])
      return
    for (job, _), new in zip(parts, by_part, strict=True):
      job.add(new)

  def _drop(self, job: _Job, error: Exception) -> None:
    with self._changed:
      self.waiting -= job.waiting
      if job in self._jobs:
        self._jobs.remove(job)
      job.fail(error)
