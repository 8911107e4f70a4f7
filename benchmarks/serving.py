r"""Measures how fast `xjax serve` answers 1, 8 and 64 clients.

  python benchmarks/serving.py --system=tree|bigru|minilm --workdir=DIR \
    [--seconds=60] [--clients=1,8,64] [--documents=1]

The run in DIR is made first if there is none: a label tree, a small BiGRU with
label-wise attention, or a pretrained MiniLM, on the built-in corpus. The limit
is plain `predict`: how many documents a second the loaded model predicts in
full batches, without a server. The benchmark prints this limit. For each number
of clients, it prints the documents a second, their ratio to the limit, and the
median and the 99th percentile of the time until an answer. Each client waits
for an answer before it sends the next request. The clients are a process of
their own on the same machine, so they take a share of its cores. The benchmark
exits with 1 if a request fails.
"""

import asyncio
from collections.abc import Sequence
import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from absl import app, flags
import numpy as np
from small_runs import make_run

import xjax

K = 5  # labels of a document
WARM = 2.0  # seconds of requests that are not counted

_SYSTEM = flags.DEFINE_enum(
  'system', 'tree', ['tree', 'bigru', 'minilm'], 'The model.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_ENCODER = flags.DEFINE_string(
  'encoder', '', 'For minilm: the Hugging Face folder of all-MiniLM-L6-v2.'
)
_SECONDS = flags.DEFINE_float(
  'seconds', 60, 'Seconds of requests for each number of clients.'
)
_CLIENTS = flags.DEFINE_list('clients', ['1', '8', '64'], 'Numbers of clients.')
_DOCUMENTS = flags.DEFINE_integer('documents', 1, 'Documents of a request.')


def main(argv: list[str]) -> None:
  """Measures predict, then the server, and prints the table."""
  del argv
  workdir = _WORKDIR.value
  texts = make_run(_SYSTEM.value, workdir, _ENCODER.value)
  limit = in_process(workdir, texts)
  print(f'{_SYSTEM.value}: predict without a server: {limit:.0f} documents/s')
  print('clients  documents/s  of the limit  p50 ms  p99 ms  requests  errors')
  fine = True
  with server(workdir) as port:
    for count in map(int, _CLIENTS.value):
      seconds, errors = ask(port, texts, count)
      rate = len(seconds) * _DOCUMENTS.value / _SECONDS.value
      p50, p99 = 1000 * np.percentile(seconds, [50, 99])
      print(
        f'{count:7} {rate:12.0f} {rate / limit:13.2f} {p50:7.1f} {p99:7.1f} '
        f'{len(seconds):9} {errors:7}',
        flush=True,
      )
      fine &= not errors
  sys.exit(int(not fine))


def in_process(workdir: str, texts: Sequence[str]) -> float:
  """Returns how many documents a second a loaded model predicts."""
  model, count = xjax.load(workdir), 0
  model.warmup()
  texts = list(texts) * (1 + 256 // len(texts))
  model.predict(texts, k=K)
  start = time.monotonic()
  while time.monotonic() - start < min(10.0, _SECONDS.value):
    model.predict(texts, k=K)
    count += len(texts)
  return count / (time.monotonic() - start)


@contextlib.contextmanager
def server(workdir: str) -> Any:
  """Serves the run in a process of its own; yields the port."""
  command = [sys.executable, '-m', 'xjax', 'serve', '--port=0']
  process = subprocess.Popen(
    [*command, f'--workdir={workdir}'],
    stderr=subprocess.PIPE,
    text=True,
    env={**os.environ, 'PYTHONUNBUFFERED': '1'},
  )
  with process:
    for line in process.stderr:
      if match := re.match(r'serving on http://[^:]+:(\d+)/', line):
        break
    else:
      sys.exit('the server did not start')
    try:
      yield int(match[1])
    finally:
      process.send_signal(signal.SIGTERM)


def ask(port: int, texts: Sequence[str], count: int) -> tuple[np.ndarray, int]:
  """Sends requests from some clients, in another process.

  Returns:
    The seconds of each counted request, and the number of failed requests.
  """
  numbers = _SECONDS.value, _DOCUMENTS.value
  with multiprocessing.get_context('spawn').Pool(1) as pool:
    return pool.apply(run_clients, (port, list(texts), count, *numbers))


def run_clients(
  port: int, texts: Sequence[str], count: int, seconds: float, documents: int
) -> tuple[np.ndarray, int]:
  """Runs the clients of `ask`, in the process of the clients."""
  rng, bodies = np.random.default_rng(0), []
  for _ in range(256):
    chosen = [texts[row] for row in rng.integers(0, len(texts), documents)]
    bodies.append(json.dumps({'documents': chosen, 'k': K}).encode())

  async def run_all() -> list[tuple[list[float], int]]:
    start = time.monotonic() + WARM
    clients = (
      client(port, bodies[n:] + bodies[:n], start, start + seconds)
      for n in range(count)
    )
    return await asyncio.gather(*clients)

  parts = asyncio.run(run_all())
  times = np.array([second for part, _ in parts for second in part])
  return times, sum(errors for _, errors in parts)


async def client(
  port: int, bodies: Sequence[bytes], start: float, end: float
) -> tuple[list[float], int]:
  """Sends a request after the other through one connection.

  Returns:
    Seconds of the requests that began after `start`, and the number of errors.
  """
  reader, writer = await asyncio.open_connection('127.0.0.1', port)
  seconds, errors, number = [], 0, 0
  while (began := time.monotonic()) < end:
    body = bodies[number % len(bodies)]
    number += 1
    writer.write(
      b'POST /predict HTTP/1.1\r\nhost: localhost\r\n'
      b'content-length: %d\r\n\r\n%b' % (len(body), body)
    )
    head = await reader.readuntil(b'\r\n\r\n')
    length = re.search(rb'content-length: (\d+)', head)
    await reader.readexactly(int(length[1]))
    errors += not head.startswith(b'HTTP/1.1 200 ')
    if began >= start:
      seconds.append(time.monotonic() - began)
  writer.close()
  return seconds, errors


if __name__ == '__main__':
  app.run(main)
