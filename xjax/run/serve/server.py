"""Serves a model over HTTP until SIGTERM or Ctrl-C comes."""

from collections.abc import Iterator, Sequence
import contextlib
import os
import signal
import socket
import threading
from typing import Any

from absl import logging
import jax
import prometheus_client as prometheus
import uvicorn

from xjax.core.console import handling
from xjax.core.errors import ConfigError
from xjax.core.progress import Heartbeat
from xjax.run.serve.app import LOCAL, App, Limits
from xjax.run.serve.batcher import Batcher, Question
from xjax.run.serve.service import Pages, Service

_IDLE = 5  # seconds that an idle connection stays open
_CLOSING = 2.0  # seconds for the last answers, beyond the time of a request
_WAITING = 2048  # connections that wait for the server
_COMPILED = '/jax/core/compile/backend_compile_duration'

_DOCUMENTS = prometheus.Histogram(
  'xjax_batch_documents',
  'Documents that were predicted together.',
  buckets=tuple(2**i for i in range(10)),
)
_QUEUE = prometheus.Gauge(
  'xjax_waiting_documents', 'Documents that wait in the queue.'
)
_PROGRAMS = prometheus.Counter(
  'xjax_compiled_programs',
  'Programs that were compiled since the start; 0 is expected.',
)


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
  that it has, and returns. Port 0 is a free one; `labels` is a path of further
  labels to score (read_new_labels), or ''; step None is the best checkpoint.
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
    self._service = service
    documents = service.run.config.eval.batch_size
    self._batcher = Batcher(self._answer, documents, limits.documents)
    _QUEUE.set_function(lambda: self._batcher.waiting)
    jax.monitoring.register_event_duration_secs_listener(_count_compiled)
    self._server = _Uvicorn(
      uvicorn.Config(
        App(service, self._batcher, limits),
        http='h11',
        ws='none',
        loop='asyncio',
        lifespan='off',
        log_config=None,
        log_level='error',
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=round(2 * limits.seconds + _CLOSING),
      )
    )

  def run(self, listener: socket.socket) -> None:
    """Serves until a signal comes, or until `stop` is called."""
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
    _DOCUMENTS.observe(len(questions))
    return self._service.answer(questions)


def _count_compiled(event: str, *args: Any, **kwargs: Any) -> None:
  del args, kwargs
  _PROGRAMS.inc(event == _COMPILED)


class _Uvicorn(uvicorn.Server):
  """Says where it serves, once it listens."""

  async def startup(self, sockets: list[socket.socket] | None = None) -> None:
    await super().startup(sockets)
    host, port = sockets[0].getsockname()[:2]
    name = f'[{host}]' if ':' in host else host
    logging.info('serving on http://%s:%d/ (Ctrl-C ends this)', name, port)


def bind(host: str, port: int) -> socket.socket:
  """Returns a listening socket, so that a wrong address is noticed early."""
  with contextlib.ExitStack() as stack:
    try:
      (first, *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
      family, kind, protocol, _, address = first
      listener = stack.enter_context(socket.socket(family, kind, protocol))
      listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      listener.bind(address)
      listener.listen(_WAITING)
    except OSError as error:
      raise ConfigError(
        f'--host={host} --port={port}: the server cannot listen there: '
        f'{error.strerror}; choose another port, or --port=0 for a free one'
      ) from error
    stack.pop_all()  # the caller closes the socket
    return listener


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
