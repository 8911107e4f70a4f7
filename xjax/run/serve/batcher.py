"""Answers the documents of many requests together, in one thread.

While a batch is computed, further requests wait, and the next batch takes
documents from all of them. No request waits for a batch to become full.
"""

import asyncio
import collections
from collections.abc import Callable, Sequence
import concurrent.futures
import dataclasses

from xjax.data.schema import Document
from xjax.run.serve.service import PredictRequest, RequestRefused

# A request, and one of its documents.
DocumentRequest = tuple[PredictRequest, Document]
# Returns an answer for each question.
AnswerBatch = Callable[[Sequence[DocumentRequest]], Sequence[str]]


@dataclasses.dataclass(eq=False)
class _Job:
  request: PredictRequest
  future: asyncio.Future[list[str]]
  answers: list[str] = dataclasses.field(default_factory=list)
  taken: int = 0  # number of documents that were put into a batch

  @property
  def waiting(self) -> int:
    return len(self.request.documents) - self.taken

  def take(self, most: int) -> list[DocumentRequest]:
    documents = self.request.documents[self.taken : self.taken + most]
    self.taken += len(documents)
    return [(self.request, document) for document in documents]

  def add(self, answers: Sequence[str]) -> None:
    self.answers += answers
    is_complete = len(self.answers) == len(self.request.documents)
    if is_complete and not self.future.done():
      self.future.set_result(self.answers)


# The questions of a batch, by request.
_Parts = list[tuple[_Job, list[DocumentRequest]]]


class Batcher:
  """Collects the documents of requests, and answers them in batches.

  All methods run in the thread of the event loop, so nothing needs a lock; one
  other thread computes the answers.
  """

  def __init__(
    self, answer: AnswerBatch, batch_size: int, most_waiting: int
  ) -> None:
    self._answer, self._batch_size = answer, batch_size
    self._most_waiting = most_waiting
    # Those that have documents that are in no batch yet.
    self._jobs: collections.deque[_Job] = collections.deque()
    self._thread = concurrent.futures.ThreadPoolExecutor(1)
    self._task: asyncio.Task | None = None  # answers until no job is left

  @property
  def waiting(self) -> int:
    return sum(job.waiting for job in self._jobs)

  async def ask(self, request: PredictRequest) -> list[str]:
    """Returns an answer for each document of a request.

    If the caller is cancelled, documents that still wait are not computed.
    Raises RequestRefused if too many documents wait.
    """
    if self.waiting + len(request.documents) > self._most_waiting:
      raise RequestRefused(
        503,
        f'the queue is full: {self.waiting} documents are waiting; try again '
        'later',
      )
    loop = asyncio.get_running_loop()
    job = _Job(request, loop.create_future())
    self._jobs.append(job)
    if self._task is None:
      self._task = loop.create_task(self._answer_all())
    return await job.future

  def close(self) -> None:
    self._thread.shutdown()

  async def _answer_all(self) -> None:
    while parts := self._take():
      await self._answer_parts(parts)
    self._task = None

  def _take(self) -> _Parts:
    parts, room = [], self._batch_size
    while self._jobs and room:
      job = self._jobs.popleft()
      if not job.future.done():  # else the request was given up, or has failed
        questions = job.take(room)
        room -= len(questions)
        parts.append((job, questions))
    # The rest goes to the end, so that others have a turn.
    self._jobs += (job for job, _ in parts if job.waiting)
    return parts

  async def _answer_parts(self, parts: _Parts) -> None:
    compute = asyncio.get_running_loop().run_in_executor
    questions = [question for _, part in parts for question in part]
    try:
      answers = await compute(self._thread, self._answer, questions)
      answers = [x for x, _ in zip(answers, questions, strict=True)]
    except Exception as error:
      if len(parts) > 1:  # only the requests with a fault must fail
        for part in parts:
          await self._answer_parts([part])
      elif not parts[0][0].future.done():
        parts[0][0].future.set_exception(error)
      return
    answers = iter(answers)
    for job, part in parts:
      job.add([next(answers) for _ in part])
