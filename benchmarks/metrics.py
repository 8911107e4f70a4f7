"""Times judging 100,000 documents x 670,000 labels against napkinXC.

  python benchmarks/metrics.py        (some minutes, nothing else running)

Lists have 10 labels; documents have about 5.5 gold labels, and one document has
many. Labels are drawn by Zipf's law. Each part runs in its own process, on two
cores:
  P, nDCG, PSP and PSnDCG @1..5 together, against napkinXC on the same ranked
  lists, and against the time to look up the weight of every listed and gold
  label once, which every propensity metric needs;
  every metric with intervals of 1,000 bootstrap replicates;
  every metric of 1,000,000 documents x 3,000,000 labels: peak memory.
Prints seconds and memory; exits with 1 if a bound is missed.
"""

import sys
import time

from absl import app, flags
from measurement import (
  HERE,
  memory,
  outputs_of,
  peer_python,
  seconds_of,
  use_cores,
)
import numpy as np

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.criteria import Criteria
from xjax.judge.judge import judge
from xjax.judge.label_lists import LabelLists
from xjax.judge.metrics.protocols import NAPKINXC
from xjax.judge.predictions import Predictions

KS = (1, 2, 3, 4, 5)
KINDS = ('P@k', 'nDCG@k', 'PSP@k', 'PSnDCG@k')
DEPTH, GOLD, WIDEST = 10, 5.5, 2000
SIZES = {'usual': (100_000, 670_000), 'large': (1_000_000, 3_000_000)}
# Share of napkinXC's seconds; seconds; GiB.
RATIO_BOUND, BOOTSTRAP_BOUND, MEMORY_BOUND = 0.1, 60.0, 4.0

_PART = flags.DEFINE_enum(
  'part',
  None,
  ['limit', 'ours', 'bootstrap', 'large'],
  'Run only this part; the arguments are IN.npz, which is empty, and OUT.npz.',
)


def main(argv: list[str]) -> None:
  """Runs all parts and compares."""
  use_cores(2)
  if _PART.value:
    np.savez(argv[2], **PARTS[_PART.value]())
    return
  ours = [sys.executable, __file__, '--part']
  outputs = {part: outputs_of([*ours, part]) for part in PARTS}
  peer = [peer_python(), HERE / 'metrics_peer.py']
  outputs['napkinXC'] = outputs_of(peer, **problem(*SIZES['usual']))
  sys.exit(report(outputs))


def problem(n_docs: int, n_labels: int) -> dict[str, np.ndarray]:
  """Draws ranked lists and gold by Zipf's law, with some gold in each list."""
  rng = np.random.default_rng(0)

  def zipf(n: int) -> np.ndarray:
    labels = np.exp(rng.random(n) * np.log(n_labels)) - 1
    return np.minimum(labels, n_labels - 1).astype(np.int64)

  lengths = rng.poisson(GOLD, n_docs)
  lengths[0] = WIDEST
  owners = np.repeat(np.arange(n_docs), lengths)
  pairs = np.unique(owners * n_labels + zipf(len(owners)))
  lengths = np.bincount(pairs // n_labels, minlength=n_docs)
  indptr = np.concatenate([[0], np.cumsum(lengths)])
  gold = (pairs % n_labels).astype(np.int32)
  ids = zipf(n_docs * DEPTH).reshape(n_docs, DEPTH).astype(np.int32)
  for place in range(3):
    has = lengths > place
    ids[has, 2 * place] = gold[indptr[:-1][has] + place]
  while (duplicates := find_repeated(ids)).any():
    ids[duplicates] = rng.integers(0, n_labels, int(duplicates.sum()))
  train = np.maximum(1e6 / np.arange(1, n_labels + 1), 1).astype(np.int32)
  weights = 1 + 20 * (train + 1.5) ** -0.55
  return {
    'indptr': indptr,
    'gold': gold,
    'ids': ids,
    'train': train,
    'weights': weights,
  }


def find_repeated(ids: np.ndarray) -> np.ndarray:
  """Returns True for entries that occur earlier in their row."""
  order = np.argsort(ids, axis=1, kind='stable')
  ranked = np.take_along_axis(ids, order, 1)
  again = np.zeros(ids.shape, bool)
  again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
  is_repeat = np.zeros(ids.shape, bool)
  np.put_along_axis(is_repeat, order, again, 1)
  return is_repeat


def predictions(arrays: dict[str, np.ndarray], n_train: int) -> Predictions:
  """Returns the problem as predictions; n_train 0: only the slice of all."""
  n_docs, n_labels = len(arrays['ids']), len(arrays['train'])
  scores = np.linspace(0.9, 0.1, DEPTH, dtype=np.float32)
  return Predictions(
    score_kind=ScoreKind.PROBABILITY,
    n_scored=n_labels,
    n_train=n_train,
    doc_ids=range(n_docs),
    labels=range(n_labels),
    train_counts=arrays['train'],
    lists={
      'all': LabelLists(
        arrays['ids'], np.broadcast_to(scores, arrays['ids'].shape)
      )
    },
    gold=Ragged(arrays['indptr'], arrays['gold']),
  )


def limit() -> dict[str, object]:
  """Returns the seconds to look up every weight once."""
  arrays = problem(*SIZES['usual'])
  listed, weights = arrays['ids'][:, : max(KS)].ravel(), arrays['weights']

  def look_up() -> float:
    return weights[listed].sum() + weights[arrays['gold']].sum()

  return {'seconds': [seconds_of(look_up) for _ in range(10)]}


def ours() -> dict[str, object]:
  """Returns the seconds of the four metrics together, and their values."""
  arrays = problem(*SIZES['usual'])
  judged = predictions(arrays, 0)
  # With napkinXC's conventions, so that the values can be compared.
  criteria = Criteria(KS, KINDS, (NAPKINXC,), weights_L=arrays['weights'])
  values = judge(judged, criteria)[NAPKINXC.name]['all']
  return {
    'seconds': [seconds_of(lambda: judge(judged, criteria)) for _ in range(10)],
    **{
      kind: [values[kind.replace('@k', f'@{k}')] for k in KS] for kind in KINDS
    },
  }


def bootstrap() -> dict[str, object]:
  """Returns the seconds of all metrics with intervals."""
  judged = predictions(problem(*SIZES['usual']), 10**6)
  start = time.perf_counter()
  metrics = judge(judged, Criteria((1, 3, 5), replicates=1000))
  seconds = time.perf_counter() - start
  return {
    'seconds': seconds,
    'metrics': len(metrics['intervals']['xjax']['all']),
    'slices': len(metrics['xjax']),
    'peak': memory('VmHWM'),
  }


def large() -> dict[str, object]:
  """Returns the peak memory of all metrics, including the problem itself."""
  judged = predictions(problem(*SIZES['large']), 10**6)
  start = time.perf_counter()
  metrics = judge(judged, Criteria((1, 3, 5)))
  seconds = time.perf_counter() - start
  slices = metrics['xjax']
  return {'seconds': seconds, 'slices': len(slices), 'peak': memory('VmHWM')}


PARTS = {'limit': limit, 'ours': ours, 'bootstrap': bootstrap, 'large': large}


def report(outputs: dict[str, dict[str, np.ndarray]]) -> int:
  """Prints the comparison; returns the exit status."""
  for kind in KINDS:
    np.testing.assert_allclose(
      outputs['ours'][kind], outputs['napkinXC'][kind], atol=1e-9, err_msg=kind
    )
  seconds = {
    name: float(np.median(outputs[name]['seconds']))
    for name in ('limit', 'ours', 'napkinXC')
  }
  print(f'looking up every weight  {seconds["limit"]:.4f} s')
  for name in ('ours', 'napkinXC'):
    rounds = outputs[name]['seconds']
    print(
      f'P nDCG PSP PSnDCG @1..5, {name:9} {seconds[name]:.4f} s '
      f'({rounds.min():.4f} - {rounds.max():.4f}; '
      f'{seconds[name] / seconds["limit"]:.1f} x the look-up)'
    )
  sampled, big = outputs['bootstrap'], outputs['large']
  print(
    f'{int(sampled["metrics"])} metrics with 1,000 replicates, '
    f'{int(sampled["slices"])} slices: '
    f'{float(sampled["seconds"]):.1f} s, peak '
    f'{float(sampled["peak"]) / 2**30:.2f} GiB'
  )
  print(
    f'1,000,000 documents x 3,000,000 labels, {int(big["slices"])} slices: '
    f'{float(big["seconds"]):.1f} s, peak {float(big["peak"]) / 2**30:.2f} GiB'
  )
  bounds = [
    ('ratio to napkinXC', seconds['ours'] / seconds['napkinXC'], RATIO_BOUND),
    ('bootstrap seconds', float(sampled['seconds']), BOOTSTRAP_BOUND),
    ('GiB of the large case', float(big['peak']) / 2**30, MEMORY_BOUND),
  ]
  for name, value, bound in bounds:
    verdict = 'ok' if value <= bound else 'MISSED'
    print(f'{name} {value:.3f} (bound {bound}): {verdict}')
  return int(any(value > bound for _, value, bound in bounds))


if __name__ == '__main__':
  app.run(main)
