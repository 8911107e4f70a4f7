"""Lists labels of training documents by models that have not seen them."""

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
import shutil

from absl import logging
import numpy as np

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.distributed import rank_documents
from xjax.core.errors import DataError
from xjax.core.progress import Progress, progress
from xjax.core.rng import host_generator
from xjax.core.types import PAD, Ragged
from xjax.data.files.faults import plural
from xjax.data.folds import Fold, make_folds, part_of
from xjax.data.formats.draft import TRAIN
from xjax.data.schema import Corpus, LabelSpace, Split
from xjax.judge.predictions import list_length
from xjax.models.config import Config
from xjax.models.load import DEV
from xjax.models.predictor import Predictor, describes
from xjax.models.staged.rankers.pair_features import (
  LabelFacts,
  PairFeatures,
  feature_names,
)
from xjax.models.staged.rankers.ranker import RankerData
from xjax.models.staged.stack_config import Lesson, ProposerConfig
from xjax.models.staged.stack_scorer import (
  Proposer,
  StackPairs,
  with_empty_list,
)
from xjax.models.staged.stage import Stage
from xjax.models.workdir import Workdir
from xjax.train.preemption import Preemption

_CHUNK = 2048  # documents whose pairs are made at a time

ProposedLists = tuple[np.ndarray, np.ndarray]  # ids_GNK, scores_GNK


def proposer_stage(
  config: Config, folder: Workdir, number: int, name: str = ''
) -> Stage:
  """Returns the stage of a proposer.

  Args:
    config: config of the run.
    folder: workdir of the run.
    number: number of the proposer in config.model.proposers.
    name: name of the stage; '' stands for the name of the proposer.
  """
  proposer = config.model.proposers[number]
  path = f'config.model.proposers[{number}]'
  return Stage(proposer, config, folder, name or proposer.name, path)


def train_proposer(
  stage: Stage, others: Sequence[Stage], corpus: Corpus, preemption: Preemption
) -> Predictor:
  """Trains a proposer, or resumes its training.

  Args:
    stage: the stage of the proposer.
    others: finished stages. If one of them reads the same features, its files
      that do not depend on labels are copied first.
    corpus: the corpus of the stage.
    preemption: notices SIGTERM and Ctrl-C; its context has been entered.
  """
  target = stage.run.workdir
  for name in stage.run.label_free:
    path = target.path / name
    for other in others:
      source = other.run.workdir.path / name
      alike = stage.run.shares_files(other.run)
      if not path.exists() and alike and source.exists():
        with target.recording(path):
          _copy(source, path)
  return stage.train(corpus, preemption)


def _copy(source: pathlib.Path, path: pathlib.Path) -> None:
  """Copies a file; the copy appears only when it is complete."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.copy')
  shutil.copyfile(source, temporary)
  temporary.replace(path)


@dataclasses.dataclass(frozen=True, eq=False)
class Lessons:
  """Makes and reads the lists that the ranker of a stack learns from.

  Attributes:
    config: config of the run.
    folder: workdir of the run.
    corpus: corpus of the run.
    numbers: numbers of the proposers in config.model.proposers, without those
      that are left out.
  """

  config: Config
  folder: Workdir
  corpus: Corpus
  numbers: Sequence[int]

  @property
  def proposers(self) -> list[ProposerConfig]:
    """Returns the proposers, without those that are left out."""
    return [self.config.model.proposers[number] for number in self.numbers]

  def data(
    self, members: dict[str, Predictor], preemption: Preemption
  ) -> RankerData:
    """Returns the pairs that the ranker learns from.

    Lists of folds that an earlier start has made are read again.

    Args:
      members: models that were trained on the whole split train, by name.
      preemption: notices SIGTERM and Ctrl-C; its context has been entered.

    Raises:
      DataError: no listed label is gold, or all are; or a file is damaged.
    """
    model = self.config.model
    n_labels = max(member.n_labels for member in members.values())
    labels = LabelFacts.of(self.corpus.label_space, n_labels)
    parts = list(self._parts(members, labels, preemption))
    names = feature_names(model.features, [x.name for x in self.proposers])
    gold_X = np.concatenate([np.zeros(0, bool), *(x.gold_X for x in parts)])
    if not 0 < gold_X.sum() < len(gold_X):
      raise DataError(
        f'the ranker has nothing to learn: {gold_X.sum()} of the '
        f'{len(gold_X)} labels that the proposers list are gold; give more '
        'documents, or proposers that list more labels '
        '(config.model.proposers, depth)'
      )
    return RankerData(
      np.concatenate([part.features_XF for part in parts]),
      gold_X,
      np.concatenate([part.lengths_N for part in parts]),
      names,
    )

  def _parts(
    self,
    members: dict[str, Predictor],
    labels: LabelFacts,
    preemption: Preemption,
  ) -> Iterator[RankerData]:
    """Yields the pairs of some documents after the other."""
    # No training document has the labels that are not trained. So their pairs
    # say nothing about how often such labels are right in other documents.
    judged = labels.documents > 0
    if self.config.model.lesson is Lesson.DEV:
      split, space = self.corpus.split(DEV), self.corpus.label_space
      judged = np.ones(len(judged), bool)
      judged[space.held_out[space.held_out < len(judged)]] = False
      lists = [
        _propose(
          members[x.name],
          x,
          self._cut(n, split),
          self._unseen(x, space),
          x.name,
        )
        for n, x in zip(self.numbers, self.proposers)
      ]
      yield from self._pairs(lists, split.gold, labels, judged)
      return
    for fold in self._folds():
      rows = self._rows(fold)
      lists = self._fold_lists(fold, rows, preemption)
      gold = self.corpus.trained_gold
      gold = Ragged.of([gold[row] for row in rows.tolist()])
      seen = dataclasses.replace(labels, documents=self._seen(fold, labels))
      yield from self._pairs(lists, gold, seen, judged)

  def _seen(self, fold: Fold, labels: LabelFacts) -> np.ndarray:
    """Returns in how many documents the models of a fold have seen a label.

    The documents of the fold do not count, because the count would say whether
    a rare label is gold. Counts are scaled to the size of the split train.
    """
    gold = self.corpus.trained_gold
    in_fold = np.zeros(len(gold), bool)
    in_fold[fold.rows] = True
    outside = gold.values[~np.repeat(in_fold, gold.lengths)]
    counts = np.bincount(outside, minlength=len(labels.documents))
    counts = counts[: len(labels.documents)] * len(gold) / (~in_fold).sum()
    counts[fold.hidden] = 0
    return counts

  def _folds(self) -> list[Fold]:
    model = self.config.model
    # Hidden labels teach the ranker nothing if no proposer can list them.
    readable = any(map(self._describes, self.proposers))
    share = model.hidden if readable else None
    folds = make_folds(self.corpus, model.folds, share, self.config.seed)
    hidden = plural(len(folds[0].hidden), 'label')
    logging.info('%d folds; %s hidden in each', len(folds), hidden)
    return folds

  def _rows(self, fold: Fold) -> np.ndarray:
    """Returns the documents of a fold that the ranker learns from."""
    most = -(-self.config.model.documents // self.config.model.folds)
    if len(fold.rows) <= most:
      return fold.rows
    rng = host_generator(self.config.seed, 'ranked', fold.number)
    return np.sort(rng.choice(fold.rows, most, replace=False))

  def _fold_lists(
    self, fold: Fold, rows: np.ndarray, preemption: Preemption
  ) -> list[ProposedLists]:
    """Returns the lists of a fold's documents, by proposer."""
    lists, corpus = [], None
    for number, proposer in zip(self.numbers, self.proposers):
      path = self.folder.model / f'fold_{fold.number}_{proposer.name}.npz'
      if not path.exists():
        corpus = corpus or fold.corpus(self.corpus)
        ids, scores = self._list_fold(number, fold, rows, corpus, preemption)
        with self.folder.recording(path):
          write_npz(path, {'ids': ids, 'scores': scores}, packed=True)
      shutil.rmtree(self._stage(number, fold).run.workdir.path, True)
      lists.append(self._read(path, len(rows)))
    return lists

  def _stage(self, number: int, fold: Fold) -> Stage:
    name = self.config.model.proposers[number].name
    name = f'fold_{fold.number}_{name}'
    stage = proposer_stage(self.config, self.folder, number, name)
    return dataclasses.replace(stage, checks_zones=False)

  def _list_fold(
    self,
    number: int,
    fold: Fold,
    rows: np.ndarray,
    corpus: Corpus,
    preemption: Preemption,
  ) -> ProposedLists:
    """Trains a proposer without a fold, and lists labels of the fold."""
    proposer = self.config.model.proposers[number]
    stage = self._stage(number, fold)
    whole = proposer_stage(self.config, self.folder, number)
    member = train_proposer(stage, [whole], corpus, preemption)
    no_gold = Ragged.of([()] * len(rows))
    part = part_of(self.corpus.splits[TRAIN], rows, no_gold)
    part = self._cut(number, part)
    unseen = self._unseen(proposer, corpus.label_space)
    ids, scores = _propose(member, proposer, part, unseen, stage.name)
    ids = np.where(ids == PAD, PAD, fold.order[ids]).astype(np.int32)
    return ids, scores

  def _unseen(
    self, proposer: ProposerConfig, space: LabelSpace
  ) -> np.ndarray | None:
    """Returns which labels are unseen; None if the proposer cannot score them.

    Args:
      proposer: a proposer.
      space: the labels, with the counts of the proposer's training documents.
    """
    return space.train_counts == 0 if self._describes(proposer) else None

  def _describes(self, proposer: ProposerConfig) -> bool:
    """Returns whether a proposer scores labels by their names."""
    return describes(proposer.run_config(self.config))

  def _cut(self, number: int, split: Split) -> Split:
    """Returns a split whose documents have only the zones of a proposer."""
    stage = proposer_stage(self.config, self.folder, number)
    stage = dataclasses.replace(stage, checks_zones=False)
    parts = self.corpus.label_space, {TRAIN: split}, self.corpus.fingerprint
    return stage.corpus(Corpus(*parts)).splits[TRAIN]

  def _read(self, path: pathlib.Path, n: int) -> ProposedLists:
    """Reads the lists of a fold.

    Raises:
      DataError: the file is missing or damaged.
    """
    arrays = Arrays.read(path)
    ids = arrays.take('ids', np.int32, (2, n, None))
    scores = arrays.take('scores', np.float32, ids.shape)
    n_labels = len(self.corpus.label_space)
    bad = (ids < PAD) | (ids >= n_labels)
    arrays.check('ids', bad, f'is not a number below {n_labels}')
    arrays.finish()
    self.folder.check(path)
    return ids, scores

  def _pairs(
    self,
    lists: Sequence[ProposedLists],
    gold: Ragged,
    labels: LabelFacts,
    judged: np.ndarray,
  ) -> Iterator[RankerData]:
    """Yields the pairs of documents, some documents at a time.

    Args:
      lists: the lists of each proposer.
      gold: gold labels of the documents.
      labels: facts of the labels.
      judged: bool [L], the labels whose pairs the ranker learns from.
    """
    features: PairFeatures = self.config.model.features
    proposers = [
      Proposer(None, x.depth, x.scored, self._describes(x))
      for x in self.proposers
    ]
    pairs = StackPairs(proposers, labels, features)
    n = len(gold)
    with Progress('features of pairs', n) as shown:
      for start in range(0, n, _CHUNK):
        rows = np.arange(start, min(n, start + _CHUNK))
        part = pairs.of_lists([(ids[:, rows], s[:, rows]) for ids, s in lists])
        kept = judged[part.keys % pairs.n_labels]
        keys = part.keys[kept]
        yield RankerData(
          part.features[kept],
          np.isin(keys, _keys(gold, rows, pairs.n_labels)),
          np.bincount(keys // pairs.n_labels, minlength=len(rows)),
          (),
        )
        shown.update(len(rows))


def _keys(gold: Ragged, rows: np.ndarray, n_labels: int) -> np.ndarray:
  """Returns the pairs of documents and their gold labels."""
  parts = [gold[row] for row in rows.tolist()]
  document = np.repeat(np.arange(len(rows)), [len(part) for part in parts])
  labels = np.concatenate([*parts, np.zeros(0, np.int32)]).astype(np.int64)
  inside = labels < n_labels
  return document[inside] * np.int64(n_labels) + labels[inside]


def _propose(
  member: Predictor,
  proposer: ProposerConfig,
  split: Split,
  unseen: np.ndarray | None,
  name: str,
) -> ProposedLists:
  """Lists the labels of documents, among all labels and among unseen labels.

  The second list is empty if unseen is None.
  """
  size = list_length(proposer.scored, member.n_labels)
  masks = [] if unseen is None else [unseen[: member.n_labels]]
  batches = member.batches(split)
  logging.info('%s lists labels of %d documents', name, len(split))
  with progress(batches, f'lists of {name}', unit='batch') as shown:
    ids, scores, _ = rank_documents(
      shown,
      lambda batch: member.topk(batch, size, slices=masks),
      len(split),
      size,
      1 + len(masks),
    )
  return (ids, scores) if masks else with_empty_list(ids, scores)
