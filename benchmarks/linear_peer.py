"""One peer of linear.py; runs in the peers' environment.

  python linear_peer.py PEER DATA OUT BEAM

DATA is a folder with X_train, Y_train, X_dev and Y_dev, each a .npz as SciPy
saves sparse matrices: rows of float32, and gold of ones. OUT, another one, gets
the model, WAY.npz for every way in which the peer predicts (the scores of its
best 500 labels; fewer where its search ends with fewer) and figures.json:

  seconds     of training alone, what makes its labels' tree included
  before      bytes held before training
  peak        bytes held at most until the model is trained
  predicting  bytes held at most until the first way has been timed
  model       bytes of the model on disk
  ways        way -> milliseconds of a document, predicting 5 and 100 labels
"""

from collections.abc import Callable
import json
import os
import pathlib
import re
import sys
import time

from linear_systems import SYSTEMS, Predict
import numpy as np
from scipy import sparse

TIMED, LISTED = (5, 100), 500  # labels of a document
DOCUMENTS, LEAST = 2000, 5.0  # those timed; seconds of all turns


def main() -> None:
  """Trains, then predicts in every way."""
  name, data, out, beam = sys.argv[1:]
  data, out = pathlib.Path(data), pathlib.Path(out)
  x, y, x_dev = (
    sparse.csr_matrix(sparse.load_npz(data / f'{part}.npz'))
    for part in ('X_train', 'Y_train', 'X_dev')
  )
  system = SYSTEMS[name](out, int(beam))
  system.prepare(x, y)
  figures = {'before': held('VmRSS'), 'ways': {}}
  figures['seconds'] = seconds_of(system.train)
  figures['peak'] = held('VmHWM')
  system.keep()
  files = [path for path in system.kept.rglob('*') if path.is_file()]
  figures['model'] = sum(path.stat().st_size for path in files)
  for way, predict in system.ways():
    figures['ways'][way] = [milliseconds(predict, x_dev, k) for k in TIMED]
    figures.setdefault('predicting', held('VmHWM'))
    lists = matrix(predict(x_dev, LISTED), y.shape[1])
    sparse.save_npz(out / f'{way}.npz', lists)
    part = out / 'figures.part'
    part.write_text(json.dumps(figures))
  os.replace(part, out / 'figures.json')


def milliseconds(predict: Predict, x: sparse.csr_matrix, k: int) -> float:
  """Of a document, where all are given at once; the best of some turns."""
  # napkinXC's search by a beam dies of fewer documents, as of 256.
  x = x[:DOCUMENTS]
  seconds = []
  while sum(seconds) < LEAST:
    seconds.append(seconds_of(lambda: predict(x, k)))
  return 1000 * min(seconds) / x.shape[0]


def seconds_of(call: Callable[[], object]) -> float:
  """Seconds of a call."""
  start = time.perf_counter()
  call()
  return time.perf_counter() - start


def matrix(found: sparse.csr_matrix | list, n_labels: int) -> sparse.csr_matrix:
  """Lists as a matrix, whatever they are."""
  if sparse.issparse(found):
    return sparse.csr_matrix(found)
  pairs = np.array([pair for row in found for pair in row]).reshape(-1, 2)
  indptr = np.cumsum([0, *map(len, found)])
  parts = pairs[:, 1], pairs[:, 0].astype(np.int32), indptr
  return sparse.csr_matrix(parts, (len(found), n_labels))


def held(name: str) -> int:
  """Bytes of this process: now (VmRSS), or at most (VmHWM).

  getrusage's would begin at what the process that started this one held.
  """
  status = pathlib.Path('/proc/self/status').read_text()
  return int(re.search(rf'{name}:\s+(\d+) kB', status)[1]) * 1024


if __name__ == '__main__':
  main()
