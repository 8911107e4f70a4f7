"""Requests share batches, and one fault fails one request."""

import asyncio
import threading

import pytest

from xjax.core.errors import DataError
from xjax.data.schema import Document
from xjax.run.serve.batcher import Batcher
from xjax.run.serve.service import PredictRequest, RequestRefused


class Batches:
  """Echoes texts; the first batch waits until all requests are queued."""

  def __init__(self, batch_size=3, most_waiting=8):
    self.seen, self.go = [], threading.Event()
    self.batcher = Batcher(self._answer, batch_size, most_waiting)

  def _answer(self, questions):
    assert self.go.wait(5)
    texts = [document.text() for _, document in questions]
    self.seen.append(texts)
    if 'bad' in texts:
      raise DataError('a bad document')
    return [text.upper() for text in texts]

  def ask(self, *requests, give_up=()):
    """Asks 'first' alone, then the requests; returns answers or errors."""

    async def run():
      tasks = [asyncio.create_task(self._ask('first'))]
      await asyncio.sleep(0.01)  # so that its batch has begun
      tasks += [asyncio.create_task(self._ask(*texts)) for texts in requests]
      await asyncio.sleep(0.01)
      for task in give_up:
        tasks[task].cancel()
      self.go.set()
      return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    self.batcher.close()
    assert self.batcher.waiting == 0
    return answers[1:]

  def _ask(self, *texts):
    documents = (Document(f'{i}', {'text': x}) for i, x in enumerate(texts))
    return self.batcher.ask(PredictRequest(tuple(documents), 1))


@pytest.fixture
def batches():
  return Batches()


def test_requests_that_wait_share_the_next_batch(batches):
  assert batches.ask(*'abcd') == [['A'], ['B'], ['C'], ['D']]
  assert batches.seen == [['first'], ['a', 'b', 'c'], ['d']]


def test_a_long_request_lets_others_have_a_turn(batches):
  assert batches.ask('abcd', 'x') == [['A', 'B', 'C', 'D'], ['X']]
  assert batches.seen[1:] == [['a', 'b', 'c'], ['x', 'd']]


def test_requests_that_follow_each_other_do_not_starve_a_long_one():
  batches = Batches(most_waiting=99)
  batches.go.set()

  async def follow():
    for _ in range(20):
      await batches._ask('x')

  async def run():
    others = [asyncio.create_task(follow()) for _ in range(9)]
    await batches._ask(*'abcdef')
    seen = len(batches.seen)
    await asyncio.gather(*others)
    return seen

  assert asyncio.run(run()) < 10
  assert len(batches.seen) > 60
  batches.batcher.close()


def test_only_the_request_with_a_fault_fails_and_its_rest_is_dropped(batches):
  bad = ['bad', *'abcd']
  answers = batches.ask('y', bad, 'x')
  assert (answers[0], answers[2]) == (['Y'], ['X'])
  assert isinstance(answers[1], DataError)
  assert batches.seen[1:] == [['y', 'bad', 'a'], ['y'], ['bad', 'a'], ['x']]


def test_a_request_that_was_given_up_is_not_computed(batches):
  given_up, other = batches.ask('a', 'b', give_up=[1])
  assert isinstance(given_up, asyncio.CancelledError) and other == ['B']
  assert batches.seen == [['first'], ['b']]


def test_a_full_queue_refuses(batches):
  answers = batches.ask('abcdefgh', 'x')
  assert answers[0] == list('ABCDEFGH')
  assert isinstance(answers[1], RequestRefused) and answers[1].status == 503
  assert 'queue is full: 8 documents' in str(answers[1])
