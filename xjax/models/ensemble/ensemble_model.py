"""Ranks labels by the average of the lists of finished runs: ensembles."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import enum
import functools
import math
from typing import Any

from jaxtyping import Float32, Float64, Int32
import numpy as np

from xjax.core.config_part import AT_LEAST_1, field
from xjax.core.errors import ConfigError
from xjax.core.ranking import (
  Lists,
  Query,
  RankWeights,
  best_cells,
  listed_cells,
)
from xjax.core.types import PAD, ScoreKind
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.schema import Corpus, LabelSpace
from xjax.data.tokens_config import TokensConfig
from xjax.judge.calibration import Calibration, Method, readable_scores
from xjax.judge.label_lists import list_length
from xjax.models.contract import Config, Model, Run, check_one_process
from xjax.models.scorer import Scorer, documents_for, rank_blocks
from xjax.models.stage import FinishedRun

_FIELD = 'config.model.workdirs'
# Mean probabilities stay this far from 0 and 1, because the logits of 0 and 1
# are infinite.
_LEAST, _MOST = 1e-45, 1 - 1e-16

# int32 ids and float64 values [G, N, K], what listed labels add to an average.
_Lists = tuple[np.ndarray, np.ndarray]


class Averaging(enum.Enum):
  """Says what is averaged over the runs of an ensemble."""

  SIGMOID = 'sigmoid'  # the probabilities of labels
  SOFTMAX = 'softmax'  # the softmax over the scores of a run's list
  RANK = 'rank'  # 1 / rank; the best label of a list has the rank 1


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
  """Holds a model of an ensemble."""

  scorer: Scorer
  space: LabelSpace  # of its run; labels that it leaves out are not listed
  calibration: Calibration | None = None

  def rank(self, documents: Documents, query: Query) -> Lists:
    query = query.only(self.space.allowed)
    return self.scorer.rank(documents_for(self.scorer, documents), query)

  def readable(self, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns scores as users see them, float64; labels may be PAD."""
    # PAD reads the count of the last label; _means drops its value.
    counts = np.asarray(self.space.train_counts)[ids]
    kind = self.scorer.score_kind
    return readable_scores(scores, kind, self.calibration, counts)


class EnsembleScorer(Scorer):
  """Ranks labels by the average of several models.

  A label that a model does not list counts 0 for this model.

  A label has one average for a document, whichever list it is in. If a model
  lists it among all labels, the average comes only from the lists over all
  labels. If not, the average comes from the lists that have it, which are for
  slices or for allowed labels.

  If probabilities are averaged, the score is the logit of their mean. Otherwise
  it is a margin, the mean itself, from 0 to 1, and 0.5 assigns a label.
  """

  unexplained = (
    'labels of an ensemble cannot be explained: it averages lists of labels; '
    'explain the labels of one of its runs, such as the run in stages/member_0 '
    'of the workdir'
  )
  fixed_labels = (
    'an ensemble cannot score new labels: it only lists the labels of its '
    'runs; give the labels to one of the runs, such as the run in '
    'stages/member_0 of the workdir'
  )

  def __init__(
    self,
    members: Mapping[str, Member],  # by name, with the same label numbers
    averaging: Averaging,  # SIGMOID needs logits or a calibration
    depth: int,  # number of labels that each model lists
    weights: Sequence[float] = (),  # of the models; () stands for equal weights
    block: int = 512,  # documents that are ranked at a time
  ):
    # Shares add up to 1, so that the mean of probabilities is one too.
    weights_M = np.array(weights or [1] * len(members), np.float64)
    self._members = dict(members)
    self._shares = tuple(weights_M / weights_M.sum())
    self._averaging, self._depth, self._block = averaging, depth, block
    is_logit = averaging is Averaging.SIGMOID
    self.score_kind = ScoreKind.LOGIT if is_logit else ScoreKind.MARGIN
    self.assigned_above = None if is_logit else 0.5
    stages = self.stages.values()
    self.n_labels = max(scorer.n_labels for scorer in stages)
    self.reads_vectors = any(scorer.reads_vectors for scorer in stages)
    self.selected_by = f'runs={len(members)}'

  @property
  def stages(self) -> dict[str, Scorer]:
    return {name: member.scorer for name, member in self._members.items()}

  @property
  def ranks_unseen(self) -> bool:
    return any(scorer.ranks_unseen for scorer in self.stages.values())

  @property
  def union_size(self) -> int:
    """Returns the largest number of labels that the joined lists have."""
    return sum(map(self._length, self.stages.values()))

  def _length(self, scorer: Scorer) -> int:
    return list_length(self._depth, scorer.n_labels)

  def rank(self, documents: Documents, query: Query) -> Lists:
    query = query.for_labels(self.n_labels)
    return rank_blocks(documents, query, self._block, self._rank)

  def warmup(self, query: Query, explain: bool = False) -> None:
    del query, explain
    for member in self._members.values():
      asked = Query(self._length(member.scorer)).only(member.space.allowed)
      member.scorer.warmup(asked)

  def _rank(self, documents: Documents, query: Query) -> Lists:
    if query.weights is not None:
      query = query.only(query.weights.values > 0)
    lists = [self._ask(x, documents, query) for x in self._members.values()]
    k = query.k
    # The union's recall is measured on all joined labels, not on the best k.
    if query.measures(documents.gold):
      k = max(k, self.union_size)
    rank = functools.partial(self._best, len(documents), k, query.weights)
    means = self._means(lists, slice(0, 1))
    # List 1 exists only with a filter; see _ask.
    filtered = query.allowed is not None
    if filtered:
      means = means.with_missing(self._means(lists, slice(1, 2)))
    best = [rank(means, [query.allowed])]
    if query.slices:
      # True counts as 1: with a filter, list 1 is not the list of a slice.
      others = self._means(lists, slice(1 + filtered, None))
      means = means.with_missing(others)
      best += [rank(means, [query.allowed, mask]) for mask in query.slices]
    ids_GNK, scores_GNK = (np.stack(arrays) for arrays in zip(*best))
    step = f'union recall@{self.union_size}'
    return Lists(ids_GNK, scores_GNK).measured(step, documents.gold, query)

  def _ask(self, member: Member, documents: Documents, query: Query) -> _Lists:
    """Returns the lists of a model, with what it adds to each average.

    List 0 is over all labels. If only some are allowed, list 1 is over these.
    The other lists are those of slices. Weights do not change the lists.
    """
    size = self._length(member.scorer)
    asked = [Query(size, query.slices)]
    if query.allowed is not None:
      asked = [Query(size), Query(size, query.slices, query.allowed)]
    parts = [member.rank(documents, x) for x in asked]
    ids = np.concatenate([part.ids_GNK for part in parts])
    scores = np.concatenate([part.scores_GNK for part in parts])
    return ids, self._values(member, ids, scores)

  def _values(
    self, member: Member, ids_GNK: np.ndarray, scores_GNK: np.ndarray
  ) -> Float64[np.ndarray, 'G N K']:
    """Returns what listed labels add to an average, before its weight."""
    real = ids_GNK != PAD
    match self._averaging:
      case Averaging.SIGMOID:
        return member.readable(ids_GNK, np.where(real, scores_GNK, 0))
      case Averaging.SOFTMAX:
        # Padding has the score -inf. A 1 in its place keeps logarithms finite,
        # and is replaced again below.
        z = np.where(real, scores_GNK, 1).astype(np.float64)
        if member.scorer.score_kind is ScoreKind.PROBABILITY:
          z = np.log(np.maximum(z, _LEAST))
        z = np.where(real, z, -np.inf)
        # The sum is over list 0 alone, so a label has the same softmax in all
        # lists. logaddexp does not overflow for large margins.
        total_N = np.logaddexp.reduce(z[0], axis=1)
        # An empty list has the total -inf, and -inf - -inf would be NaN.
        total_N = np.where(total_N == -np.inf, 0, total_N)
        return np.exp(z - total_N[:, None])
      case Averaging.RANK:
        ranks = 1 + np.indices(scores_GNK.shape)[2]
        # A label that is only in other lists comes after all labels of list 0,
        # which is over all labels.
        ranks[1:] += self._depth
        return 1 / ranks

  def _means(self, lists: Sequence[_Lists], which: slice) -> '_Means':
    parts = []
    for ids_GNK, values_GNK in lists:
      # The list over all labels comes first, and so decides.
      cells, at = listed_cells(ids_GNK[which], self.n_labels)
      parts.append((cells, values_GNK[which][at]))
    return _Means.of(parts, self._shares)

  def _best(
    self,
    n: int,
    k: int,
    weights: RankWeights | None,
    means: '_Means',
    masks: Sequence[np.ndarray | None],
  ) -> tuple[Int32[np.ndarray, 'N K'], Float32[np.ndarray, 'N K']]:
    document, label = np.divmod(means.cells, self.n_labels)
    keys = means.values
    if self.score_kind is ScoreKind.LOGIT:
      keys = np.clip(keys, _LEAST, _MOST)
      # log1p keeps the digits of probabilities that are close to 0.
      keys = np.log(keys) - np.log1p(-keys)
    if weights is not None:
      keys = weights.weighted(label, keys)
    # The order of equal means must not depend on how they were rounded.
    keys = keys.astype(np.float32)
    inside = keys > -np.inf
    for mask in masks:
      if mask is not None:
        inside &= mask[label] if mask.ndim == 1 else mask[document, label]
    cells = means.cells[inside]
    return best_cells(cells, keys[inside], self.n_labels, n, k)


@dataclasses.dataclass(frozen=True, eq=False)
class _Means:
  cells: np.ndarray  # int64 [cells], in any order; see ranking.best_cells
  values: np.ndarray  # float64 [cells], the average of each cell

  @classmethod
  def of(
    cls, parts: Sequence[tuple[np.ndarray, np.ndarray]], shares: Sequence[float]
  ) -> '_Means':
    """Averages cells and values of each model; the shares add up to 1."""
    cells = np.concatenate([cells for cells, _ in parts])
    terms = [share * values for share, (_, values) in zip(shares, parts)]
    # A model that does not list a label has no cell for it, and so adds 0.
    cells, at = np.unique(cells, return_inverse=True)
    return cls(cells, np.bincount(at, np.concatenate(terms), len(cells)))

  def with_missing(self, others: '_Means') -> '_Means':
    """Adds the averages of `others` for cells that have no average here."""
    new = ~np.isin(others.cells, self.cells)
    return _Means(
      np.append(self.cells, others.cells[new]),
      np.append(self.values, others.values[new]),
    )


@dataclasses.dataclass
class EnsembleModel(Model):
  """Averages the lists of finished runs, without training.

  The runs may read documents in different ways. What loading their models needs
  is copied into the workdir. data.tokens is not used.
  """

  reads = (TokensConfig,)

  workdirs: tuple[str, ...] = field(
    (), 'The finished runs, each as WORKDIR[@step].'
  )
  combine: Averaging = field(Averaging.RANK, 'What is averaged over the runs.')
  depth: int = field(
    50, 'Number of labels that each run lists for a document.', AT_LEAST_1
  )
  weights: tuple[float, ...] = field(
    (), 'The weight of each run in the average. If empty, all are equal.'
  )

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    if not all(self.workdirs) or not self.workdirs:
      yield (
        f'{path}.workdirs={self.workdirs}: set it to the workdirs of finished '
        f'runs, as in --{path}.workdirs=runs/a,runs/b'
      )
    if self.weights and len(self.weights) != len(self.workdirs):
      yield (
        f'{path}.weights={self.weights}: must be empty, or have a weight for '
        f'each of {path}.workdirs={self.workdirs}'
      )
    if not all(0 < weight < math.inf for weight in self.weights):
      yield f'{path}.weights={self.weights}: all weights must be above 0'

  def token_faults(self, config: Any) -> Iterator[str]:
    """Yields nothing, because each run reads documents in its own way."""
    yield from ()

  def check(self, corpus: Corpus, run: Run) -> None:
    check_one_process(run.config)
    for source in self._sources(run):
      other, scorer = source.open()
      _check_reading(run.config, source.source, other.config)
      # Only probabilities of models can be averaged; a margin has none without
      # a calibration.
      if self.combine is Averaging.SIGMOID:
        _check_probabilities(source.source, scorer, other.calibration(scorer))
      source.check_labels(other, scorer.n_labels, corpus.label_space)

  def fit(self, corpus: Corpus, run: Run) -> None:
    """Copies the runs that are not copied yet; nothing is trained."""
    del corpus
    # A copy is made as a whole or not at all; a signal waits for the end of a
    # copy.
    with run.preemption.deferred():
      for source in self._sources(run):
        source.copy()
        run.preemption.check()

  def open(self, run: Run) -> EnsembleScorer:
    check_one_process(run.config)
    ours, members = run.label_space(), {}
    for name in (source.name for source in self._sources(run)):
      other, scorer = run.opened_stage(name)
      # A member would spend places of its lists on labels that are left out.
      theirs = other.label_space()
      left_out = *theirs.left_out_ids, *ours.left_out_ids
      space = dataclasses.replace(theirs, left_out_ids=left_out)
      members[name] = Member(scorer, space, other.calibration(scorer))
    rule = self.combine, self.depth, self.weights
    return EnsembleScorer(members, *rule, run.config.eval.batch_size)

  def _sources(self, run: Run) -> list[FinishedRun]:
    return [
      FinishedRun(source, run, f'member_{number}', _FIELD)
      for number, source in enumerate(self.workdirs)
    ]

  def about_unseen(self, config: Config) -> str:
    del config
    return (
      f'The model averages the lists of {plural(len(self.workdirs), "run")}. '
      'It predicts a label without training documents only if one of these '
      'runs lists it.'
    )


def _check_probabilities(
  source: str, scorer: Scorer, calibration: Calibration | None
) -> None:
  if calibration is not None and calibration.method is not Method.NONE:
    return
  if scorer.score_kind is ScoreKind.MARGIN:
    raise ConfigError(
      f'{_FIELD}: the scores of {source} are margins without a calibration, so '
      'there are no probabilities to average; set config.model.combine=RANK, '
      'or calibrate the run with xjax evaluate --split=dev'
    )


def _check_reading(config: Config, source: str, theirs: Config) -> None:
  ours, others = config.data, theirs.data
  if ours.sparse != others.sparse or (
    ours.sparse and ours.tokens != others.tokens
  ):
    raise ConfigError(
      f'config.data: the run in {source} reads {type(others).__name__}(...) '
      f'with tokens={others.tokens}; all runs of an ensemble and the ensemble '
      'must read the same features, or all must read texts'
    )
