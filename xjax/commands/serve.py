r"""Serves the model of a finished run over HTTP.

  xjax serve --workdir=DIR [--port=8000]
  curl -d '{"documents": ["a text"], "k": 5}' http://127.0.0.1:8000/predict

POST /predict takes a JSON object with the field "documents", a list of texts or
of objects {"id", "text"} or {"id", "zones"}, and optionally "k", "threshold"
(a probability or "tuned") and "explain" (a number of words). One document may
also be sent as {"text": "...", "k": 5}. The answer is {"predictions": [...]},
with an object for each document as `xjax predict` writes it. An error has the
form {"error": "..."}.

GET /health says what is served, and /metrics has counters for Prometheus.

Requests that arrive at the same time are predicted together. Everything is
compiled before the first request. After SIGTERM or Ctrl-C, the server answers
the requests that it has, and exits with 0. It needs the libraries of the
extra [serve].
"""

import math

from absl import flags

from xjax.commands.flags import checkpoint, compile_cache
from xjax.core.errors import optional

HEARTBEAT = False  # a server that waits for requests says nothing
_WORKDIR, _STEP = checkpoint.define(required=True)
_PORT = flags.DEFINE_integer(
  'port', 8000, 'The port; 0 chooses a free one.', 0, 65535
)
_HOST = flags.DEFINE_string(
  'host',
  '127.0.0.1',
  'The address to listen at. Only programs on this machine can reach the usual '
  'one; 0.0.0.0 is for everybody, without a password.',
)
_LABELS = flags.DEFINE_string(
  'labels', '', 'File of further labels to score, besides those of the run.'
)
_MAX_BODY_MB = flags.DEFINE_integer(
  'max_body_mb', 8, 'The longest body of a request, in MiB.', 1, 256
)
_MAX_WAITING = flags.DEFINE_integer(
  'max_waiting',
  1024,
  'The largest number of documents of a request, and of all that wait.',
  1,
)
_TIMEOUT = flags.DEFINE_float(
  'timeout',
  30,
  'The longest time for the answer of a request, in seconds.',
  0.1,
  86400,
)
flags.register_validator('timeout', math.isfinite, 'not a number of seconds')
_ALLOWED_HOSTS = flags.DEFINE_list(
  'allowed_hosts',
  [],
  'Names by which a proxy addresses the server, besides those of this machine; '
  '* is any name. It matters only for a --host of this machine.',
)
compile_cache.define()


def main() -> None:
  """Serves the model until a signal comes."""
  for library in ('starlette', 'uvicorn', 'h11', 'prometheus_client'):
    optional(library, 'serving', 'serve')
  from xjax.run.serve.server import Limits, serve

  limits = Limits(
    body=_MAX_BODY_MB.value << 20,
    documents=_MAX_WAITING.value,
    seconds=_TIMEOUT.value,
  )
  where, model = (_HOST.value, _PORT.value), (_LABELS.value, _STEP.value)
  serve(_WORKDIR.value, *where, *model, limits, _ALLOWED_HOSTS.value)
