"""Requests share batches, and one fault fails one request."""

import threading

import pytest

from xjax.core.errors import DataError
from xjax.data.schema import Document
from xjax.run.serve.batcher import Batcher
from xjax.run.serve.request import PredictRequest, Refused

threads_may_fail = pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)


def request(*texts: str) -> PredictRequest:
  documents = (Document(str(i), {'text': t}, None) for i, t in enumerate(texts))
  return PredictRequest(tuple(documents), 1, None, 0)


class Answers:
  """Echoes texts, and waits for `go` before each batch."""

  def __init__(self):
    self.batches, self.go = [], threading.Semaphore(0)
    self.started = threading.Semaphore(0)

  def __call__(self, questions):
    self.started.release()
    self.go.acquire()
    texts = [document.text() for _, document in questions]
    self.batches.append(texts)
    if 'bad' in texts:
      raise DataError('a bad document')
    return [text.upper() for text in texts]


@pytest.fixture
def answers():
  return Answers()


@pytest.fixture
def batcher(answers):
  batcher = Batcher(answers, batch_size=3, most_waiting=8)
  yield batcher
  answers.go.release(100)
  batcher.close()


def hold(batcher, answers):
  """Keeps the thread busy with a first request, so that others wait."""
  first = batcher.submit(request('first'))
  answers.started.acquire()
  return first


def test_requests_that_wait_share_the_next_batch(batcher, answers):
  first = hold(batcher, answers)
  futures = [batcher.submit(request(text)) for text in 'abcd']
  answers.go.release(9)
  assert first.result(5) == ['FIRST']
  results = [future.result(5) for future in futures]
  assert results == [['A'], ['B'], ['C'], ['D']]
  assert answers.batches == [['first'], ['a', 'b', 'c'], ['d']]
  assert batcher.waiting == 0


def test_a_long_request_lets_others_have_a_turn(batcher, answers):
  hold(batcher, answers)
  long, short = batcher.submit(request(*'abcd')), batcher.submit(request('x'))
  answers.go.release(9)
  assert short.result(5) == ['X']
  assert long.result(5) == ['A', 'B', 'C', 'D']
  assert answers.batches[1:] == [['a', 'b', 'c'], ['x', 'd']]


def test_only_the_request_with_a_fault_fails(batcher, answers):
  hold(batcher, answers)
  futures = [batcher.submit(request(text)) for text in ('a', 'bad', 'c')]
  answers.go.release(9)
  assert futures[0].result(5) == ['A']
  assert futures[2].result(5) == ['C']
  with pytest.raises(DataError, match='a bad document'):
    futures[1].result(5)


def test_the_rest_of_a_failed_request_is_dropped(batcher, answers):
  hold(batcher, answers)
  future = batcher.submit(request('bad', *'abcdef'))
  answers.go.release(9)
  with pytest.raises(DataError):
    future.result(5)
  assert batcher.submit(request('x')).result(5) == ['X']
  assert answers.batches[1:] == [['bad', 'a', 'b'], ['x']]
  assert batcher.waiting == 0


def test_a_request_that_was_given_up_is_not_computed(batcher, answers):
  hold(batcher, answers)
  given_up, other = batcher.submit(request('a')), batcher.submit(request('b'))
  assert given_up.cancel()
  answers.go.release(9)
  assert other.result(5) == ['B']
  assert answers.batches == [['first'], ['b']]
  assert batcher.waiting == 0


def test_a_full_queue_refuses(batcher, answers):
  hold(batcher, answers)
  batcher.submit(request(*'abcdefgh'))
  with pytest.raises(Refused, match='queue is full: 8 documents') as refused:
    batcher.submit(request('x'))
  assert refused.value.status == 503


def test_closing_answers_what_waits_and_accepts_no_more(answers):
  batcher = Batcher(answers, batch_size=2, most_waiting=9)
  futures = [batcher.submit(request(*'abc')), batcher.submit(request('d'))]
  answers.go.release(9)
  batcher.close()
  assert [future.result(0) for future in futures] == [['A', 'B', 'C'], ['D']]
  assert not batcher.is_alive
  with pytest.raises(Refused, match='stopping'):
    batcher.submit(request('x'))


@threads_may_fail
def test_a_thread_that_fails_keeps_nobody_waiting():
  def fail(questions):
    raise SystemExit

  batcher = Batcher(fail, batch_size=1, most_waiting=9)
  with pytest.raises(Refused, match='the server has failed'):
    batcher.submit(request('a', 'b')).result(5)
  batcher.close()
  assert not batcher.is_alive
  with pytest.raises(Refused, match='the server has failed'):
    batcher.submit(request('a'))


@threads_may_fail
def test_a_thread_that_fails_while_a_fault_is_searched_fails_all():
  first = threading.Event()

  def fail(questions):
    first.wait()
    raise ValueError if len(questions) > 1 else SystemExit

  batcher = Batcher(fail, batch_size=2, most_waiting=9)
  futures = [batcher.submit(request('a', 'b'))]
  futures += [batcher.submit(request('c')) for _ in range(2)]
  first.set()
  for future in futures[1:]:
    with pytest.raises(Refused, match='the server has failed'):
      future.result(5)
  batcher.close()
