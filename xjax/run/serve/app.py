"""Defines the paths of the server, as an ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable
import json
import re
import time
from typing import Any

from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from xjax.run.serve.batcher import Batcher
from xjax.run.serve.limits import Limits
from xjax.run.serve.meters import Meters
from xjax.run.serve.request import PredictRequest, Refused
from xjax.run.serve.service import Service

_MOST_LABELS = 10_000  # labels in one answer
_LONG = 1 << 16  # bytes; longer bodies are parsed in a thread
_THREADS = 2  # that parse long bodies
_UNREAD = 408, 413  # the client may still send, so the connection is closed
_HEADERS = {
  # The page has its own style and script, and asks only this server.
  'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; "
  "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
}

Handler = Callable[[Request], Awaitable[Response]]


class App:
  """Answers HTTP requests with a service; it is an ASGI application.

  docs/serving.md describes the paths. The path /shaded is private: the page at
  / sends the text of its form there. `batcher` must call `service.answer`.
  """

  def __init__(
    self, service: Service, batcher: Batcher, meters: Meters, limits: Limits
  ) -> None:
    self._service, self._batcher = service, batcher
    self._meters, self.limits = meters, limits
    self._held = 0  # bytes of bodies that are read or wait for an answer
    self._parsing = asyncio.Semaphore(_THREADS)
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
      self.count_refused(403)
      await _error(403, message)(scope, receive, send)
    else:
      await self._app(scope, receive, send)

  async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers one request, when there are too many connections."""
    self.count_refused(503)
    message = 'too many connections; try again later'
    response = _error(503, message)
    response.headers['connection'] = 'close'
    await response(scope, receive, send)

  def count_refused(self, status: int) -> None:
    """Counts a request that no path has answered."""
    self._meters.requests.labels('other', status).inc()

  def _is_foreign(self, scope: Scope) -> bool:
    """Returns whether a web page of somebody else may have sent a request.

    The name of another machine can point to this machine (DNS rebinding). Then
    a page from there could read the answers of a local server.
    """
    if not self.limits.hosts:
      return False
    host = dict(scope['headers']).get(b'host', b'').decode('latin-1')
    name = re.sub(r':\d+$', '', host).strip('[]').lower()
    return bool(name) and name not in self.limits.hosts

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
      self._meters.requests.labels(path, response.status_code).inc()
      self._meters.seconds.labels(path).observe(time.monotonic() - start)
      return response

    return handle

  async def _http_error(self, request: Request, error: Any) -> Response:
    """Answers requests for a path or with a method that the server lacks."""
    self.count_refused(error.status_code)
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
    text, media_type = self._meters.text()
    return Response(text, media_type=media_type)

  async def _predict(self, request: Request) -> Response:
    answers = await self._answers(request, shaded=False)
    text = '{"predictions": [' + ', '.join(answers) + ']}'
    return Response(text, media_type='application/json')

  async def _shaded(self, request: Request) -> Response:
    return JSONResponse({'html': await self._answers(request, shaded=True)})

  async def _answers(self, request: Request, shaded: bool) -> list[str]:
    limits = self.limits
    body = await self._body(request)
    try:
      asked = await self._parse(body, shaded)
      future = self._batcher.submit(asked)
      async with asyncio.timeout(limits.seconds):
        return await asyncio.wrap_future(future)
    except TimeoutError as error:
      message = f'no answer within {limits.seconds:g} s; try again later'
      raise Refused(503, message) from error
    finally:
      self._held -= len(body)

  async def _parse(self, body: bytes, shaded: bool) -> PredictRequest:
    parse = self._service.parse
    if len(body) <= _LONG:
      return parse(body, self.limits.documents, shaded)
    async with self._parsing:
      # In a thread, so that other requests need not wait.
      documents = self.limits.documents
      return await asyncio.to_thread(parse, body, documents, shaded)

  async def _body(self, request: Request) -> bytes:
    """Returns the body of a request; its size has been added to _held.

    Raises Refused if it is too long or too slow, or too many are being read.
    """
    limit, parts, size = self.limits.body, [], 0
    declared = request.headers.get('content-length', '')
    waits = 'expect' in request.headers  # the client has not sent it yet
    try:
      if waits and declared.isdigit() and int(declared) > limit:
        raise self._too_long()
      async with asyncio.timeout(self.limits.seconds):
        async for part in request.stream():
          size += len(part)
          # Most clients read no answer before they have sent all. So the rest
          # of a long body is read, but not kept.
          if size <= limit:
            self._hold(len(part))
            parts.append(part)
      if size > limit:
        raise self._too_long()
    except BaseException as error:
      self._held -= sum(map(len, parts))
      if not isinstance(error, TimeoutError):
        raise
      if size > limit:
        raise self._too_long() from error
      message = f'the body did not arrive within {self.limits.seconds:g} s'
      raise Refused(408, message) from error
    return b''.join(parts)

  def _too_long(self) -> Refused:
    return Refused(
      413,
      f'the body is longer than {self.limits.body >> 20} MiB; send several '
      'requests',
    )

  def _hold(self, size: int) -> None:
    if self._held + size > self.limits.bodies:
      raise Refused(503, 'too many long bodies at the same time; try again')
    self._held += size


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
  if status in _UNREAD:
    headers['connection'] = 'close'
  return JSONResponse({'error': message}, status, headers)


def error_body(message: str) -> bytes:
  """Returns the body of an answer that reports an error."""
  return json.dumps({'error': message}).encode()
