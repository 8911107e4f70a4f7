"""Describes pairs of a document and a label by what proposers say about them.

A proposer is a model that lists labels with scores. A pair is one number, its
key: document * L + label, for documents 0, 1, ... of a batch and L labels.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses

from jaxtyping import Bool, Float, Float32, Int64
import numpy as np

from xjax.core.config_part import ConfigPart, field
from xjax.core.ranking import Lists, best_cells, listed_cells, places_of
from xjax.core.types import PAD, Ragged
from xjax.data.schema import LabelSpace
from xjax.data.text.words import has_letters
from xjax.models.stack.label_use import USE, LabelUse

NONE = np.float32(-1e30)  # a feature that does not exist
_NAN = np.float32(np.nan)
_FIFTH = 4  # place of the fifth label of a list


@dataclasses.dataclass
class PairFeatures(ConfigPart):
  """Chooses the features of a pair, in groups."""

  scores: bool = field(True, 'The score that each proposer gives the label.')
  ranks: bool = field(True, "The label's place on the list of each proposer.")
  gaps: bool = field(
    True,
    'How far the score is above the best score and the fifth score of the '
    "document's list, and this best score.",
  )
  frequency: bool = field(
    True,
    'The number of training documents of the label. It is 0 for labels that '
    'are not trained, so it also says which labels are known by name only.',
  )
  names: bool = field(True, "The number of words of the label's name.")
  relatives: bool = field(
    True,
    "The best scores of the label's parents, children and siblings. They need "
    'labels with parents.',
  )
  details: bool = field(
    True,
    'What else a proposer says of the label, such as how many neighbours have '
    'it.',
  )
  use: bool = field(
    True,
    'How often the label is used around the date of the document, if a '
    'proposer knows dates (NeighboursModel.dated).',
  )
  agreement: bool = field(True, 'The number of proposers that list the label.')


@dataclasses.dataclass(frozen=True, eq=False)
class LabelFacts:
  """Holds what the features say about L labels and relatives among them."""

  documents: np.ndarray  # int [L], training documents; 0 if not trained
  words: np.ndarray  # int [L], words of the label's name; 0 if it has no name
  parents: Ragged
  children: Ragged

  @classmethod
  def of(cls, space: LabelSpace, n_labels: int) -> 'LabelFacts':
    labels = space.labels[:n_labels]
    rows = labels.ids.row_of
    parents = []
    for number, ids in enumerate(labels.parents):
      known = set(rows.find(ids).tolist()) if ids else set()
      # Unknown parents are PAD, and a label is no relative of its own.
      parents.append(sorted(known - {PAD, number}))
    children = [[] for _ in parents]
    for label, above in enumerate(parents):
      for parent in above:
        children[parent].append(label)
    names = [label.name for label in labels]
    words = [len(x.split()) if has_letters(x) else 0 for x in names]
    return cls(
      np.asarray(space.train_counts[:n_labels]),
      np.array(words, np.int32),
      Ragged.of(parents),
      Ragged.of(children),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreLists:
  """Holds the scores that a proposer gives to labels of B documents.

  The best and fifth score are over all labels, and NaN if the list is shorter.
  Ranks are from 0, on the list over all labels; NaN for labels only on others.
  """

  keys: np.ndarray  # int64 [cells], the pairs with a score, ascending
  scores: np.ndarray  # float32 [cells]
  ranks: np.ndarray  # float32 [cells]
  best: np.ndarray  # float32 [B]
  fifth: np.ndarray  # float32 [B]
  n_labels: int
  details: np.ndarray | None = None  # float32 [cells, D]
  proposes: bool = True  # whether the labels of list 0 are proposed by it

  @classmethod
  def of(cls, lists: Lists, n_labels: int) -> 'ScoreLists':
    """Reads the lists of a proposer, best first; list 0 is over all labels."""
    ids_GBK, scores_GBK = lists.ids_GNK, lists.scores_GNK
    # List 0 comes first, so it decides the rank of a label on several lists.
    keys, at = listed_cells(ids_GBK, n_labels)
    ranks = np.where(at[0] == 0, at[2], np.nan).astype(np.float32)
    listed_BK = ids_GBK[0] != PAD
    scores_BK = np.where(listed_BK, scores_GBK[0], np.nan)
    scores_BK = np.pad(
      scores_BK, ((0, 0), (0, _FIFTH + 1)), constant_values=np.nan
    )
    return cls(
      keys,
      scores_GBK[at].astype(np.float32),
      ranks,
      scores_BK[:, 0].astype(np.float32),
      scores_BK[:, _FIFTH].astype(np.float32),
      n_labels,
      None if lists.details_GNKD is None else lists.details_GNKD[at],
    )

  @classmethod
  def of_pairs(
    cls,
    keys: Int64[np.ndarray, ' X'],
    scores: Float32[np.ndarray, ' X'],
    usual: Bool[np.ndarray, ' X'],
    n: int,
    n_labels: int,
  ) -> 'ScoreLists':
    """Ranks the usual ones of some pairs of n documents by their scores.

    A pair without a score, NaN, has no rank. Keys ascend.
    """
    usual = usual & ~np.isnan(scores)
    most = max(_FIFTH + 1, np.bincount(keys[usual] // n_labels).max(initial=0))
    lists = best_cells(keys[usual], scores[usual], n_labels, n, int(most))
    own = cls.of(Lists(*(part[None] for part in lists)), n_labels)
    ranks = own.find(keys)[1]
    return dataclasses.replace(
      own, keys=keys, scores=scores, ranks=ranks, proposes=False
    )

  def find(
    self, keys: Int64[np.ndarray, ' X']
  ) -> tuple[Float32[np.ndarray, ' X'], Float32[np.ndarray, ' X']]:
    """Returns the scores and ranks of pairs; NaN for pairs without a score."""
    at = places_of(self.keys, keys)
    return np.append(self.scores, _NAN)[at], np.append(self.ranks, _NAN)[at]

  def of_relatives(self) -> 'ScoreLists':
    """Returns the lists in which relatives of a label are looked up."""
    if self.proposes:
      return self
    # A pair must have the same features, whatever other slices are listed.
    ranked = ~np.isnan(self.ranks)
    keys, scores, ranks = (
      x[ranked] for x in (self.keys, self.scores, self.ranks)
    )
    return dataclasses.replace(self, keys=keys, scores=scores, ranks=ranks)

  def find_details(
    self, keys: Int64[np.ndarray, ' X']
  ) -> Iterator[Float32[np.ndarray, ' X']]:
    """Yields each of the details of pairs; NaN for pairs without a score."""
    if self.details is not None:
      at = places_of(self.keys, keys)
      yield from (np.append(column, _NAN)[at] for column in self.details.T)


def feature_names(
  features: PairFeatures,
  proposers: Mapping[str, Sequence[str]],
  dated: bool = False,
) -> tuple[str, ...]:
  """Returns the names of F features, such as tree:score, label:documents.

  Proposers are given with the names of their details.
  """
  own = ['score'] * features.scores + ['rank'] * features.ranks
  own += ['over best', 'over fifth', 'best'] * features.gaps
  own += ['parent', 'child', 'sibling'] * features.relatives
  names = [
    f'{proposer}:{name}'
    for proposer, details in proposers.items()
    for name in (*own, *(details if features.details else ()))
  ]
  names += ['label:documents'] * features.frequency
  names += ['label:words'] * features.names
  names += [f'label:{name}' for name in USE] * dated
  names += ['proposers'] * features.agreement
  return tuple(names)


def pair_features(
  keys: Int64[np.ndarray, ' X'],
  lists: Sequence[ScoreLists],
  labels: LabelFacts,
  features: PairFeatures,
  use: LabelUse | None = None,
  days_B: Float32[np.ndarray, ' B'] | None = None,  # dates, if there is `use`
) -> Float32[np.ndarray, 'X F']:
  """Returns the features of pairs, in the order of feature_names.

  Features grow with the evidence for the label: the rank counts down from 0,
  and a score below the best score is a negative gap. A feature that does not
  exist, such as the score of a label that a proposer does not list, is NONE,
  which is smaller than all numbers. So a ranker judges it like a very small
  number, even if it has learned from no pair without the feature.
  """
  document, label = np.divmod(keys, len(labels.words))
  columns: list[np.ndarray] = []
  proposers = np.zeros(len(keys), np.float32)
  for part in lists:
    scores, ranks = part.find(keys)
    # Only the list over all labels counts, whose labels have ranks.
    proposers += part.proposes & ~np.isnan(ranks)
    columns += [scores] * features.scores + [-ranks] * features.ranks
    if features.gaps:
      best, fifth = part.best[document], part.fifth[document]
      columns += [scores - best, scores - fifth, best]
    if features.relatives:
      columns += _relatives(part.of_relatives(), document, label, labels)
    if features.details:
      columns += part.find_details(keys)
  if features.frequency:
    columns.append(np.log1p(labels.documents[label]))
  columns += [labels.words[label]] * features.names
  if use is not None:
    columns += use.features(days_B[document], label)
  columns += [proposers] * features.agreement
  # Filled column by column; np.stack would convert all columns at once.
  out = np.empty((len(keys), len(columns)), np.float32)
  for number, column in enumerate(columns):
    out[:, number] = column
  return np.nan_to_num(out, copy=False, nan=NONE)


def _relatives(
  lists: ScoreLists,
  document: Int64[np.ndarray, ' X'],
  label: Int64[np.ndarray, ' X'],
  labels: LabelFacts,
) -> Iterator[Float32[np.ndarray, ' X']]:
  """Yields the best scores of the parents, children and siblings of labels."""
  for relation in labels.parents, labels.children:
    pair, other = _expand(relation, label)
    keys = document[pair] * lists.n_labels + other
    yield _best(pair, lists.find(keys)[0], len(label))
  # Siblings: pairs of labels with a common parent would be too many. So each
  # family keeps its two best children, of which one is not the label itself.
  families = _BestChildren.of(lists, labels.parents)
  pair, parent = _expand(labels.parents, label)
  keys = document[pair] * lists.n_labels + parent
  scores = families.best_without(keys, label[pair])
  yield _best(pair, scores, len(label))


def _expand(
  relation: Ragged, label: Int64[np.ndarray, ' X']
) -> tuple[Int64[np.ndarray, ' Y'], Int64[np.ndarray, ' Y']]:
  """Returns the number of a pair, and a relative, for each relative of it."""
  relatives = relation.take(label)
  return relatives.owners, relatives.values.astype(np.int64)


def _best(
  pair: Int64[np.ndarray, ' Y'], scores: Float[np.ndarray, ' Y'], n: int
) -> Float32[np.ndarray, ' n']:
  """Returns the largest score of each of n pairs; NaN if it has none."""
  best = np.full(n, -np.inf, np.float32)
  known = ~np.isnan(scores)
  np.maximum.at(best, pair[known], scores[known])
  return np.where(best == -np.inf, np.float32(np.nan), best)


@dataclasses.dataclass(frozen=True, eq=False)
class _BestChildren:
  """Holds the two best listed children of each parent, by document."""

  keys: np.ndarray  # int64 [families], document * L + parent, ascending
  child: np.ndarray  # int64 [families], the best child
  best: np.ndarray  # float32 [families], its score
  second: np.ndarray  # float32 [families]; NaN if only one child is listed

  @classmethod
  def of(cls, lists: ScoreLists, parents: Ragged) -> '_BestChildren':
    document, label = np.divmod(lists.keys, lists.n_labels)
    pair, parent = _expand(parents, label)
    keys = document[pair] * lists.n_labels + parent
    scores, child = lists.scores[pair], label[pair]
    # The sort is stable, so children with equal scores stay in ascending order.
    order = np.lexsort((-scores, keys))
    keys, scores, child = keys[order], scores[order], child[order]
    first = _starts(keys)
    second = np.full(len(first), np.nan, np.float32)
    has_second = np.append(first[1:], len(keys)) - first > 1
    second[has_second] = scores[first[has_second] + 1]
    return cls(keys[first], child[first], scores[first], second)

  def best_without(
    self, keys: Int64[np.ndarray, ' Y'], child: Int64[np.ndarray, ' Y']
  ) -> Float32[np.ndarray, ' Y']:
    at = places_of(self.keys, keys)
    best, second = (np.append(x, _NAN)[at] for x in (self.best, self.second))
    # The best child is no sibling of its own; the second one is.
    return np.where(np.append(self.child, PAD)[at] == child, second, best)


def _starts(sorted_keys: np.ndarray) -> Int64[np.ndarray, ' groups']:
  new: Bool[np.ndarray, ' Y'] = np.ones(len(sorted_keys), bool)
  new[1:] = sorted_keys[1:] != sorted_keys[:-1]
  return np.flatnonzero(new)
