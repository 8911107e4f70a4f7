"""Counts requests, documents and seconds, in the format of Prometheus."""

import functools
from typing import Any

import jax
import prometheus_client as prometheus

from xjax.run.serve.batcher import Batcher

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_COMPILED = '/jax/core/compile/backend_compile_duration'


class Meters:
  """Holds the counters that GET /metrics shows.

  Attributes:
    requests: number of answered requests, by path and status code.
    seconds: seconds from the head of a request to its finished answer, by path.
    batches: number of documents of a batch.
  """

  def __init__(self) -> None:
    """Makes counters of zero; programs compiled so far are not counted."""
    prometheus.disable_created_metrics()
    self._registry = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=self._registry)
    self.requests = prometheus.Counter(
      'xjax_requests',
      'Answered requests.',
      ['path', 'code'],
      registry=self._registry,
    )
    self.seconds = prometheus.Histogram(
      'xjax_request_seconds',
      'Seconds until a request was answered.',
      ['path'],
      buckets=_SECONDS,
      registry=self._registry,
    )
    self.batches = prometheus.Histogram(
      'xjax_batch_documents',
      'Documents that were predicted together.',
      buckets=_DOCUMENTS,
      registry=self._registry,
    )
    compiled = prometheus.Gauge(
      'xjax_compiled_programs_total',
      'Programs that were compiled since the start; 0 is expected.',
      registry=self._registry,
    )
    before = _compiled_programs()[0]
    compiled.set_function(lambda: _compiled_programs()[0] - before)

  def watch(self, batcher: Batcher) -> None:
    """Shows the length of the queue of a batcher."""
    waiting = prometheus.Gauge(
      'xjax_waiting_documents',
      'Documents that wait in the queue.',
      registry=self._registry,
    )
    waiting.set_function(lambda: batcher.waiting)

  def text(self) -> tuple[bytes, str]:
    """Returns all counters as text, and the media type of the text."""
    text = prometheus.generate_latest(self._registry)
    return text, prometheus.CONTENT_TYPE_LATEST


@functools.cache
def _compiled_programs() -> list[int]:
  """Returns a list with the number of programs that JAX has compiled.

  The first call starts to count. JAX cannot forget a listener, so all servers
  of a process share one.
  """
  count = [0]

  def listen(event: str, seconds: float, **kwargs: Any) -> None:
    del seconds, kwargs
    count[0] += event == _COMPILED

  jax.monitoring.register_event_duration_secs_listener(listen)
  return count
