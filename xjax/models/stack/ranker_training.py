"""Lists labels of training documents by models that have not seen them."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import pathlib
import shutil

from absl import logging
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.ranking import Query
from xjax.core.rng import host_generator
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.folds import Fold, make_folds, select_documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.schema import Corpus
from xjax.judge.label_lists import list_length
from xjax.models.contract import Run
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.boosted import RankerPairs
from xjax.models.stack.pair_features import LabelFacts, feature_names
from xjax.models.stack.proposers import ProposerConfig
from xjax.models.stack.stack_pairs import (
  StackMember,
  StackPairs,
  with_empty_list,
)
from xjax.models.stage import Stage

_CHUNK = 2048  # documents whose pairs are made at a time

ProposedLists = tuple[np.ndarray, np.ndarray]  # ids_GNK, scores_GNK


def proposer_stage(run: Run, number: int, fold: int | None = None) -> Stage:
  """Returns the stage of a proposer, which does not learn from `fold`."""
  proposer = run.config.model.proposers[number]
  path, name = f'config.model.proposers[{number}]', proposer.name
  if fold is None:
    return Stage(proposer, run, name, path)
  # A fold may have no document with some zone.
  return Stage(proposer, run, _of_fold(fold, name), path, checks_zones=False)


def _of_fold(fold: int, proposer: str) -> str:
  """Returns the name of the stage and the lists of a proposer and a fold."""
  return f'fold_{fold}_{proposer}'


def train_proposer(
  stage: Stage, others: Sequence[Stage], corpus: Corpus
) -> Scorer:
  """Trains a proposer, or resumes its training."""
  folder, model = stage.own.folder, stage.config.model
  # Stages that read the same features share what does not depend on labels.
  for name in model.label_independent_files:
    path = folder.path / name
    for other in others:
      source = other.own.folder.path / name
      alike = model.same_files(stage.config, other.config)
      if not path.exists() and alike and source.exists():
        with folder.recording(path):
          _copy(source, path)
  return stage.train(corpus)


def _copy(source: pathlib.Path, path: pathlib.Path) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  # Renamed at the end, so that a killed run leaves no half file.
  temporary = path.with_name(f'.{path.name}.copy')
  shutil.copyfile(source, temporary)
  temporary.replace(path)


@dataclasses.dataclass(frozen=True, eq=False)
class RankerTraining:
  """Makes and reads the lists that the ranker of a stack learns from."""

  run: Run
  corpus: Corpus
  numbers: Sequence[int]  # of the proposers that are not left out

  @property
  def proposers(self) -> list[ProposerConfig]:
    return [self.run.config.model.proposers[number] for number in self.numbers]

  def check(self) -> None:
    """Raises a DataError if no list can teach the ranker; trains nothing."""
    gold = self.corpus.trained_gold
    n = self.corpus.label_space.n_trained
    counts = np.bincount(gold.values, minlength=n)
    has_gold = has_other = False
    for fold in self._folds():
      inside = gold.take(fold.rows)
      seen = counts > np.bincount(inside.values, minlength=n)
      if not seen[np.setdiff1d(np.arange(n), fold.hidden)].any():
        raise DataError(
          'too few documents have labels: without a fold of the '
          f'{self.run.config.model.folds}, there is nothing to learn'
        )
      listed = counts > 0 if self._names_are_read else seen
      right = inside.keep(listed[inside.values])
      has_gold |= bool(len(right.values))
      has_other |= bool((right.lengths < listed.sum()).any())
    if not (has_gold and has_other):
      every = 'no' if has_other else 'every'
      raise DataError(
        f'the ranker has nothing to learn: {every} label that the proposers '
        'may list is right; give more documents per label, or more labels'
      )

  @property
  def _names_are_read(self) -> bool:
    return any(map(self._reads_names, self.proposers))

  def data(self, n_labels: int) -> RankerPairs:
    """Returns the pairs that the ranker learns from.

    The proposers that were trained on the whole split train score `n_labels`
    labels. Lists of folds that an earlier start has made are read again.
    """
    features = self.run.config.model.features
    labels = LabelFacts.of(self.corpus.label_space, n_labels)
    names = feature_names(features, [x.name for x in self.proposers])
    parts = [(np.zeros((0, len(names)), np.float32), np.zeros(0, bool))]
    parts += self._pairs(labels)
    features_XF, gold_X = map(np.concatenate, zip(*parts))
    if not 0 < gold_X.sum() < len(gold_X):
      raise DataError(
        f'the ranker has nothing to learn: {gold_X.sum()} of the '
        f'{len(gold_X)} labels that the proposers list are gold; give more '
        'documents, or proposers that list more labels '
        '(config.model.proposers, depth)'
      )
    return RankerPairs(features_XF, gold_X, names)

  def _seen(self, fold: Fold, labels: LabelFacts) -> np.ndarray:
    """Returns in how many documents the models of a fold have seen a label."""
    gold = self.corpus.trained_gold
    in_fold = np.zeros(len(gold), bool)
    in_fold[fold.rows] = True
    # Documents of the fold would say whether a rare label is gold. So only the
    # others count, scaled to the size of the split train.
    outside = gold.values[~np.repeat(in_fold, gold.lengths)]
    counts = np.bincount(outside, minlength=len(labels.documents))
    counts = counts[: len(labels.documents)] * len(gold) / (~in_fold).sum()
    counts[fold.hidden] = 0
    return counts

  def _folds(self) -> list[Fold]:
    model = self.run.config.model
    # Hidden labels teach the ranker nothing if no proposer can list them.
    share = model.hidden if self._names_are_read else None
    return make_folds(self.corpus, model.folds, share, self.run.config.seed)

  def _rows(self, fold: Fold) -> np.ndarray:
    most = -(-self.run.config.model.documents // self.run.config.model.folds)
    if len(fold.rows) <= most:
      return fold.rows
    # A generator of its own for each fold, so that a resumed run draws the same
    # documents.
    rng = host_generator(self.run.config.seed, 'ranked', fold.number)
    # Sorted, so that documents are read in the order of their file.
    return np.sort(rng.choice(fold.rows, most, replace=False))

  def _fold_lists(self, fold: Fold, rows: np.ndarray) -> list[ProposedLists]:
    run, lists = self.run, []
    # Made only if a proposer is trained; a resumed run may need none.
    corpus = functools.cache(lambda: fold.corpus(self.corpus))
    read = functools.partial(self._read, len(rows))
    for number, proposer in zip(self.numbers, self.proposers):
      name = _of_fold(fold.number, proposer.name)
      build = functools.partial(self._list_fold, number, fold, rows, corpus)
      lists.append(run.once(run.folder.model / f'{name}.npz', build, read))
      # The lists are saved now, and the models of folds are not needed again.
      shutil.rmtree(run.folder.stage(name).path, ignore_errors=True)
    return lists

  def _list_fold(
    self,
    number: int,
    fold: Fold,
    rows: np.ndarray,
    corpus: Callable[[], Corpus],
  ) -> Callable[[pathlib.Path], None]:
    """Trains a proposer without a fold, and returns what writes its lists."""
    stage = proposer_stage(self.run, number, fold.number)
    whole = proposer_stage(self.run, number)
    # The features of the whole split serve all folds: they do not depend on
    # labels.
    member = train_proposer(stage, [whole], corpus())
    no_gold = Ragged.of([()] * len(rows))
    # Without gold, so that no list can depend on it.
    part = select_documents(self.corpus.splits[TRAIN], rows, no_gold)
    # As the split train, without which a corpus cannot be cut.
    parts = self.corpus.label_space, {TRAIN: part}, self.corpus.fingerprint
    part = stage.corpus(Corpus(*parts)).splits[TRAIN]
    proposer, space = stage.settings, corpus().label_space
    size = list_length(proposer.scored, member.n_labels)
    unseen = [space.train_counts == 0] if self._reads_names(proposer) else []
    documents = documents_for(member, Documents.of_split(part))
    logging.info('%s lists labels of %d documents', stage.name, len(part))
    title = f'lists of {stage.name}'
    with Progress(title, len(part), unit='document') as shown:
      query = Query(size, tuple(unseen), space.allowed, on_block=shown.update)
      lists = member.rank(documents, query)
    ids, scores = lists.ids_GNK, lists.scores_GNK
    if not unseen:  # the proposer cannot score unseen labels
      ids, scores = with_empty_list(ids, scores)
    # Labels of the fold's corpus have other numbers, since hidden labels have
    # no documents there.
    ids = np.where(ids == PAD, PAD, fold.order[ids]).astype(np.int32)
    arrays = {'ids': ids, 'scores': scores}
    return functools.partial(write_npz, arrays=arrays, packed=True)

  def _reads_names(self, proposer: ProposerConfig) -> bool:
    config = proposer.run_config(self.run.config)
    return config.model.reads_names(config)

  def _read(self, n: int, path: pathlib.Path) -> ProposedLists:
    arrays = Arrays.read(path)
    ids = arrays.take('ids', np.int32, (2, n, None))
    scores = arrays.take('scores', np.float32, ids.shape)
    n_labels = len(self.corpus.label_space)
    bad = (ids < PAD) | (ids >= n_labels)
    arrays.check('ids', bad, f'is not a number below {n_labels}')
    arrays.finish()
    return ids, scores

  def _pairs(
    self, labels: LabelFacts
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields features, and whether the label is gold, of some pairs."""
    # No training document has the labels that are not trained. So their pairs
    # say nothing about how often such labels are right in other documents.
    judged = labels.documents > 0
    proposers = [
      StackMember(None, x.depth, x.scored, self._reads_names(x))
      for x in self.proposers
    ]
    folds = self._folds()
    hidden = plural(len(folds[0].hidden), 'label')
    logging.info('%d folds; %s hidden in each', len(folds), hidden)
    for fold in folds:
      kept = self._rows(fold)
      lists = self._fold_lists(fold, kept)
      gold = self.corpus.trained_gold.take(kept)
      # The ranker sees the counts that the proposers of this fold have seen.
      seen = dataclasses.replace(labels, documents=self._seen(fold, labels))
      pairs = StackPairs(proposers, seen, self.run.config.model.features)
      with Progress('features of pairs', len(gold)) as shown:
        for start in range(0, len(gold), _CHUNK):
          rows = np.arange(start, min(len(gold), start + _CHUNK))
          part = pairs.of_lists([(x[:, rows], y[:, rows]) for x, y in lists])
          inside = judged[part.keys % pairs.n_labels]
          gold_keys = _keys(gold, rows, pairs.n_labels)
          yield part.features[inside], np.isin(part.keys[inside], gold_keys)
          shown.update(len(rows))


def _keys(gold: Ragged, rows: np.ndarray, n_labels: int) -> np.ndarray:
  part = gold.take(rows)
  return part.keep(part.values < n_labels).cells(n_labels)
