"""Times napkinXC for metrics.py; runs in the peers' environment.

  python metrics_peer.py IN.npz OUT.npz

IN has indptr, gold, ids [N, 10], weights [L]. OUT gets the seconds of each of
several rounds of four metrics on ranked lists, and their values @1..5.
"""

import sys
import time

from napkinxc import metrics
import numpy as np

K, ROUNDS = 5, 3


def main() -> None:
  """Times P, nDCG, PSP and PSnDCG together."""
  inputs = np.load(sys.argv[1], allow_pickle=False)
  gold = [
    row.tolist() for row in np.split(inputs['gold'], inputs['indptr'][1:-1])
  ]
  lists, weights = inputs['ids'].tolist(), inputs['weights']
  seconds = []
  for _ in range(ROUNDS):
    start = time.perf_counter()
    values = {
      'P@k': metrics.precision_at_k(gold, lists, k=K),
      'nDCG@k': metrics.ndcg_at_k(gold, lists, k=K),
      'PSP@k': metrics.psprecision_at_k(gold, lists, weights, k=K),
      'PSnDCG@k': metrics.psndcg_at_k(gold, lists, weights, k=K),
    }
    seconds.append(time.perf_counter() - start)
  np.savez(sys.argv[2], seconds=seconds, **values)


if __name__ == '__main__':
  main()
