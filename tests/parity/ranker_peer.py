"""PECOS's XR-Linear on given features and clusters, for test_ranker.py.

  $XJAX_PEERS_DIR/bin/python tests/parity/ranker_peer.py IN.npz OUT.npz

Runs in the peers' environment (peers.sh), so it imports nothing of ours. IN:
train, test and gold as NAME/data, NAME/indices, NAME/indptr and NAME/shape; the
cluster of each label; beam and k. OUT: for each way to choose negatives, the k
best labels of each test document.
"""

import sys

import numpy as np
from pecos.xmc.xlinear.model import XLinearModel
from scipy import sparse


def main(given: str, out: str) -> None:
  arrays = np.load(given, allow_pickle=False)

  def matrix(name):
    parts = [arrays[f'{name}/{part}'] for part in ('data', 'indices', 'indptr')]
    return sparse.csr_matrix(tuple(parts), tuple(arrays[f'{name}/shape']))

  train, test, gold = map(matrix, ('train', 'test', 'gold'))
  parent, k = arrays['parent'], int(arrays['k'])
  ones = np.ones(len(parent), np.float32)
  below = sparse.csc_matrix((ones, (np.arange(len(parent)), parent)))
  above = sparse.csc_matrix(np.ones((below.shape[1], 1), np.float32))
  lists = {}
  for scheme in ('tfn', 'tfn+man'):
    model = XLinearModel.train(
      train,
      gold.tocsc(),
      C=[above, below],
      negative_sampling_scheme=scheme,
      threshold=0.0,
      beam_size=int(arrays['beam']),
      only_topk=k,
      post_processor='l3-hinge',
    )
    found = model.predict(test, beam_size=int(arrays['beam']), only_topk=k)
    ids = np.full((found.shape[0], k), -1)
    for row in range(found.shape[0]):
      part = slice(found.indptr[row], found.indptr[row + 1])
      order = np.argsort(-found.data[part], kind='stable')
      best = found.indices[part][order]
      ids[row, : len(best)] = best
    lists[scheme] = ids
  np.savez(out, **lists)


if __name__ == '__main__':
  main(*sys.argv[1:])
