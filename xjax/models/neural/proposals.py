"""Makes the shortlists of a run, by the model that proposes labels."""

import dataclasses
import functools
import pathlib
import tempfile
from typing import Any

from jaxtyping import Float32
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree, TreeInputs
from xjax.data.schema import Corpus, Split
from xjax.models.contract import Config, Run
from xjax.models.linear.classifiers import PartFiles
from xjax.models.linear.dual import Loss, Solver
from xjax.models.neural.proposer import Proposer
from xjax.models.neural.shortlists import FIELD
from xjax.models.scorer import Scorer
from xjax.models.trees.training import fit_tree, proposed_clusters
from xjax.train.batches.candidates import TrainShortlists

_NODES = 'nodes'
# The public code of XR-Transformer has C = 100. With dense vectors, dual
# coordinate descent is then far from its end after 100 epochs.
_SOLVER = Solver(Loss.SQUARED_HINGE, c=1.0, eps=0.1, max_epochs=100)
_UNSEEN = -1.0  # the bias of labels without training documents


def check_proposals(corpus: Corpus, run: Run) -> None:
  """Checks that what proposes labels fits a corpus; writes nothing."""
  shortlist = run.config.model.shortlist
  if shortlist.proposes and process_count() > 1:
    raise ConfigError(
      f'{FIELD}={type(shortlist).__name__}(...): can only be used by one '
      'process; start the run on one host'
    )
  shortlist.check(corpus, run)
  _train_lists(corpus, run)


def fit_shortlist(
  corpus: Corpus, run: Run
) -> tuple[Proposer | None, TrainShortlists | None]:
  """Trains what proposes labels, and makes the shortlists of training.

  None stands for a run that scores all labels, or does so in training.
  """
  proposer = run.config.model.shortlist.fit(corpus, run)
  lists = _train_lists(corpus, run)
  if lists is not None:
    nodes_NK = _train_nodes(corpus, run, proposer)
    # The check made the lists without nodes, which only a trained proposer has.
    lists = dataclasses.replace(lists, nodes_NK=nodes_NK)
  return proposer, lists


def first_rows(
  scorer: Scorer, lists: TrainShortlists, config: Config, corpus: Corpus
) -> tuple[np.ndarray, np.ndarray]:
  """Returns label rows and biases, fitted to the vectors of the level above."""
  split = corpus.splits[TRAIN]
  with Progress('vectors of train'):
    vectors_ND = scorer.vectors(Documents.of(split.documents))
  data = TreeInputs(
    corpus.label_space,
    corpus.trained_gold,
    # The solver of trees reads only sparse rows.
    sparse.csr_array(vectors_ND),
    seed=config.seed,
    workers=max(1, config.data.workers),
  )
  return fitted_rows(data, lists)


def _train_lists(corpus: Corpus, run: Run) -> TrainShortlists | None:
  shortlist = run.config.model.shortlist
  lists = shortlist.train_lists(corpus, run)
  if lists is None:
    return None
  ids = corpus.splits[TRAIN].ids
  return lists.with_room(corpus.trained_gold, ids, f'{FIELD}.{shortlist.room}')


def _train_nodes(
  corpus: Corpus, run: Run, proposer: Proposer | None
) -> np.ndarray:
  split = corpus.splits[TRAIN]
  if proposer is None:
    return np.zeros((len(split), 1), np.int32)  # the root
  if not run.config.model.shortlist.matched:
    return np.zeros((len(split), 0), np.int32)
  return proposed_nodes(run, proposer, split)


def proposed_nodes(run: Run, proposer: Proposer, split: Split) -> np.ndarray:
  """Returns what a model proposes for documents, int32 [N, K] with PAD."""

  # Computing the nodes takes long, so they are saved, and read again later.
  def build() -> Any:
    documents = Documents.of(split.documents)
    title = f'shortlists of {split.name}'
    with Progress(title, len(documents), unit='document') as shown:
      query = Query(proposer.listed, on_block=shown.update)
      ids_GNK, _ = proposer.nodes(documents, query)
    return lambda path: write_npz(path, {_NODES: ids_GNK[0]}, packed=True)

  n, n_nodes = len(split), proposer.scorer.n_labels
  read = functools.partial(_read_nodes, n=n, n_nodes=n_nodes)
  return run.once(run.folder.shortlists, build, read)


def saved_nodes(run: Run, n: int, n_nodes: int) -> np.ndarray:
  """Reads what proposed_nodes has saved for n documents, int32 [N, K]."""
  read = functools.partial(_read_nodes, n=n, n_nodes=n_nodes)
  return run.read(run.folder.shortlists, read)


def _read_nodes(path: pathlib.Path, n: int, n_nodes: int) -> np.ndarray:
  arrays = Arrays.read(path)
  nodes_NK = arrays.take(_NODES, np.int32, (n, None))
  bad = (nodes_NK < PAD) | (nodes_NK >= n_nodes)
  arrays.check(_NODES, bad, f'is not a number below {n_nodes}')
  arrays.finish()
  return nodes_NK


def fitted_rows(
  data: TreeInputs,  # rows are vectors, float32 [N, D]
  lists: TrainShortlists,  # of the documents, with clusters
) -> tuple[Float32[np.ndarray, 'L D'], Float32[np.ndarray, ' L']]:
  """Returns label rows and biases of linear classifiers with the squared hinge.

  The classifier of a label learns from the documents that have a label of the
  same cluster, and from the documents for which this cluster is proposed. A
  label without documents has a row of zeros and the bias -1.
  """
  tree = LabelTree.of_clusters(lists.parent_L, len(lists.children))
  # The rows go into the first checkpoint. Until then, a restart fits them
  # again, so no parts are kept in the workdir.
  matcher = proposed_clusters(lists.nodes_NK) if lists.nodes_NK.size else None
  with tempfile.TemporaryDirectory(prefix='xjax_') as folder:
    parts = PartFiles(pathlib.Path(folder))
    weights = fit_tree(
      data, tree, _SOLVER, parts, lambda: None, matcher, above=False
    )
  n_labels = len(lists.parent_L)
  counts_L = np.bincount(data.gold.values, minlength=n_labels)[:n_labels]
  kernel_LD = np.zeros((n_labels, weights.n_features), np.float32)
  bias_L = np.full(n_labels, _UNSEEN, np.float32)
  label_of = tree.label[1:]  # classifier c is that of node c + 1
  (used,) = np.nonzero((label_of != NO_LABEL) & (counts_L[label_of] > 0))
  features = np.arange(weights.n_features)
  kernel_LD[label_of[used]] = weights.lookup(features, used).T
  bias_L[label_of[used]] = weights.bias[used]
  return kernel_LD, bias_L
