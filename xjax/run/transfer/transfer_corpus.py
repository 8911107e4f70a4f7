"""Transfers a corpus between hierarchical and flat form (xjax transfer).

The paper is Bertalis et al., Sections 3.2 and 3.3. The new folder has JSON
lines and labels.jsonl. For a hierarchical corpus, it also has meta_labels.txt:
the ids of its meta-labels, which judging leaves out (eval.leave_out).
"""

from collections.abc import Iterator, Sequence
import dataclasses
import enum
import glob
import math
import os
import pathlib

from absl import logging
import numpy as np
from scipy import sparse

from xjax.core.atomic import build_folder, check_new_folder, remove_temporaries
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress, progress
from xjax.core.types import PAD, Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import plural
from xjax.data.files.json_lines import write_json_lines
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
from xjax.data.formats.label_files import LABELS
from xjax.data.hierarchy import Hierarchy
from xjax.data.label_trees.clustering import kmeans
from xjax.data.label_trees.clusters import clustered_tree
from xjax.data.label_trees.label_features import pifa, strongest
from xjax.data.label_trees.label_tree import NO_LABEL, LabelTree
from xjax.data.load import build_corpus, choose_zones
from xjax.data.schema import (
  Corpus,
  Document,
  Label,
  Labels,
  LabelSpace,
  label_row,
)
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


META = 'meta_labels.txt'


class KeptLabels(enum.Enum):
  ALL = 'all'  # all labels of the hierarchy; documents keep their labels
  CLOSED = 'closed'  # all; documents also get the ancestors of their labels
  LEAVES = 'leaves'  # the labels without children; documents lose the others


def transfer(
  config: Config,
  to: KeptLabels | MetaLabelTree,
  output: str,
  splits: tuple[str, ...] = (),
) -> list[str]:
  """Writes a corpus in flat or in hierarchical form; returns lines about it.

  The folder `output` appears when it is complete. `to` is a MetaLabelTree for a
  hierarchical corpus; `splits` are those besides train, dev and test.
  """
  if config.data.sparse:
    raise ConfigError(
      f'config.data={type(config.data).__name__}(...): the documents are '
      'features, but a transferred corpus has texts; give the texts of the '
      'corpus, for example with --config=xc_repo_bigru_lwan'
    )
  folder = pathlib.Path(os.path.expanduser(output)).absolute()
  check_new_folder(folder)
  config = dataclasses.replace(config, data=config.data.with_guesses())
  with Progress('reading documents'):
    raw = config.data.read(splits, True)
  lines: list[str] = []
  if isinstance(to, MetaLabelTree):
    relabelling, lines = _clustered(raw, config, to)
  else:
    relabelling = _flattened(raw, to)
  choose_zones(raw, config.data)  # all of them must be there
  zones = config.data.text_zones or raw.zones

  def build(temporary: pathlib.Path) -> None:
    if relabelling.meta:
      ids = ''.join(f'{id_}\n' for id_ in relabelling.meta)
      (temporary / META).write_text(ids, 'utf-8')
    if len(raw.labels) or relabelling.meta:
      rows = map(label_row, relabelling.labels)
      write_json_lines(temporary / f'{LABELS}.jsonl', rows)
    for name in raw.splits:
      rows = _documents(raw, name, relabelling)
      write_json_lines(temporary / f'{name}.jsonl', rows)

  remove_temporaries(folder.parent, glob.escape(folder.name))
  build_folder(folder, build)
  meta = len(relabelling.meta)
  parts = [
    plural(sum(len(x.documents) for x in raw.splits.values()), 'document'),
    plural(len(relabelling.labels) - meta, 'label'),
  ]
  parts += [plural(meta, 'meta-label')] if meta else []
  more = _advice(raw, config, zones)
  return [f'{output}: {", ".join(parts)}', *lines, *more]


def _clustered(
  raw: SourceCorpus, config: Config, clustering: MetaLabelTree
) -> tuple[Relabelling, list[str]]:
  corpus = labels_to_cluster(raw, config)
  if TRAIN not in corpus.splits:
    raise DataError(
      f'{raw.source}: has no split train, whose documents are needed to '
      'cluster labels'
    )
  if any(label.parents for label in corpus.label_space.labels):
    logging.info('the tree of clusters replaces the parents of labels')
  tree = cluster_labels(corpus, config, clustering)
  return in_tree(tree, corpus.label_space, raw), tree_lines(tree)


def _flattened(raw: SourceCorpus, kept: KeptLabels) -> Relabelling:
  """Forgets the parents of labels (Bertalis et al., Section 3.2)."""
  if not any(label.parents for label in raw.labels):
    logging.warning(
      '%s: no label has parents, so the corpus is flat already', raw.source
    )
  rows = raw.labels.ids.row_of.find(raw.label_ids)
  bare = (raw.label_ids[i] for i in np.flatnonzero(rows == PAD))
  labels = Labels.join(raw.labels, [Label(id_, id_) for id_ in bare])
  hierarchy = Hierarchy.of(labels)
  inside_V = np.ones(len(hierarchy), bool)
  if kept is KeptLabels.LEAVES:
    inside_V = hierarchy.children.lengths == 0
  inside_V[len(labels) :] = False  # parents without a descriptor
  own = hierarchy.ids.row_of.find(raw.label_ids)
  new = [[node] if inside_V[node] else [] for node in own.tolist()]
  if kept is KeptLabels.CLOSED:
    above = hierarchy.ancestors
    new = [
      row + [a for a in above[row[0]].tolist() if inside_V[a]] for row in new
    ]
  flat = Labels.of(
    dataclasses.replace(label, parents=())
    for label in labels[np.flatnonzero(inside_V)]
  )
  return Relabelling(hierarchy.ids, Ragged.of(new), flat)


def _documents(
  raw: SourceCorpus, name: str, relabelling: Relabelling
) -> Iterator[dict]:
  split = raw.splits[name]
  with progress(split.documents, f'writing {name}') as shown:
    for row, document in enumerate(shown):
      labels = relabelling.of_row(split.gold[row])
      yield {'id': document.id, **_texts(document), 'labels': labels}


def _texts(document: Document) -> dict:
  texts = dict(document.zones)
  return texts if tuple(texts) == ('text',) else {'zones': texts}


def _advice(
  raw: SourceCorpus,
  config: Config,
  zones: tuple[str, ...],  # that models of the source read
) -> Iterator[str]:
  """Yields lines about how to read the new corpus as the source."""
  if zones != raw.zones:
    yield (
      'documents keep all zones; to train on the same text as with '
      f'{raw.source}, give --config.data.zones={",".join(zones)}'
    )
  if len(raw.labels) and (raw.ordered or config.data.labels == 'all'):
    yield (
      'models of the source have all labels in the order of their descriptors; '
      'so do models of the new corpus if you give --config.data.labels=all, or '
      'use a config for your own documents, such as own_linear'
    )
  if raw.drawn:
    yield f'splits that xjax has drawn: {", ".join(raw.drawn)}'
