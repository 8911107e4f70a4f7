"""Saves the metrics that other packages print for random problems.

  $XJAX_PEERS_DIR/bin/python tests/parity/metric_peers.py OUT.npz SEED

Runs in the peers' environment (peers.sh), so it imports nothing of ours. OUT
gets each problem (its lists, scores, gold and training labels, ragged) and what
each tool prints for it, PROBLEM/TOOL/METRIC, an entry for every k from 1 on.
"""

import sys
import warnings

from libmultilabel.linear.metrics import get_metrics as linear_metrics
from libmultilabel.nn.metrics import get_metrics as nn_metrics
from napkinxc import metrics as napkinxc
import numpy as np
from pecos.utils.smat_util import Metrics as Pecos
from scipy import sparse
import torch

# Labels from here on have no training document.
SEEN = 0.8
WIDEST = 6  # gold labels of a document


def main(out: str, seed: int) -> None:
  # The problems include 0 / 0, which would warn.
  warnings.simplefilter('ignore')
  rng = np.random.default_rng(seed)
  problems = {
    # name: documents, labels, list lengths, largest k
    'plain': draw(rng, 60, 40, (10, 10), 10),
    'beyond': draw(rng, 60, 40, (6, 6), 10),
    'short': draw(rng, 60, 40, (0, 5), 10),
    'ties': draw(rng, 60, 40, (3, 10), 10, levels=3),
    'wide': draw(rng, 120, 200, (2, 12), 10),
    'dense': draw(rng, 50, 15, (15, 15), 15),
  }
  values = {}
  for name, problem in problems.items():
    values |= {f'{name}/{key}': array for key, array in packed(problem).items()}
    for tool, judge in TOOLS.items():
      # LibMultiLabel takes a score for every label. Where lists have every
      # label, none is missed, and then napkinXC's macro-F1 fails.
      wanted = {'napkinxc': name != 'dense', 'pecos': True}
      if not wanted.get(tool, name == 'dense'):
        continue
      for metric, array in judge(problem).items():
        values[f'{name}/{tool}/{metric}'] = np.asarray(array, np.float64)
  np.savez_compressed(out, **values)


def draw(rng, n_docs, n_labels, lengths, k, levels=None):
  """A problem: lists by score descending, then label ascending.

  With levels, that many distinct scores; else all scores of a list differ.
  """
  common = 1 / np.arange(2, n_labels + 2)
  if lengths[1] < n_labels:
    common[-n_labels // 20 :] = 0  # these are never gold nor listed
  common /= common.sum()

  def some(low, high, p):
    size = min(rng.integers(low, high + 1), np.count_nonzero(p))
    return rng.choice(n_labels, size, replace=False, p=p).tolist()

  seen = np.where(np.arange(n_labels) < SEEN * n_labels, common, 0)
  golds, lists, scores = [], [], []
  for _ in range(n_docs):
    golds.append(some(1, WIDEST, common) if rng.random() > 0.15 else [])
    listed = some(*lengths, likely(common, golds[-1], rng))
    # Scores are multiples of 1/8, exact in float32; one of each list is 0.
    steps = rng.choice(16 * n_labels, len(listed), replace=False)
    steps = steps % levels if levels else steps - steps[len(listed) // 2 :][:1]
    order = sorted(zip(-steps, listed))
    lists.append([label for _, label in order])
    scores.append([-step / 8 for step, _ in order])
  return {
    'train': [some(1, 4, seen / seen.sum()) for _ in range(3 * n_labels)],
    'golds': golds,
    'lists': lists,
    'scores': scores,
    'n_labels': n_labels,
    'k': k,
  }


def likely(common, gold, rng):
  """Probabilities under which a document's gold labels are often listed."""
  p = common.copy()
  p[gold] += rng.random() / 2
  return p / p.sum()


def packed(problem):
  out = {name: np.array(problem[name]) for name in ('n_labels', 'k')}
  for name in ('train', 'golds', 'lists', 'scores'):
    rows = problem[name]
    dtype = np.float32 if name == 'scores' else np.int32
    out[name] = np.array([v for row in rows for v in row], dtype)
    out[f'{name}_indptr'] = np.cumsum([0, *map(len, rows)]).astype(np.int32)
  return out


def matrix(rows, n_labels, values=None):
  """A CSR matrix of rows of labels; ones, or these values."""
  indices = np.array([v for row in rows for v in row], np.int32)
  data = (
    np.ones(len(indices), np.float32)
    if values is None
    else np.array([v for row in values for v in row], np.float32)
  )
  indptr = np.cumsum([0, *map(len, rows)])
  return sparse.csr_matrix((data, indices, indptr), (len(rows), n_labels))


def judge_napkinxc(problem):
  gold, lists, k = problem['golds'], problem['lists'], problem['k']
  train = matrix(problem['train'], problem['n_labels'])
  weights = napkinxc.Jain_et_al_inverse_propensity(train.astype(float))

  def scored(metric, **options):
    return metric(gold, lists, weights, k=k, **options)

  def cut(average):
    firsts = [[ranked[:i] for ranked in lists] for i in range(1, k + 1)]
    return [napkinxc.f1_measure(gold, f, average=average) for f in firsts]

  raw = {'normalize': False}
  return {
    'weights': weights,
    'weights, float32': napkinxc.Jain_et_al_inverse_propensity(train),
    'P': napkinxc.precision_at_k(gold, lists, k=k),
    'R': napkinxc.recall_at_k(gold, lists, k=k),
    'nDCG': napkinxc.ndcg_at_k(gold, lists, k=k),
    'Hit': napkinxc.abandonment_at_k(gold, lists, k=k),
    'PSP': scored(napkinxc.psprecision_at_k),
    'PSP-raw': scored(napkinxc.psprecision_at_k, **raw),
    'PSnDCG': scored(napkinxc.psndcg_at_k),
    'PSDCG': scored(napkinxc.psdcg_at_k),
    'PSR': scored(napkinxc.psrecall_at_k, **raw),
    'PSR-norm': scored(napkinxc.psrecall_at_k),
    'coverage': napkinxc.coverage_at_k(gold, lists, k=k),
    'micro-F1': cut('micro'),
    'macro-F1': cut('macro'),
    # These arrays have five entries whatever k is.
    'macro-P': napkinxc.macro_precision_at_k(gold, lists, k=5),
    'macro-R': napkinxc.macro_recall_at_k(gold, lists, k=5),
  }


def judge_pecos(problem):
  gold = matrix(problem['golds'], problem['n_labels'])
  lists = matrix(problem['lists'], problem['n_labels'], problem['scores'])
  found = Pecos.generate(gold, lists, topk=problem['k'])
  return {'P': found.prec, 'R': found.recall}


def dense(problem):
  shape = len(problem['lists']), problem['n_labels']
  scores, gold = np.zeros(shape), np.zeros(shape, int)
  for row, labels in enumerate(problem['lists']):
    scores[row, labels] = problem['scores'][row]
    gold[row, problem['golds'][row]] = 1
  return scores, gold


def judge_linear(problem):
  scores, gold = dense(problem)
  k = problem['k']
  kinds = {'P': 'P', 'R': 'R', 'RP': 'RP', 'NDCG': 'nDCG'}
  names = [f'{kind}@{i}' for kind in kinds for i in range(1, k + 1)]
  metrics = linear_metrics([*names, 'Micro-F1', 'Macro-F1'], gold.shape[1])
  metrics.update(scores[:7], gold[:7])
  metrics.update(scores[7:], gold[7:])
  found = metrics.compute()
  return {
    ours: [found[f'{theirs}@{i}'] for i in range(1, k + 1)]
    for theirs, ours in kinds.items()
  } | {'micro-F1': found['Micro-F1'], 'macro-F1': found['Macro-F1']}


def judge_nn(problem):
  scores, gold = dense(problem)
  k = problem['k'] - 1  # it refuses k = number of labels
  kinds = ('P', 'R', 'RP', 'nDCG')
  names = [f'{kind}@{i}' for kind in kinds for i in range(1, k + 1)]
  metrics = nn_metrics(0.5, [*names, 'Micro-F1', 'Macro-F1'], gold.shape[1])
  # The sigmoid is nearly linear here, since scores of one list must stay apart.
  probabilities = torch.sigmoid(torch.tensor(scores / 64))
  metrics.update(probabilities, torch.tensor(gold))
  found = metrics.compute()
  return {
    kind: [found[f'{kind}@{i}'] for i in range(1, k + 1)] for kind in kinds
  } | {'micro-F1': found['Micro-F1'], 'macro-F1': found['Macro-F1']}


TOOLS = {
  'napkinxc': judge_napkinxc,
  'pecos': judge_pecos,
  'libmultilabel': judge_linear,
  'libmultilabel-nn': judge_nn,
}


if __name__ == '__main__':
  main(sys.argv[1], int(sys.argv[2]))
