"""Counts requests, documents and seconds, in the format of Prometheus."""

import sys
from typing import Any

import prometheus_client as prometheus

from xjax.run.serving.batcher import Batcher

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_COMPILED = '/jax/core/compile/backend_compile_duration'


class Meters:
  """Holds the counters that GET /metrics shows.

  Attributes:
    requests: number of answered requests, by path and status code.
    seconds: seconds from the first byte of a request to its answer, by path.
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
    self._compiled = prometheus.Counter(
      'xjax_compiled_programs',
      'Programs that requests had to compile; 0 is expected.',
      registry=self._registry,
    )
    if 'jax' in sys.modules:  # a linear model needs no JAX
      sys.modules['jax'].monitoring.register_event_duration_secs_listener(
        self._listen
      )

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

  def _listen(self, event: str, seconds: float, **kwargs: Any) -> None:
    del seconds, kwargs
    if event == _COMPILED:
      self._compiled.inc()
