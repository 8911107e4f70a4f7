r"""Compares exact search of a label tree with beam search of several widths.

  python benchmarks/tree_search.py --workdir=DIR [--split=dev --documents=2000]

DIR is a finished run of a label tree. The benchmark searches its first tree, in
one thread, for the best 5 and the best 100 labels by score and, if scores are
probabilities, by score times inverse propensity. It prints milliseconds per
document (the best of three turns after one that compiles); the nodes that were
opened (twice if they are in the first beam of an exact search), and the number
for a full scan; the share of documents whose list is not exact; and the share
of the exact lists' labels that are missed. It takes some minutes if nothing
else runs. It exits with 1 if exact search opens as many nodes as a full scan.
"""

from collections.abc import Callable
import pathlib
import sys
import time

from absl import app, flags
import numpy as np
from scipy import sparse

from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.load import load_corpus
from xjax.data.schema import propensity_weights
from xjax.models.features import open_featuriser
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.dual import Loss
from xjax.models.trees.sparse_model import load_tree
from xjax.models.trees.tree_search import Link, SearchResult, TreeSearch
from xjax.run.open_run import OpenRun, open_run

BEAMS, KS = (1, 5, 10, 20, 50), (5, 100)
BATCH, TURNS = 256, 3

_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run.', required=True
)
_SPLIT = flags.DEFINE_string('split', 'dev', 'Split of the documents.')
_DOCUMENTS = flags.DEFINE_integer(
  'documents', 2000, 'Maximum number of documents.', 1
)


def main(argv: list[str]) -> None:
  """Searches in all ways and prints the tables."""
  del argv
  workdir = pathlib.Path(_WORKDIR.value)
  run = open_run(workdir)
  tree, weights = load_tree(workdir / 'model' / 'tree_0.npz')
  probable = run.config.train.loss is Loss.LOGISTIC
  link = Link.SIGMOID if probable else Link.L3_HINGE
  search, rows = TreeSearch(tree, weights, link), documents(run, weights)
  scan = len(tree.inner)
  print(f'{rows.shape[0]} documents; {tree}; a full scan opens {scan} nodes')
  ways = {'score': None}
  if probable:  # margins cannot be multiplied by inverse propensities
    ways['score times inverse propensity'] = np.log(inverse_propensities(run))
  opened = [
    compare(search, rows, k, name, logs)
    for k in KS
    for name, logs in ways.items()
  ]
  sys.exit(int(max(opened) >= scan))


def documents(run: OpenRun, weights: BlockWeights) -> sparse.csr_array:
  """Returns the features of the documents."""
  config, split = run.config, _SPLIT.value
  corpus = load_corpus(config.data, config.seed, run.space, [split])
  documents = Documents.of_split(corpus.split(split))
  first = documents.part(np.arange(min(len(documents), _DOCUMENTS.value)))
  featurise = open_featuriser(run.run, weights.n_features)
  return featurise.in_chunks(first, 'features of documents')


def inverse_propensities(run: OpenRun) -> np.ndarray:
  """Returns inverse propensities of the trained labels, float64."""
  space = run.space
  counts = space.train_counts[: space.n_trained]
  return propensity_weights(counts, space.n_train, *run.config.eval.propensity)


def compare(
  search: TreeSearch,
  rows: sparse.csr_array,
  k: int,
  name: str,
  log_weights_L: np.ndarray | None,
) -> float:
  """Prints a line per way; returns the nodes that exact search opens."""
  print(f'\nbest {k} labels by {name}')
  print(f'{"":8}{"ms":>9}{"opened":>9}{"not exact":>11}{"labels missed":>15}')
  exact, ms = time_search(
    lambda part: search.exact(part, k, log_weights_L), rows
  )
  opened = float(exact.opened.mean())
  print(f'{"exact":8}{ms:9.3f}{opened:9.1f}')
  for beam in BEAMS:
    result, ms = time_search(
      lambda part, beam=beam: search.beam(part, k, beam, log_weights_L), rows
    )
    missed_N = np.array([missed(*ids) for ids in zip(exact.ids, result.ids)])
    print(
      f'{f"beam {beam}":8}{ms:9.3f}{result.opened.mean():9.1f}'
      f'{(missed_N > 0).mean():11.2%}{missed_N.mean():15.3%}'
    )
  return opened


def missed(exact_K: np.ndarray, found_K: np.ndarray) -> float:
  """Returns the share of exact labels that are not in `found_K`."""
  exact_K = exact_K[exact_K != PAD]
  return 1 - np.isin(exact_K, found_K).mean()


def time_search(
  run: Callable[[sparse.csr_array], SearchResult], rows: sparse.csr_array
) -> tuple[SearchResult, float]:
  """Searches batch by batch; returns results and milliseconds per document."""
  parts = [rows[i : i + BATCH] for i in range(0, rows.shape[0], BATCH)]
  seconds = []
  for _ in range(1 + TURNS):
    start = time.perf_counter()
    results = [run(part) for part in parts]
    seconds.append(time.perf_counter() - start)
  milliseconds = 1000 * min(seconds[1:]) / rows.shape[0]
  return SearchResult.concatenate(results), milliseconds


if __name__ == '__main__':
  app.run(main)
