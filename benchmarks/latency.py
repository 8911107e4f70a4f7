r"""Measures how long a loaded model takes for 1 and for 100 documents.

  python benchmarks/latency.py --system=tree|bigru --workdir=DIR

The run in DIR is made first if there is none: a label tree, or a small BiGRU
with label-wise attention, on the built-in corpus. The benchmark prints CPU
seconds and compiled programs of these steps: loading the model, the first call
of predict for 1 and for 100 documents, and later calls (the median of 20).
After warmup, it makes 200 calls with random numbers of documents, lengths and
k, and counts the programs that these calls compile. It takes about a minute. It
exits with 1 if one of these calls compiles a program.
"""

from collections.abc import Callable, Sequence
import statistics
import sys
import time

from absl import app, flags
import jax
import numpy as np
from small_runs import make_run

import xjax

LATER, RANDOM, MANY = 20, 200, 100
COMPILED = '/jax/core/compile/backend_compile_duration'

_SYSTEM = flags.DEFINE_enum('system', 'tree', ['tree', 'bigru'], 'The model.')
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)


class Meter:
  """Counts the CPU seconds of this process and the programs that it compiles.

  Attributes:
    programs: number of programs that were compiled so far.
  """

  def __init__(self) -> None:
    self.programs = 0
    jax.monitoring.register_event_duration_secs_listener(self._listen)

  def _listen(self, event: str, seconds: float, **kwargs: object) -> None:
    del seconds, kwargs
    self.programs += event == COMPILED

  def measure(self, call: Callable[[], object]) -> tuple[float, int]:
    """Returns the CPU seconds and the number of compiled programs of a call."""
    seconds, programs = time.process_time(), self.programs
    call()
    return time.process_time() - seconds, self.programs - programs


def main(argv: list[str]) -> None:
  """Measures all steps and prints the table."""
  del argv
  workdir = _WORKDIR.value
  texts = make_run(_SYSTEM.value, workdir)
  meter, models = Meter(), []
  show('load', meter.measure(lambda: models.append(xjax.load(workdir))))
  (model,) = models
  for n in (1, MANY):
    documents = texts[:n]
    show(
      f'first call, {n} documents',
      meter.measure(lambda documents=documents: model.predict(documents, k=5)),
    )
    later = [
      meter.measure(lambda documents=documents: model.predict(documents, k=5))
      for _ in range(LATER)
    ]
    seconds, programs = zip(*later, strict=True)
    median = statistics.median(seconds), sum(programs)
    show(f'later calls, {n} documents (median)', median)
  if hasattr(model, 'warmup'):
    show('warmup', meter.measure(model.warmup))
  total = meter.measure(lambda: random_calls(model, texts))
  show(f'{RANDOM} random calls', total)
  sys.exit(int(total[1] > 0))


def random_calls(model: xjax.Model, texts: Sequence[str]) -> None:
  """Predicts labels of random numbers of texts of random lengths."""
  rng, words = np.random.default_rng(0), np.array(' '.join(texts).split())
  for _ in range(RANDOM):
    lengths = rng.integers(0, 300, rng.integers(1, MANY))
    documents = [' '.join(rng.choice(words, n)) for n in lengths]
    model.predict(documents, k=int(rng.integers(1, 50)))


def show(step: str, measured: tuple[float, int]) -> None:
  """Prints a line of the table."""
  print(f'{step:36} {measured[0]:9.4f} s CPU, {measured[1]:3} programs')


if __name__ == '__main__':
  app.run(main)
