"""A linear run, and a server of it in a thread."""

from collections.abc import Iterator
import contextlib
import http.client
import json
import threading
import time
from typing import Any

import pytest

import xjax
from xjax.run.serve.server import Limits, Server, bind
from xjax.run.serve.service import Service

ANIMALS = 'cat dog fish bird horse cow'.split()


@pytest.fixture(scope='session')
def linear_run(tmp_path_factory):
  """The workdir of a run whose labels are words of the texts."""
  workdir = tmp_path_factory.mktemp('serving') / 'run'
  pairs = [(x, y, n) for x in ANIMALS for y in ANIMALS for n in range(3)]
  texts = [f'a {x} and a {y} of {n} years' for x, y, n in pairs]
  labels = [sorted({x, y}) for x, y, _ in pairs]
  xjax.fit(texts, labels, config='own_linear', workdir=workdir)
  return workdir


class Client:
  def __init__(self, port: int):
    self.port = port

  def connection(self) -> http.client.HTTPConnection:
    return http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)

  def send(
    self, method: str, path: str, body: bytes | None = None, **more: Any
  ) -> tuple[int, bytes, Any]:
    connection = self.connection()
    with contextlib.closing(connection):
      connection.request(method, path, body, **more)
      answer = connection.getresponse()
      return answer.status, answer.read(), answer.headers

  def wait(self) -> None:
    for _ in range(600):
      with contextlib.suppress(ConnectionRefusedError):
        if self.send('GET', '/health')[0] == 200:
          return
      time.sleep(0.05)
    raise AssertionError('the server does not start')

  def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    status, text, headers = self.send(method, path, data)
    assert headers['content-type'] == 'application/json'
    return status, json.loads(text)

  def predict(self, body: Any) -> tuple[int, Any]:
    return self.json('POST', '/predict', body)

  def lines(self, body: Any) -> list[dict]:
    status, answer = self.predict(body)
    assert status == 200
    return answer['predictions']

  def metric(self, name: str) -> float:
    text = self.send('GET', '/metrics')[1].decode()
    return float(dict(x.rsplit(' ', 1) for x in text.splitlines())[name])


@contextlib.contextmanager
def serving(service: Any, limits: Limits | None = None) -> Iterator[Client]:
  """Serves while the context is open."""
  with bind('127.0.0.1', 0) as listener:
    server = Server(service, limits or Limits())
    thread = threading.Thread(target=server.run, args=[listener])
    thread.start()
    client = Client(listener.getsockname()[1])
    try:
      client.wait()
      yield client
    finally:
      server.stop()
      thread.join(30)
      assert not thread.is_alive()


@pytest.fixture(scope='session')
def service(linear_run):
  return Service.load(linear_run)


@pytest.fixture(scope='module')
def client(service):
  with serving(service) as client:
    yield client


class SlowService(Service):
  def __init__(self, service: Service, seconds: float):
    vars(self).update(vars(service))
    self.seconds = seconds

  def answer(self, questions):
    time.sleep(self.seconds)
    return super().answer(questions)
