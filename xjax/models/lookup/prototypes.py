"""Scores labels by the cosine of a document and a prototype of the label."""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import pathlib
from typing import Any

import numpy as np
from scipy import sparse

from xjax.core.arrays import Arrays, matrix_arrays
from xjax.core.atomic import write_npz
from xjax.core.config_part import field
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.core.types import Ragged, ScoreKind
from xjax.data.documents import Documents
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.label_trees.label_tree import complete_tree
from xjax.data.quality import check_train_labels
from xjax.data.schema import Corpus, Label, LabelSpace
from xjax.data.text.words import has_letters
from xjax.data.tokens_config import GivenFeaturesConfig, Norm
from xjax.models.contract import Config, Run, check_one_process
from xjax.models.features import (
  FeaturesModel,
  RowFeaturiser,
  TextFeaturiser,
  check_features,
  check_sizes,
  fit_featuriser,
  open_featuriser,
)
from xjax.models.linear.block_weights import BlockWeights
from xjax.models.linear.classifiers import Classifiers
from xjax.models.lookup.exact_match import check_letters
from xjax.models.scorer import cannot_add
from xjax.models.trees.tree_scorer import TreeScorer
from xjax.models.trees.tree_search import Link, TreeSearch

_TEXTS = 512  # number of label texts whose features are computed at a time
_ASSIGNED_ABOVE = 0.5  # a cosine


class PrototypesScorer(TreeScorer):
  """Ranks labels by the cosines of documents and prototypes."""

  def __init__(
    self,
    prototypes: sparse.csr_array,  # float32 [L, D]
    featuriser: TextFeaturiser | RowFeaturiser,  # of documents, and of names
    config: Config,
  ):
    # Cosines are the scores of linear classifiers whose weights are prototypes.
    n_labels = prototypes.shape[0]
    flat = complete_tree(n_labels, max(2, n_labels))
    # Labels without a prototype rank last. No cosine is below -1.
    bias = np.where(np.diff(prototypes.indptr) > 0, 0, -2).astype(np.float32)
    columns = sparse.csc_array(prototypes.T)
    # BlockWeights needs features that ascend.
    columns.sort_indices()
    parts = [Classifiers(columns, bias)]
    weights = BlockWeights.of(parts, flat.columns, columns.nnz)
    super().__init__(
      [TreeSearch(flat, weights, Link.NONE)],
      ScoreKind.MARGIN,
      featuriser,
      beam=1,
      exact=True,
      workers=max(1, config.data.workers),
      block=config.eval.batch_size,
    )
    self.assigned_above = _ASSIGNED_ABOVE
    self.prototypes, self._config = prototypes, config
    named = config.model.names
    self.fixed_labels = '' if named else cannot_add('PrototypesModel')

  def with_labels(self, space: LabelSpace) -> 'PrototypesScorer':
    """Returns a scorer of new labels too; their prototypes have no centroid."""
    if self.fixed_labels:
      raise ConfigError(self.fixed_labels)
    new = space.labels[self.n_labels : space.n_inside]
    rows = _scaled(_text_rows(self.featuriser, self._config.model.texts(new)))
    prototypes = sparse.vstack([self.prototypes, rows], format='csr')
    return PrototypesScorer(prototypes, self.featuriser, self._config)


def _prototypes(
  featuriser: TextFeaturiser | RowFeaturiser,
  corpus: Corpus,
  model: 'PrototypesModel',
) -> sparse.csr_array:
  space, parts = corpus.label_space, []
  n_labels = model.n_labels(space)
  if model.names:
    texts = model.texts(space.labels[:n_labels])
    parts.append(_text_rows(featuriser, texts))
  if model.centroids:
    split = corpus.splits[TRAIN]
    documents = Documents.of(split.documents)
    rows = featuriser.in_chunks(documents, f'features of {split.name}')
    parts.append(_centroids(rows, corpus.trained_gold, n_labels))
  # Both parts have length 1 before they are added, so neither outweighs the
  # other.
  whole = parts[0] if len(parts) == 1 else parts[0] + parts[1]
  return _scaled(whole)


def _text_rows(
  featuriser: TextFeaturiser, texts: Sequence[str]
) -> sparse.csr_array:
  """Returns the features of texts; texts without a letter have none."""
  named = np.array([has_letters(text) for text in texts], bool)
  starts = range(0, len(texts), _TEXTS)
  parts = [sparse.csr_array((0, featuriser.n_features), dtype=np.float32)]
  with Progress('features of label texts', len(texts)) as shown:
    for start in starts:
      parts.append(featuriser.featurise(texts[start : start + _TEXTS]))
      shown.update(parts[-1].shape[0])
  rows = sparse.vstack(parts, format='csr')
  return sparse.csr_array(sparse.diags_array(named.astype(np.float32)) @ rows)


def _centroids(
  rows: sparse.csr_array, gold: Ragged, n_labels: int
) -> sparse.csr_array:
  """Returns the sum of the features of each label's documents, of length 1."""
  ones = np.ones(len(gold.values), np.float32)
  parts = ones, gold.values, gold.indptr
  labels = sparse.csr_array(parts, (rows.shape[0], n_labels))
  # Documents are scaled first, so that long ones do not count more.
  return _scaled(sparse.csr_array(labels.T @ _scaled(rows)))


def _scaled(rows: sparse.csr_array) -> sparse.csr_array:
  """Returns rows of length 1 with ascending columns; rows of zeros stay."""
  norms = np.sqrt(rows.multiply(rows).sum(axis=1))
  scales = 1 / np.where(norms > 0, norms, 1)
  scaled = sparse.csr_array(sparse.diags_array(scales) @ rows)
  scaled.eliminate_zeros()
  scaled.sort_indices()
  return scaled.astype(np.float32)


@dataclasses.dataclass
class PrototypesModel(FeaturesModel):
  """Scores labels by the cosine of the document and a prototype of the label.

  The features of a text have length 1. The parts of a prototype are the
  features of the label's name, perhaps with its description, and the mean
  features of its training documents (its centroid). Each part is scaled to
  length 1, and so is their sum. A label that lacks a part has the other part as
  its prototype.
  """

  names: bool = field(
    True,
    'Whether names are parts of prototypes. The names of new labels are then '
    'their prototypes.',
  )
  descriptions: bool = field(
    False,
    'Whether the description of a label is read with its name. At least one '
    'label must have a description.',
  )
  centroids: bool = field(True, 'Whether centroids are parts of prototypes.')

  def faults(self, config: Any, path: str) -> Iterator[str]:
    yield from super().faults(config, path)
    tokens = config.data.tokens
    if isinstance(tokens, GivenFeaturesConfig) and tokens.norm is not Norm.L2:
      yield (
        f'config.data.tokens.norm={tokens.norm.name}: prototypes are compared '
        'with rows of length 1; set config.data.tokens.norm=L2'
      )
    if not self.names and not self.centroids:
      yield f'{path}: names or centroids must be True'
    if self.descriptions and not self.names:
      yield f'{path}.descriptions=True: needs {path}.names=True'
    if self.names and config.data.sparse:
      yield (
        f'{path}.names=True: config.data={type(config.data).__name__}(...) has '
        'features of documents, but none of names; set names=False'
      )

  def n_labels(self, space: LabelSpace) -> int:
    """Returns how many labels have prototypes, of a run with these labels."""
    return space.n_inside if self.names else space.n_trained

  def texts(self, labels: Iterable[Label]) -> list[str]:
    """Returns what is read of labels."""
    if self.descriptions:
      return [f'{label.name}\n{label.description}' for label in labels]
    return [label.name for label in labels]

  def check(self, corpus: Corpus, run: Run) -> None:
    check_one_process(run.config)
    check_features(corpus, run)
    if self.names:
      space = corpus.label_space
      labels = space.labels[: space.n_inside]
      texts = [label.description for label in labels]
      if self.descriptions and not any(map(has_letters, texts)):
        raise DataError('no label has a description')
      check_letters([text] for text in self.texts(labels))
    if self.centroids:
      check_train_labels(corpus)

  def fit(self, corpus: Corpus, run: Run) -> None:
    def build() -> Callable[[pathlib.Path], None]:
      featuriser = fit_featuriser(corpus.splits[TRAIN], run)
      arrays = {
        'features': np.int64(featuriser.n_features),
        **matrix_arrays('prototypes', _prototypes(featuriser, corpus, self)),
      }
      return lambda path: write_npz(path, arrays)

    run.once(_file(run), build, lambda _: None)  # `open` reads the file

  def open(self, run: Run) -> PrototypesScorer:
    path = _file(run)
    prototypes = run.read(path, _load)
    n_labels = self.n_labels(run.label_space())
    featuriser = open_featuriser(run, prototypes.shape[1])
    wanted = {'label': n_labels, 'feature': featuriser.n_features}
    check_sizes(path, dict(zip(wanted, prototypes.shape)), wanted)
    return PrototypesScorer(prototypes, featuriser, run.config)

  def reads_names(self, config: Config) -> bool:
    return self.names


def _load(path: pathlib.Path) -> sparse.csr_array:
  arrays = Arrays.read(path)
  prototypes = arrays.matrix('prototypes', arrays.count('features'))
  arrays.finish()
  return prototypes


def _file(run: Run) -> pathlib.Path:
  return run.folder.model / 'prototypes.npz'
