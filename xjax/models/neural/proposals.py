"""Makes the shortlists of a run, by the model that proposes labels."""

import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.ranking import Query
from xjax.core.types import PAD
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.schema import Corpus, Split
from xjax.models.contract import Config, Run
from xjax.models.neural.bootstrap import fitted_rows
from xjax.models.neural.level_stages import LEVEL
from xjax.models.neural.proposer import Proposer
from xjax.models.neural.shortlists import FIELD
from xjax.train.batches.candidates import TrainShortlists

_NODES = 'nodes'


@dataclasses.dataclass(frozen=True, eq=False)
class Proposals:
  """Holds what a run needs to score shortlists; by default, all labels."""

  proposer: Proposer | None = None  # None if all labels are scored
  shortlists: TrainShortlists | None = None  # in training; None for all
  start: str = ''  # folder of the run from which parameters are taken, or ''
  bootstraps: bool = False  # whether first_rows are the first label rows


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


def new_proposals(corpus: Corpus, run: Run) -> Proposals:
  """Returns the shortlists of a run, and trains what proposes them."""
  shortlist = run.config.model.shortlist
  proposer = shortlist.fit(corpus, run)
  lists = _train_lists(corpus, run)
  if lists is not None:
    nodes_NK = _train_nodes(corpus, run, proposer)
    lists = dataclasses.replace(lists, nodes_NK=nodes_NK)
  if proposer is None:
    return Proposals(shortlists=lists)
  start = str(run.folder.stage(LEVEL).path) if shortlist.starts else ''
  return Proposals(proposer, lists, start, shortlist.bootstrap)


def saved_proposals(run: Run) -> Proposals:
  """Opens the stage that proposes the shortlists of a finished run."""
  return Proposals(run.config.model.shortlist.open(run))


def first_rows(
  proposals: Proposals, config: Config, corpus: Corpus
) -> tuple[np.ndarray, np.ndarray]:
  """Returns label rows and biases, fitted to the vectors of the level above."""
  split, workers = corpus.splits[TRAIN], max(1, config.data.workers)
  with Progress('vectors of train'):
    documents = Documents.of(split.documents)
    vectors_ND = proposals.proposer.scorer.vectors(documents)
  lists = proposals.shortlists
  return fitted_rows(
    vectors_ND, corpus.trained_gold, lists, config.seed, workers
  )


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
