"""Serves a model over HTTP until SIGTERM or Ctrl-C comes."""

import asyncio
from collections.abc import Iterator, Sequence
import contextlib
import http
import os
import resource
import signal
import socket
import threading
from typing import Any

from absl import logging
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from xjax.core.console import handling
from xjax.core.errors import ConfigError
from xjax.core.progress import Heartbeat
from xjax.run.serve.app import App, error_body
from xjax.run.serve.batcher import Batcher, Question
from xjax.run.serve.limits import LOCAL, Limits
from xjax.run.serve.meters import Meters
from xjax.run.serve.service import Pages, Service

_IDLE = 75  # seconds that an idle connection stays open
_CLOSING = 2.0  # seconds for the last answers, beyond the time of a request
_WAITING = 2048  # connections that wait for the server
_OTHER_FILES = 128  # open files that are not connections


def serve(
  workdir: str | os.PathLike,
  pages: Pages,
  host: str = '127.0.0.1',
  port: int = 8000,
  labels: str = '',
  step: int | None = None,
  limits: Limits | None = None,
) -> None:
  """Serves the model of a run until SIGTERM or Ctrl-C comes.

  After the signal, the server accepts no more connections, answers the requests
  that it has, and returns.

  Args:
    workdir: folder of the run.
    pages: writes the page for trying the model.
    host: name or address of the network interface.
    port: from 0 to 65535; 0 chooses a free port.
    labels: path of further labels to score (read_new_labels); '' if none.
    step: step of the checkpoint; None for the best checkpoint.
    limits: bounds of requests.
  """
  with bind(host, port) as listener:
    with Heartbeat('loading the model'):
      service = Service.load(workdir, pages, labels, step)
    if host not in LOCAL:
      logging.warning(
        '--host=%s: everybody who can reach this address can use the server; '
        'it asks for no password',
        host,
      )
    Server(service, limits or Limits()).run(listener)


class Server:
  def __init__(self, service: Service, limits: Limits) -> None:
    """Prepares the server; nothing listens before `run` is called."""
    self._service, self._limits = service, limits
    self._meters = Meters()
    documents = service.run.config.eval.batch_size
    self._batcher = Batcher(self._answer, documents, limits.documents)
    self._meters.watch(self._batcher)
    self._server = _Uvicorn(
      uvicorn.Config(
        App(service, self._batcher, self._meters, limits),
        http=JsonProtocol,
        ws='none',
        loop='asyncio',
        lifespan='off',
        log_config=None,
        log_level='error',
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=round(2 * limits.seconds + _CLOSING),
      )
    )

  def run(self, listener: socket.socket) -> None:
    """Serves until a signal comes, or until `stop` is called."""
    _allow_connections(2 * self._limits.connections)
    try:
      with _signals_end_well():
        self._server.run(sockets=[listener])
    finally:
      self._batcher.close()
    logging.info('the server stops')

  def stop(self) -> None:
    """Lets `run` return, after the requests so far have been answered."""
    self._server.should_exit = True

  def _answer(self, questions: Sequence[Question]) -> list[str]:
    self._meters.batches.observe(len(questions))
    return self._service.answer(questions)


class _Uvicorn(uvicorn.Server):
  """Says where it serves, once it listens."""

  async def startup(self, sockets: list[socket.socket] | None = None) -> None:
    await super().startup(sockets)
    host, port = sockets[0].getsockname()[:2]
    name = f'[{host}]' if ':' in host else host
    logging.info('serving on http://%s:%d/ (Ctrl-C ends this)', name, port)


class JsonProtocol(H11Protocol):
  """Reads requests from one connection, and ends a connection that is too slow.

  uvicorn answers some faults with plain text, and waits without limit for the
  head of a request, and for a client that reads no answer. This class answers
  with JSON, and waits for `limits.seconds`.
  """

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    super().__init__(*args, **kwargs)
    self._limits = self.config.app.limits
    self._head: asyncio.TimerHandle | None = None
    self._answer: asyncio.TimerHandle | None = None

  def connection_made(self, transport: asyncio.Transport) -> None:
    super().connection_made(transport)
    if len(self.connections) > 2 * self._limits.connections:
      transport.abort()
    elif len(self.connections) > self._limits.connections:
      # A connection whose client waits for nothing makes room.
      if idle := next((x for x in self.connections if x.is_idle), None):
        idle.shutdown()
      else:
        self.app = self.config.app.refuse
    self._await_head()

  @property
  def is_idle(self) -> bool:
    is_waiting = self.timeout_keep_alive_task is not None
    return is_waiting and not self.transport.is_closing()

  def connection_lost(self, exc: Exception | None) -> None:
    self._stop_head()
    self._stop_answer()
    super().connection_lost(exc)

  def data_received(self, data: bytes) -> None:
    super().data_received(data)
    if self.cycle is not None and not self.cycle.response_complete:
      self._stop_head()  # the application has timers of its own
    elif self.timeout_keep_alive_task is None and self._head is None:
      self._await_head()

  def pause_writing(self) -> None:
    super().pause_writing()
    if self._answer is None:
      seconds, abort = self._limits.seconds, self.transport.abort
      self._answer = self.loop.call_later(seconds, abort)

  def resume_writing(self) -> None:
    super().resume_writing()
    self._stop_answer()

  def send_400_response(self, msg: str) -> None:
    self._refuse(400, msg)

  def _await_head(self) -> None:
    seconds = self._limits.seconds
    message = f'the request did not arrive within {seconds:g} s'
    self._head = self.loop.call_later(seconds, self._refuse, 408, message)

  def _stop_head(self) -> None:
    if self._head is not None:
      self._head.cancel()
      self._head = None

  def _stop_answer(self) -> None:
    if self._answer is not None:
      self._answer.cancel()
      self._answer = None

  def _refuse(self, status: int, message: str) -> None:
    """Answers a connection whose request could not be read, and closes it."""
    self._stop_head()
    if self.transport.is_closing():
      return
    if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
      # An answer was sent before the whole request had arrived.
      self.transport.close()
      return
    self.config.app.count_refused(status)
    body, headers = error_body(message), [('content-type', 'application/json')]
    reason = http.HTTPStatus(status).phrase
    headers += [('content-length', str(len(body))), ('connection', 'close')]
    for event in (
      h11.Response(status_code=status, headers=headers, reason=reason),
      h11.Data(data=body),
      h11.EndOfMessage(),
    ):
      self.transport.write(self.conn.send(event))
    self.transport.close()


def bind(host: str, port: int) -> socket.socket:
  """Returns a listening socket, so that a wrong address is noticed early.

  Clients that connect wait until the server has started.
  """
  with contextlib.ExitStack() as stack:
    try:
      (first, *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
      family, kind, protocol, _, address = first
      listener = stack.enter_context(socket.socket(family, kind, protocol))
      listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      listener.bind(address)
      listener.listen(_WAITING)
    except OSError as error:
      raise _no_address(host, port, error) from error
    stack.pop_all()  # the caller closes the socket
    return listener


def _no_address(host: str, port: int, error: OSError) -> ConfigError:
  return ConfigError(
    f'--host={host} --port={port}: the server cannot listen there: '
    f'{error.strerror}; choose another port, or --port=0 for a free one'
  )


def _allow_connections(count: int) -> None:
  """Raises the limit of open files, which often allows 1,024 connections."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  wanted = count + _OTHER_FILES
  if soft != resource.RLIM_INFINITY and soft < wanted:
    if hard != resource.RLIM_INFINITY:
      wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _signals_end_well() -> Iterator[None]:
  """Lets SIGTERM and SIGINT end the server, and not the process.

  While uvicorn serves, it has handlers of its own. When it ends, it sends the
  signal again.
  """
  with contextlib.ExitStack() as stack:
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGTERM, signal.SIGINT):
        stack.enter_context(handling(number, lambda *_: None))
    yield
