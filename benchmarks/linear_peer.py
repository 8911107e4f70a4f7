"""Runs one peer of linear.py, in the peers' environment.

  python linear_peer.py PEER DATA OUT BEAM

DATA is a folder with X_train, Y_train, X_dev and Y_dev: sparse matrices that
SciPy saved as .npz, with float32 rows, and gold as ones. The folder OUT gets
the model, a file WAY.npz for every way of predicting (the scores of the best
500 labels, or of all labels that its search reaches) and figures.json:

  seconds     seconds of training, including the label tree
  before      memory in bytes before training
  peak        peak memory in bytes until the model is trained
  predicting  peak memory in bytes until the first way has been timed
  model       bytes of the model on disk
  ways        way -> milliseconds per document, predicting 5 and 100 labels
"""

import json
import os
import pathlib
import sys

from linear_systems import SYSTEMS, Predict
from measurement import memory, seconds_of
import numpy as np
from scipy import sparse

TIMED, LISTED = (5, 100), 500  # labels per document
DOCUMENTS, LEAST = 2000, 5.0  # documents timed; least seconds of all turns


def main() -> None:
  """Trains a peer, then predicts in every way."""
  name, data, out, beam = sys.argv[1:]
  data, out = pathlib.Path(data), pathlib.Path(out)
  x, y, x_dev = (
    sparse.csr_matrix(sparse.load_npz(data / f'{part}.npz'))
    for part in ('X_train', 'Y_train', 'X_dev')
  )
  system = SYSTEMS[name](out, int(beam))
  system.prepare(x, y)
  figures = {'before': memory('VmRSS'), 'ways': {}}
  figures['seconds'] = seconds_of(system.train)
  figures['peak'] = memory('VmHWM')
  system.keep()
  files = [path for path in system.kept.rglob('*') if path.is_file()]
  figures['model'] = sum(path.stat().st_size for path in files)
  for way, predict in system.ways():
    figures['ways'][way] = [milliseconds(predict, x_dev, k) for k in TIMED]
    figures.setdefault('predicting', memory('VmHWM'))
    lists = matrix(predict(x_dev, LISTED), y.shape[1])
    sparse.save_npz(out / f'{way}.npz', lists)
    part = out / 'figures.part'
    part.write_text(json.dumps(figures))
  os.replace(part, out / 'figures.json')


def milliseconds(predict: Predict, x: sparse.csr_matrix, k: int) -> float:
  """Returns milliseconds per document, for all at once, in the best turn."""
  # napkinXC's beam search crashes with fewer documents, for example 256.
  x = x[:DOCUMENTS]
  seconds = []
  while sum(seconds) < LEAST:
    seconds.append(seconds_of(lambda: predict(x, k)))
  return 1000 * min(seconds) / x.shape[0]


def matrix(lists: sparse.csr_matrix | list, n_labels: int) -> sparse.csr_matrix:
  """Returns lists as a matrix; they are a matrix or lists of pairs."""
  if sparse.issparse(lists):
    return sparse.csr_matrix(lists)
  pairs = np.array([pair for row in lists for pair in row]).reshape(-1, 2)
  indptr = np.cumsum([0, *map(len, lists)])
  parts = pairs[:, 1], pairs[:, 0].astype(np.int32), indptr
  return sparse.csr_matrix(parts, (len(lists), n_labels))


if __name__ == '__main__':
  main()
