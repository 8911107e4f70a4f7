"""Defines the paths of the server, as an ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
import dataclasses
import re
import time
from typing import Any

from absl import logging
import prometheus_client as prometheus
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from xjax.run.serve.batcher import Batcher
from xjax.run.serve.request import PredictRequest, Refused
from xjax.run.serve.service import Service

LOCAL = '127.0.0.1', '::1', 'localhost'  # addresses of this machine
_MOST_LABELS = 10_000  # labels in one answer
_LONG = 1 << 16  # bytes; longer bodies are parsed in a thread
_HEADERS = {
  # The page has its own style and script, and asks only this server.
  'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; "
  "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
}

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

Handler = Callable[[Request], Awaitable[Response]]


@dataclasses.dataclass(frozen=True)
class Limits:
  body: int = 8 << 20  # the largest number of bytes of a body
  documents: int = 1024  # the largest number of documents that wait
  seconds: float = 30.0  # for an answer
  connections: int = 512  # the largest number of open connections
  hosts: frozenset[str] = frozenset()  # for the header Host; empty: any


def allowed_hosts(host: str, more: Iterable[str]) -> frozenset[str]:
  """Returns the allowed values of the header Host; empty if any name is.

  `host` is the address to listen at; '*' in `more` allows any name, as does an
  address that other machines can reach.
  """
  names = {name.lower() for name in more}
  if host not in LOCAL or '*' in names:
    return frozenset()
  return frozenset({*LOCAL, *names})


class App:
  """Answers HTTP requests with a service; it is an ASGI application.

  docs/serving.md describes the paths. The path /shaded is private: the page at
  / sends the text of its form there. `batcher` must call `service.answer`.
  """

  def __init__(
    self, service: Service, batcher: Batcher, limits: Limits
  ) -> None:
    self._service, self._batcher, self._limits = service, batcher, limits
    paths = (
      ('GET', '/', self._page),
      ('GET', '/labels', self._labels),
      ('GET', '/health', self._health),
      ('GET', '/metrics', self._metrics),
      ('POST', '/predict', self._predict),
      ('POST', '/shaded', self._shaded),
    )
    self._app = Starlette(
      routes=[
        Route(path, self._measured(path, handler), methods=[method])
        for method, path, handler in paths
      ],
      exception_handlers={HTTPException: self._http_error},
    )

  async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
    if self._is_foreign(scope):
      message = 'the header Host names another machine; see --allowed_hosts'
      _count_other(403)
      await _error(403, message)(scope, receive, send)
    else:
      await self._app(scope, receive, send)

  def _is_foreign(self, scope: Scope) -> bool:
    """Returns whether a web page of somebody else may have sent a request.

    The name of another machine can point to this machine (DNS rebinding). Then
    a page from there could read the answers of a local server.
    """
    if not self._limits.hosts:
      return False
    host = dict(scope['headers']).get(b'host', b'').decode('latin-1')
    name = re.sub(r':\d+$', '', host).strip('[]').lower()
    return bool(name) and name not in self._limits.hosts

  def _measured(self, path: str, handler: Handler) -> Handler:
    """Returns a handler that counts requests and answers errors as JSON."""

    async def handle(request: Request) -> Response:
      start = time.monotonic()
      try:
        response = await handler(request)
      except ClientDisconnect:
        response = _error(400, 'the connection was closed')
      except Refused as error:
        response = _error(error.status, str(error))
      except Exception:
        logging.exception('%s failed', path)
        message = 'internal error; the log of the server says more'
        response = _error(500, message)
      response.headers.update(_HEADERS)
      _REQUESTS.labels(path, response.status_code).inc()
      _SECONDS.labels(path).observe(time.monotonic() - start)
      return response

    return handle

  async def _http_error(self, request: Request, error: Any) -> Response:
    """Answers requests for a path or with a method that the server lacks."""
    _count_other(error.status_code)
    paths = 'POST /predict, GET /labels, /health, /metrics and /'
    response = _error(
      error.status_code,
      f'{request.method[:20]} {request.url.path[:100]}: {error.detail}; there '
      f'are {paths}',
    )
    response.headers.update(error.headers or {})
    return response

  async def _page(self, request: Request) -> Response:
    del request
    return HTMLResponse(self._service.page())

  async def _labels(self, request: Request) -> Response:
    first = _query(request, 'offset', 0, 0, 2**31)
    count = _query(request, 'limit', 1000, 1, _MOST_LABELS)
    return JSONResponse(self._service.labels(first, count))

  async def _health(self, request: Request) -> Response:
    del request
    alive = self._batcher.is_alive
    facts = {
      'status': 'ok' if alive else 'failed',
      'waiting': self._batcher.waiting,
      **self._service.facts,
    }
    return JSONResponse(facts, 200 if alive else 503)

  async def _metrics(self, request: Request) -> Response:
    del request
    text = prometheus.generate_latest()
    return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)

  async def _predict(self, request: Request) -> Response:
    answers = await self._answers(request, shaded=False)
    text = '{"predictions": [' + ', '.join(answers) + ']}'
    return Response(text, media_type='application/json')

  async def _shaded(self, request: Request) -> Response:
    return JSONResponse({'html': await self._answers(request, shaded=True)})

  async def _answers(self, request: Request, shaded: bool) -> list[str]:
    seconds = self._limits.seconds
    asked = await self._parse(await self._body(request), shaded)
    future = self._batcher.submit(asked)
    try:
      async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(future)
    except TimeoutError as error:
      message = f'no answer within {seconds:g} s; try again later'
      raise Refused(503, message) from error

  async def _parse(self, body: bytes, shaded: bool) -> PredictRequest:
    parse, documents = self._service.parse, self._limits.documents
    if len(body) <= _LONG:
      return parse(body, documents, shaded)
    # In a thread, so that other requests need not wait.
    return await asyncio.to_thread(parse, body, documents, shaded)

  async def _body(self, request: Request) -> bytes:
    body, size, limit = bytearray(), 0, self._limits.body
    async for part in request.stream():
      size += len(part)
      # Most clients read no answer before they have sent all. So the rest of a
      # long body is read, but not kept.
      if size <= limit:
        body += part
    if size > limit:
      mib = limit >> 20
      message = f'the body is longer than {mib} MiB; send several requests'
      raise Refused(413, message)
    return bytes(body)


def _query(
  request: Request, name: str, usual: int, least: int, most: int
) -> int:
  text = request.query_params.get(name, str(usual))
  is_number = text.isascii() and text.isdigit() and len(text) < 20
  if not is_number or not least <= int(text) <= most:
    message = f'{name}: must be an integer from {least} to {most}'
    raise Refused(400, message)
  return int(text)


def _error(status: int, message: str) -> JSONResponse:
  headers = dict(_HEADERS)
  if status == 503:
    headers['retry-after'] = '1'
  return JSONResponse({'error': message}, status, headers)


def _count_other(status: int) -> None:
  """Counts a request that no path has answered."""
  _REQUESTS.labels('other', status).inc()
