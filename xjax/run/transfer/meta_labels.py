"""Clusters the labels of a flat corpus into a tree of meta-labels."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import sparse

from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
from xjax.data.label_trees.clustering import kmeans
from xjax.data.label_trees.clusters import clustered_tree
from xjax.data.label_trees.label_features import pifa, strongest
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.data.load import build_corpus
from xjax.data.schema import Corpus, Label, Labels, LabelSpace
from xjax.data.text.tfidf import Tfidf
from xjax.data.text.words import split_terms
from xjax.data.tokens_config import TfidfConfig
from xjax.models.contract import Config
from xjax.models.features import DocumentTexts, TextFeaturiser

_MAX_FEATURES = 1000  # that are kept of each label


@dataclasses.dataclass(frozen=True)
class MetaLabelTree:
  """Says which clusters of labels become meta-labels."""

  # For each level of clusters, the number of clusters below a node of the level
  # above.
  branching: tuple[int, ...]
  seed: int = 0

  def __post_init__(self) -> None:
    if not self.branching:
      raise ConfigError(
        '--branching is missing; give the number of clusters below the root, '
        'then the number of clusters below each of them, and so on, such as '
        '--branching=256,8'
      )
    if min(self.branching) < 2:
      raise ConfigError(
        f'--branching={",".join(map(str, self.branching))}: each number of '
        'clusters must be at least 2'
      )

  def check_size(self, n_labels: int) -> None:
    """Checks that no cluster of labels would be empty."""
    clusters = math.prod(self.branching)
    if clusters > n_labels:
      product = ' x '.join(map(str, self.branching))
      raise ConfigError(
        f'--branching={",".join(map(str, self.branching))}: makes {product} = '
        f'{clusters:,} clusters on the lowest level, but the corpus has only '
        f'{n_labels:,} labels; give smaller numbers'
      )


@dataclasses.dataclass(frozen=True, eq=False)
class Relabelling:
  """Holds the labels of a new corpus, and says which labels documents get."""

  ids: Sequence[str]  # of labels that documents may get
  # A row for each label of the source (SourceCorpus.label_ids), with indices
  # into `ids`: first the label itself, and then the labels that a document gets
  # in addition. A label with an empty row is removed.
  new: Ragged
  labels: Labels  # of the new corpus
  meta: Sequence[str] = ()  # ids of the labels that the source does not have

  def of_row(self, row: np.ndarray) -> list[str]:
    """Returns the ids of a document's new labels, each once.

    Labels of the source come first, in their order; others in that of `ids`.
    """
    rows = [self.new[label].tolist() for label in row.tolist()]
    own = dict.fromkeys(new[0] for new in rows if new)
    more = {label for new in rows for label in new[1:]}
    return [self.ids[i] for i in (*own, *sorted(more - own.keys()))]


def labels_to_cluster(raw: SourceCorpus, config: Config) -> Corpus:
  """Returns the corpus whose labels become the leaves of the tree.

  The labels are those that config.data.labels chooses, and all other labels of
  documents; none is held out.
  """
  data = dataclasses.replace(config.data, hold_out_labels=0)
  return build_corpus(raw, data, config.seed)


def cluster_labels(
  corpus: Corpus, config: Config, clustering: MetaLabelTree
) -> LabelTree:
  """Builds a tree over the labels by recursive balanced k-means.

  The distance is Euclidean. At each node, the numbers of labels below two
  clusters differ by at most one (Bertalis et al., Section 3.3). The nodes of
  depth r are the clusters of level r.
  """
  space = corpus.label_space
  clustering.check_size(len(space))
  workers = max(1, config.data.workers)
  features, branching = (
    clustering_features(corpus, config),
    clustering.branching,
  )
  widths = np.cumprod((1, *branching[:-1]))
  with Progress('clusters of labels', int(widths.sum()), unit='node') as shown:

    def part(labels: np.ndarray, k: int, seed: Sequence[int]) -> np.ndarray:
      options = {'spherical': False, 'workers': workers}
      clusters = kmeans(features, labels, k, seed, **options)
      shown.update()
      return clusters

    return clustered_tree(len(space), branching, part, clustering.seed)


def clustering_features(
  corpus: Corpus, config: Config, n: int = _MAX_FEATURES
) -> sparse.csr_array:
  """Returns the features by which labels are clustered, float32 [L, D].

  The features of a label are the sum of tfidf(d) / words(d) over its training
  documents d, and are not scaled (Bertalis et al., Section 3.3). A label
  without training documents has the features of one document, whose text is the
  name and the alternative names of the label. If no word of this text is a
  feature, all features of the label are 0. Of each label, the n largest
  features are kept; 0 keeps all.
  """
  split, space = corpus.split(TRAIN), corpus.label_space
  texts = DocumentTexts(split.documents)
  tokens = config.data.tokens
  tokens = tokens if isinstance(tokens, TfidfConfig) else TfidfConfig()
  tfidf = Tfidf.fit(texts, tokens)
  rows_ND = TextFeaturiser(config.data, tfidf).in_chunks(
    Documents.of(split.documents), f'features of {split.name}'
  )
  lengths_N = np.fromiter(
    (len(split_terms(text)) for text in texts), np.int64, len(split)
  )
  features_LD = pifa(rows_ND, split.gold, len(space), lengths_N, n)
  counts_L = np.bincount(split.gold.values, minlength=len(space))
  bare = np.flatnonzero(counts_L == 0)
  return features_LD + _features_of_names(bare, space, tfidf, n)


def _features_of_names(
  bare: np.ndarray, space: LabelSpace, tfidf: Tfidf, n: int
) -> sparse.csr_array:
  """Returns features [L, D] of the labels `bare`; other rows are empty."""
  names = [' '.join((x.name, *x.alt)) for x in space.labels[bare]]
  lengths = np.array([max(1, len(split_terms(x))) for x in names], np.float32)
  rows = tfidf(names)
  rows = sparse.csr_array(rows.multiply(1 / lengths[:, None]), dtype=np.float32)
  if n:
    rows = strongest(rows, n)
  ones = np.ones(len(bare), np.float32), (bare, np.arange(len(bare)))
  # Without sorting, the sum of two such arrays would have unsorted rows.
  rows = sparse.csr_array(ones, (len(space), len(bare))) @ rows
  return rows.sorted_indices()


def meta_label_ids(tree: LabelTree) -> list[str]:
  """Returns the ids of the inner nodes but the root, from the top down.

  Cluster 7 of level 1 is meta_1_007, if the level has hundreds of clusters.
  """
  starts, ids = tree.levels, []
  for level in range(1, len(starts) - 2):
    size = int(starts[level + 1] - starts[level])
    width = len(str(size - 1))
    ids += [f'meta_{level}_{i:0{width}d}' for i in range(size)]
  return ids


def in_tree(
  tree: LabelTree, space: LabelSpace, raw: SourceCorpus
) -> Relabelling:
  """Adds the clusters of a tree as labels above the labels of a corpus.

  A document gets all clusters above its labels. The parent of a label is its
  cluster on the lowest level, and the parent of a cluster is the cluster above
  it: labels lose the parents that they had. All leaves must be at one depth.
  The clusters come first, from the top down, then labels in their order.
  DataError: the id of a cluster is the id of a label.
  """
  meta = meta_label_ids(tree)
  taken = {*raw.label_ids, *raw.labels.ids, *space.ids}
  if same := [id_ for id_ in meta if id_ in taken]:
    raise DataError(
      f'the corpus has a label {same[0]!a}, but a meta-label would have the '
      'same id; rename the label'
    )
  n, parent = len(meta), tree.parent
  # Node 0 is the root, and the clusters follow in the order of their ids.
  clusters = [
    Label(id_, id_, parents=() if above == 0 else (meta[above - 1],))
    for id_, above in zip(meta, parent[1 : 1 + n].tolist(), strict=True)
  ]
  leaves = np.flatnonzero(tree.label != NO_LABEL)
  node_L = np.full(len(space), PAD)
  node_L[tree.label[leaves]] = leaves
  labels = [
    dataclasses.replace(label, parents=(meta[parent[node] - 1],))
    for label, node in zip(space.labels, node_L.tolist(), strict=True)
  ]
  ids = [*meta, *space.ids]
  rows = []
  for label in space.index.find(raw.label_ids).tolist():
    row, node = [n + label], int(parent[node_L[label]])
    while node:
      row.append(node - 1)
      node = int(parent[node])
    rows.append(row)
  places = raw.labels.ids.row_of.find(space.ids)
  order = np.argsort(
    np.where(places == PAD, len(raw.labels), places), kind='stable'
  )
  described = Labels.of([*clusters, *(labels[i] for i in order.tolist())])
  return Relabelling(ids, Ragged.of(rows), described, meta)


def tree_lines(tree: LabelTree) -> list[str]:
  """Describes the levels of a tree, and its mean branching factors."""
  sizes = np.diff(tree.levels).tolist()
  factors = [b / a for a, b in zip(sizes, sizes[1:])]
  return [
    f'levels: {" - ".join(f"{n:,}" for n in sizes[1:])}',
    f'children of a node, by level: {" / ".join(f"{f:.4g}" for f in factors)}',
  ]
