"""Serves a model over HTTP until SIGTERM or Ctrl-C comes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
import contextlib
import dataclasses
import gzip
import io
import json
import os
import pathlib
import re
import signal
import socket
import threading
import time
from typing import Any
import zlib

from absl import logging
import prometheus_client as prometheus
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
import uvicorn

from xjax.core.console import handling
from xjax.core.errors import ConfigError
from xjax.core.progress import Heartbeat
from xjax.run.serve.batcher import Batcher, DocumentRequest
from xjax.run.serve.service import PredictRequest, RequestRefused, Service

_LOCAL = '127.0.0.1', '::1', 'localhost'  # addresses of this machine
_IDLE = 5  # seconds that an idle connection stays open
_CLOSING = 2.0  # seconds for the last answers, beyond the time of a request
_WAITING = 2048  # connections that wait for the server

prometheus.disable_created_metrics()
_REQUESTS = prometheus.Counter(
  'xjax_requests', 'Answered requests.', ['path', 'code']
)
_SECONDS = prometheus.Histogram(
  'xjax_request_seconds',
  'Seconds until a request was answered.',
  ['path'],
  buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
_DOCUMENTS = prometheus.Histogram(
  'xjax_batch_documents',
  'Documents that were predicted together.',
  buckets=tuple(2**i for i in range(10)),
)
_QUEUE = prometheus.Gauge(
  'xjax_waiting_documents', 'Documents that wait in the queue.'
)

Handler = Callable[[Request], Awaitable[Response]]


@dataclasses.dataclass(frozen=True)
class Limits:
  body: int = 8 << 20  # the largest number of bytes of a body
  documents: int = 1024  # the largest number of documents that wait
  seconds: float = 30.0  # for an answer
  connections: int = 512  # the largest number of open connections
  hosts: frozenset[str] = frozenset()  # for the header Host; empty: any


def serve(
  workdir: str | os.PathLike,
  host: str = '127.0.0.1',
  port: int = 8000,
  labels: str = '',
  step: int | None = None,
  limits: Limits | None = None,
  allowed_hosts: Sequence[str] = (),
) -> None:
  """Serves the model of a run until SIGTERM or Ctrl-C comes.

  After the signal, the server accepts no more connections, answers the requests
  that it has, and returns. Port 0 is a free one; `labels` is a path of further
  labels to score (read_new_labels), or ''; step None is the best checkpoint.
  """
  limits = limits or Limits()
  with bind(host, port) as listener:
    with Heartbeat('loading the model'):
      service = Service.load(workdir, labels, step)
    if host in _LOCAL:
      hosts = frozenset([*_LOCAL, *map(str.lower, allowed_hosts)])
      if '*' not in hosts:
        limits = dataclasses.replace(limits, hosts=hosts)
    else:
      logging.warning(
        '--host=%s: everybody who can reach this address can use the server; '
        'it asks for no password',
        host,
      )
    Server(service, limits).run(listener)


def bind(host: str, port: int) -> socket.socket:
  """Returns a listening socket, so that a wrong address is noticed early."""
  family = socket.AF_INET6 if ':' in host else socket.AF_INET
  options = {'family': family, 'backlog': _WAITING}
  if host == '::' and socket.has_dualstack_ipv6():
    options['dualstack_ipv6'] = True  # IPv4 too, as 0.0.0.0
  try:
    return socket.create_server((host, port), **options)
  except OSError as error:
    raise ConfigError(
      f'--host={host} --port={port}: the server cannot listen there: '
      f'{error.strerror}; choose another port, or --port=0 for a free one'
    ) from error


class Server:
  """Answers HTTP requests with a service; docs/serving.md has the paths."""

  def __init__(self, service: Service, limits: Limits) -> None:
    """Prepares the server; nothing listens before `run` is called."""
    self._service, self._limits = service, limits
    documents = service.run.config.eval.batch_size
    self._batcher = Batcher(self._answer, documents, limits.documents)
    _QUEUE.set_function(lambda: self._batcher.waiting)
    paths = (
      ('GET', '/', _page),
      ('GET', '/health', self._health),
      ('GET', '/metrics', self._metrics),
      ('POST', '/predict', self._predict),
    )
    app = Starlette(
      routes=[
        Route(path, self._measured(path, handler), methods=[method])
        for method, path, handler in paths
      ],
      exception_handlers={HTTPException: _http_error},
    )
    self._server = _Uvicorn(
      uvicorn.Config(
        app,
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
    with contextlib.ExitStack() as stack:
      if threading.current_thread() is threading.main_thread():
        # While uvicorn serves, it has handlers of its own. When it ends, it
        # sends the signal again, which must not end the process.
        for number in (signal.SIGTERM, signal.SIGINT):
          stack.enter_context(handling(number, lambda *_: self.stop()))
      stack.callback(self._batcher.close)
      self._server.run(sockets=[listener])
    logging.info('the server stops')

  def stop(self) -> None:
    """Lets `run` return, after the requests so far have been answered."""
    self._server.should_exit = True

  def _answer(self, questions: Sequence[DocumentRequest]) -> list[str]:
    _DOCUMENTS.observe(len(questions))
    return self._service.answer(questions)

  def _check_host(self, request: Request) -> None:
    # The name of another machine can point to this machine (DNS rebinding).
    # Then a page from there could read the answers of a local server.
    host = request.headers.get('host', '')
    name = re.sub(r':\d+$', '', host).strip('[]').lower()
    if name and self._limits.hosts and name not in self._limits.hosts:
      message = 'the header Host names another machine; see --allowed_hosts'
      raise RequestRefused(403, message)

  def _measured(self, path: str, handler: Handler) -> Handler:
    """Returns a handler that counts requests and answers errors as JSON."""

    async def handle(request: Request) -> Response:
      start = time.monotonic()
      try:
        self._check_host(request)
        response = await handler(request)
      except ClientDisconnect:
        response = _error(400, 'the connection was closed')
      except RequestRefused as error:
        response = _error(error.status, str(error))
      except Exception:
        logging.exception('%s failed', path)
        response = _error(
          500, 'internal error; the log of the server says more'
        )
      _REQUESTS.labels(path, response.status_code).inc()
      _SECONDS.labels(path).observe(time.monotonic() - start)
      return response

    return handle

  async def _health(self, request: Request) -> Response:
    del request
    facts = {'status': 'ok', 'waiting': self._batcher.waiting}
    return JSONResponse({**facts, **self._service.facts})

  async def _metrics(self, request: Request) -> Response:
    del request
    text = prometheus.generate_latest()
    return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)

  async def _predict(self, request: Request) -> Response:
    seconds = self._limits.seconds
    body = await self._body(request)
    # In a thread: a body of megabytes takes long, and others wait.
    asked = await asyncio.to_thread(self._parse, body, request.headers)
    try:
      async with asyncio.timeout(seconds):
        answers = await self._batcher.ask(asked)
    except TimeoutError as error:
      message = f'no answer within {seconds:g} s; try again later'
      raise RequestRefused(503, message) from error
    text = '{"predictions": [' + ', '.join(answers) + ']}'
    return Response(text, media_type='application/json')

  def _parse(self, body: bytes, headers: Mapping[str, str]) -> PredictRequest:
    text = _text(_unpacked(body, headers, self._limits.body), headers)
    return self._service.parse(text, self._limits.documents)

  async def _body(self, request: Request) -> bytes:
    body, size, limit = bytearray(), 0, self._limits.body
    async for part in request.stream():
      size += len(part)
      # Most clients read no answer before they have sent all. So the rest of a
      # long body is read, but not kept.
      if size <= limit:
        body += part
    if size > limit:
      raise _too_long(limit)
    return bytes(body)


def _too_long(limit: int) -> RequestRefused:
  message = f'the body is longer than {limit >> 20} MiB; send several requests'
  return RequestRefused(413, message)


def _unpacked(body: bytes, headers: Mapping[str, str], limit: int) -> bytes:
  """Returns a body that is plain or gzipped; at most `limit` bytes are kept."""
  packing = headers.get('content-encoding', '').strip().lower()
  if packing in ('', 'identity'):
    return body
  if packing not in ('gzip', 'x-gzip'):
    message = f'Content-Encoding: {packing[:40]!a}: send the body plain or gzip'
    raise RequestRefused(415, message)
  try:
    with gzip.open(io.BytesIO(body)) as file:
      body = file.read(limit + 1)
  except (OSError, EOFError, zlib.error) as error:
    message = f'Content-Encoding: the body cannot be unpacked by gzip: {error}'
    raise RequestRefused(400, message) from error
  if len(body) > limit:
    raise _too_long(limit)
  return body


def _text(body: bytes, headers: Mapping[str, str]) -> str:
  """Returns a body as text without its mark; it must be UTF-8."""
  kind = headers.get('content-type', '')
  named = re.search(r'charset\s*=\s*["\']?([\w.:-]+)', kind, re.IGNORECASE)
  if named and named[1].lower() not in ('utf-8', 'utf8', 'us-ascii', 'ascii'):
    message = f'Content-Type: charset={named[1][:40]}: send JSON in UTF-8'
    raise RequestRefused(415, message)
  if not (wide := json.detect_encoding(body)).startswith('utf-8'):
    raise RequestRefused(400, f'body: is {wide}; send JSON in UTF-8')
  try:
    return body.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    message = (
      f'body: not UTF-8: {error.reason} at byte {error.start + 1}; send JSON '
      'in UTF-8; if it is packed by gzip, say Content-Encoding: gzip'
    )
    raise RequestRefused(400, message) from error


class _Uvicorn(uvicorn.Server):
  """Says where it serves, once it listens."""

  async def startup(self, sockets: list[socket.socket] | None = None) -> None:
    await super().startup(sockets)
    host, port = sockets[0].getsockname()[:2]
    name = f'[{host}]' if ':' in host else host
    logging.info('serving on http://%s:%d/ (Ctrl-C ends this)', name, port)


async def _page(request: Request) -> Response:
  """Answers with the page on which people try a text."""
  del request
  return FileResponse(pathlib.Path(__file__).with_name('page.html'))


async def _http_error(request: Request, error: Any) -> Response:
  """Answers requests for a path or with a method that the server lacks."""
  _REQUESTS.labels('other', error.status_code).inc()
  return _error(
    error.status_code,
    f'{request.method[:20]} {request.url.path[:100]}: {error.detail}; there '
    'are POST /predict, GET /, /health and /metrics',
    error.headers,
  )


def _error(status: int, message: str, headers: Any = None) -> JSONResponse:
  retry = {'retry-after': '1'} if status == 503 else None
  return JSONResponse({'error': message}, status, headers or retry)
