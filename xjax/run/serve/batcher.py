"""Answers the documents of many requests together, in one thread.

While a batch is computed, further requests wait in a queue. The next batch
takes documents from all of them. So batches are large when there are many
requests, and no request waits for a batch to become full.
"""

import asyncio
from collections.abc import Callable, Sequence
import concurrent.futures
import heapq
import itertools

from xjax.data.schema import Document
from xjax.run.serve.service import PredictRequest, Refused

# A request, and one of its documents.
Question = tuple[PredictRequest, Document]
# Returns an answer for each question.
AnswerBatch = Callable[[Sequence[Question]], Sequence[str]]
_Batch = list[tuple[Question, asyncio.Future[str]]]


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
    # A heap of documents that are in no batch yet. The first documents of all
    # requests come before second ones, so that a long request lets others have
    # a turn. The next number is that of the arrival.
    self._queue: list[tuple[int, int, Question, asyncio.Future[str]]] = []
    self._arrivals = itertools.count()
    self._thread = concurrent.futures.ThreadPoolExecutor(1)
    self._task: asyncio.Task | None = None  # answers until the queue is empty

  @property
  def waiting(self) -> int:
    return len(self._queue)

  async def ask(self, request: PredictRequest) -> list[str]:
    """Returns an answer for each document of a request.

    If the caller is cancelled, documents that still wait are not computed.
    Raises Refused if too many documents wait.
    """
    if self.waiting + len(request.documents) > self._most_waiting:
      raise Refused(
        503,
        f'the queue is full: {self.waiting} documents are waiting; try again '
        'later',
      )
    loop, futures = asyncio.get_running_loop(), []
    for place, document in enumerate(request.documents):
      futures.append(loop.create_future())
      order = place, next(self._arrivals)
      heapq.heappush(self._queue, (*order, (request, document), futures[-1]))
    if self._task is None:
      self._task = loop.create_task(self._answer_all())
    try:
      return await asyncio.gather(*futures)
    finally:
      for future in futures:
        future.cancel()  # after a fault, the rest is not computed

  def close(self) -> None:
    self._thread.shutdown()

  async def _answer_all(self) -> None:
    while self._queue:
      batch: _Batch = []
      while self._queue and len(batch) < self._batch_size:
        *_, question, future = heapq.heappop(self._queue)
        if not future.done():  # else the request was given up, or has failed
          batch.append((question, future))
      if batch:
        await self._answer_batch(batch)
    self._task = None

  async def _answer_batch(self, batch: _Batch) -> None:
    loop = asyncio.get_running_loop()
    questions = [question for question, _ in batch]
    try:
      answers = await loop.run_in_executor(
        self._thread, self._answer, questions
      )
    except Exception as error:
      if len(batch) > 1:  # only the requests with a fault must fail
        for one in batch:
          await self._answer_batch([one])
      elif not batch[0][1].done():
        batch[0][1].set_exception(error)
      return
    for (_, future), answer in zip(batch, answers, strict=True):
      if not future.done():
        future.set_result(answer)
