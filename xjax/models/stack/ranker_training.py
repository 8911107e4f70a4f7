"""Lists labels of training documents by models that have not seen them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import pathlib
import shutil

from absl import logging
import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import DataError
from xjax.core.progress import Progress
from xjax.core.ranking import Lists, Query
from xjax.core.rng import host_generator
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.folds import Fold, make_folds, select_documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.schema import Corpus
from xjax.judge.label_lists import list_length
from xjax.models.contract import Run
from xjax.models.linear.listed import ListedClassifiers
from xjax.models.scorer import Scorer, documents_for
from xjax.models.stack.label_use import LabelUse
from xjax.models.stack.pair_features import LabelFacts
from xjax.models.stack.proposers import ProposerConfig
from xjax.models.stack.ranker import RankerPairs
from xjax.models.stack.stack_pairs import (
  LISTED,
  KnownScores,
  RowsAndDates,
  StackMember,
  StackPairs,
  read_features,
  with_empty_list,
)
from xjax.models.stage import Stage

_CHUNK = 2048  # documents whose pairs are made at a time


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
  members: Mapping[str, Scorer] = dataclasses.field(default_factory=dict)

  @property
  def proposers(self) -> list[ProposerConfig]:
    return [self.run.config.model.proposers[number] for number in self.numbers]

  def check(self) -> None:
    """Raises a DataError if no list can teach the ranker; trains nothing."""
    gold = self.corpus.trained_gold
    n = self.corpus.label_space.n_trained
    counts = np.bincount(gold.values, minlength=n)
    has_gold = has_other = False
    for fold in self.folds:
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

  def data(self) -> RankerPairs:
    """Returns the pairs that the ranker learns from.

    `members` are the proposers that were trained on the whole split train.
    Lists of folds that an earlier start has made are read again.
    """
    names = self._fold_pairs(self.folds[0]).names
    parts = [(np.zeros((0, len(names)), np.float32), np.zeros(0, bool), 0)]
    parts += self._pairs()
    features_XF, gold_X = map(np.concatenate, zip(*(x[:2] for x in parts)))
    fold_X = np.repeat([x[2] for x in parts], [len(x[1]) for x in parts])
    if not 0 < gold_X.sum() < len(gold_X):
      raise DataError(
        f'the ranker has nothing to learn: {gold_X.sum()} of the '
        f'{len(gold_X)} labels that the proposers list are gold; give more '
        'documents, or proposers that list more labels '
        '(config.model.proposers, depth)'
      )
    return RankerPairs(features_XF, gold_X, names, fold_X)

  @functools.cached_property
  def labels(self) -> LabelFacts:
    n_labels = max(x.n_labels for x in self.members.values())
    return LabelFacts.of(self.corpus.label_space, n_labels)

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

  @functools.cached_property
  def folds(self) -> list[Fold]:
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

  def _fold_lists(self, fold: Fold, rows: np.ndarray) -> list[Lists]:
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
      query = Query(
        size,
        tuple(unseen),
        space.allowed,
        details=len(self._details(proposer)),
        on_block=shown.update,
      )
      lists = member.rank(documents, query)
    if not unseen:  # the proposer cannot score unseen labels
      lists = with_empty_list(lists)
    # Labels of the fold's corpus have other numbers, since hidden labels have
    # no documents there.
    ids = lists.ids_GNK
    ids = np.where(ids == PAD, PAD, fold.order[ids]).astype(np.int32)
    arrays = {'ids': ids, 'scores': lists.scores_GNK}
    if lists.details_GNKD is not None:
      arrays['details'] = lists.details_GNKD
    return functools.partial(write_npz, arrays=arrays, packed=True)

  def _reads_names(self, proposer: ProposerConfig) -> bool:
    config = proposer.run_config(self.run.config)
    return config.model.reads_names(config)

  def _details(self, proposer: ProposerConfig) -> tuple[str, ...]:
    chosen = self.run.config.model.features.details
    return proposer.model.detail_names if chosen else ()

  def _read(self, n: int, path: pathlib.Path) -> Lists:
    arrays = Arrays.read(path)
    ids = arrays.take('ids', np.int32, (2, n, None))
    scores = arrays.take('scores', np.float32, ids.shape)
    n_labels = len(self.corpus.label_space)
    bad = (ids < PAD) | (ids >= n_labels)
    arrays.check('ids', bad, f'is not a number below {n_labels}')
    details = None
    if 'details' in arrays.left:
      details = arrays.take('details', np.float32, (*ids.shape, None))
    arrays.finish()
    return Lists(ids, scores, {}, details)

  def _pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yields features, whether the label is gold, and the fold of pairs."""
    hidden = plural(len(self.folds[0].hidden), 'label')
    logging.info('%d folds; %s hidden in each', len(self.folds), hidden)
    linear = self._linear_scores()
    # No training document has the labels that are not trained. So their pairs
    # say nothing about how often such labels are right in other documents.
    judged = self.labels.documents > 0
    for fold, scores in zip(self.folds, linear):
      kept = self._rows(fold)
      lists = self._fold_lists(fold, kept)
      gold = self.corpus.trained_gold.take(kept)
      pairs = dataclasses.replace(self._fold_pairs(fold), linear=scores)
      with Progress('features of pairs', len(gold)) as shown:
        for start in range(0, len(gold), _CHUNK):
          rows = np.arange(start, min(len(gold), start + _CHUNK))
          if scores is not None:
            scores = dataclasses.replace(scores, first=start)
            pairs = dataclasses.replace(pairs, linear=scores)
          days = None if self._days is None else self._days[kept[rows]]
          own = [x.part(rows=rows) for x in lists]
          part = pairs.of_lists(own, read=RowsAndDates(days_N=days))
          inside = judged[part.keys % pairs.n_labels]
          gold_keys = _keys(gold, rows, pairs.n_labels)
          is_gold = np.isin(part.keys[inside], gold_keys)
          yield part.features[inside], is_gold, fold.number
          shown.update(len(rows))

  def _fold_pairs(self, fold: Fold) -> StackPairs:
    """Returns what computes the pairs of a fold from lists."""
    proposers = [
      StackMember(
        None,
        x.depth,
        x.scored,
        self._reads_names(x),
        x.name,
        self._details(x),
      )
      for x in self.proposers
    ]
    # The ranker sees the counts that the proposers of this fold have seen.
    seen = self._seen(fold, self.labels)
    labels = dataclasses.replace(self.labels, documents=seen)
    features = self.run.config.model.features
    nothing = KnownScores(np.zeros(0, np.int64), np.zeros(0, np.float32))
    linear = nothing if self._readers else None
    use = None
    if features.use and self._days is not None:
      use = self._use(fold)
    return StackPairs(proposers, labels, features, linear, use)

  @functools.cached_property
  def _days(self) -> np.ndarray | None:
    """Returns the dates of the training documents, if a proposer knows them."""
    dated = (x.name for x in self.proposers if x.model.knows_dates)
    name = next(dated, None)
    return None if name is None else self.members[name].trained.days_N

  def _use(self, fold: Fold) -> LabelUse:
    """Returns the use of labels in the documents outside of a fold."""
    gold, days_N = self.corpus.trained_gold, self._days.copy()
    days_N[fold.rows] = np.nan
    seen = gold.keep(~np.isin(gold.values, fold.hidden))
    return LabelUse.of(days_N, seen, self._n_labels)

  @property
  def _readers(self) -> dict[str, Scorer]:
    """Returns the proposers whose features the linear classifiers read."""
    names = self.run.config.model.linear.reads
    read_names = (x.name for x in self.proposers if x.name in names)
    return {name: self.members[name] for name in read_names}

  def fit_classifiers(self) -> None:
    """Trains the linear classifiers, if any, on the lists of all folds."""

    def build() -> Callable[[pathlib.Path], None]:
      return self._fit_linear(self.folds).save

    if self._readers:
      self.run.once(listed_path(self.run), build, lambda _: None)

  def _linear_scores(self) -> list[KnownScores | None]:
    """Scores each fold's pairs by linear classifiers of the other folds.

    The other folds' lists, which say for which labels a document counts, are
    of proposers that have learned from this fold.
    """
    if not self._readers:
      return [None] * len(self.folds)
    folder, scores = self.run.folder.model, []
    for fold in self.folds:
      path = folder / f'{_of_fold(fold.number, LISTED)}.npz'
      build = functools.partial(self._score_fold, fold)
      scores.append(self.run.once(path, build, _read_scores))
    return scores

  def _score_fold(self, fold: Fold) -> Callable[[pathlib.Path], None]:
    others = [other for other in self.folds if other is not fold]
    classifiers = self._fit_linear(others, fold.hidden)
    keys, rows = self._listed_pairs(fold), self._rows(fold)
    own = classifiers.scores(self._features[rows], keys, self._n_labels)
    arrays = {'keys': keys, 'scores': own}
    return functools.partial(write_npz, arrays=arrays, packed=True)

  def _fit_linear(
    self, folds: Sequence[Fold], hidden: np.ndarray = ()
  ) -> ListedClassifiers:
    """Trains classifiers of listed labels on folds, without hidden labels."""
    config, keys = self.run.config, []
    for fold in folds:
      row, label = np.divmod(self._listed_pairs(fold), self._n_labels)
      row, label = (x[~np.isin(label, hidden)] for x in (row, label))
      keys.append(self._rows(fold)[row] * np.int64(self._n_labels) + label)
    keys = np.sort(np.concatenate(keys))
    gold = self.corpus.trained_gold
    gold_keys = gold.keep(gold.values < self._n_labels).cells(self._n_labels)
    return config.model.linear.fit(
      self._features,
      keys,
      np.isin(keys, gold_keys),
      self._n_labels,
      seed=config.seed,
      workers=config.train.workers,
      between=self.run.preemption.check,
    )

  @property
  def _n_labels(self) -> int:
    return len(self.labels.words)

  @functools.cached_property
  def _features(self) -> sparse.csr_array:
    """Returns what classifiers read of all training documents."""
    documents = Documents.of_split(self.corpus.splits[TRAIN])
    return read_features(self._readers, documents)

  def _listed_pairs(self, fold: Fold) -> np.ndarray:
    """Returns the listed pairs of a fold; row 0 is its first document."""
    if fold.number not in self._known_pairs:
      lists = self._fold_lists(fold, self._rows(fold))
      pairs = self._fold_pairs(fold).usual_keys(lists)
      self._known_pairs[fold.number] = pairs
    return self._known_pairs[fold.number]

  @functools.cached_property
  def _known_pairs(self) -> dict[int, np.ndarray]:
    return {}


def listed_path(run: Run) -> pathlib.Path:
  """Returns the file of the linear classifiers."""
  return run.folder.model / f'{LISTED}.npz'


def _read_scores(path: pathlib.Path) -> KnownScores:
  arrays = Arrays.read(path)
  keys = arrays.take('keys', np.int64, (None,))
  scores = arrays.take('scores', np.float32, keys.shape)
  arrays.finish()
  return KnownScores(keys, scores)


def _keys(gold: Ragged, rows: np.ndarray, n_labels: int) -> np.ndarray:
  part = gold.take(rows)
  return part.keep(part.values < n_labels).cells(n_labels)
