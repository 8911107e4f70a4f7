"""Maps the labels of documents to those that a transferred corpus has."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.types import PAD, Ragged
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Label, Labels
from xjax.run.transfer.request import KeptLabels


@dataclasses.dataclass(frozen=True, eq=False)
class Relabelling:
  """Holds the labels of a new corpus, and says which labels documents get."""

  ids: Sequence[str]  # of labels that documents may get
  # A row for each label of the source (SourceCorpus.label_ids), with indices
  # into `ids`: first the label itself, and then the labels that a document gets
  # in addition. A label with an empty row is removed.
  new: Ragged
  labels: Labels  # of the new corpus
  described: bool  # whether the new corpus has descriptors of its labels
  meta: Sequence[str] = ()  # ids of the labels that the source does not have

  def of_row(self, row: np.ndarray) -> list[str]:
    """Returns the ids of a document's new labels, each once.

    Labels of the source come first, in their order; others in that of `ids`.
    """
    rows = [self.new[label].tolist() for label in row.tolist()]
    own = dict.fromkeys(new[0] for new in rows if new)
    more = {label for new in rows for label in new[1:]}
    return [self.ids[i] for i in (*own, *sorted(more - own.keys()))]


def described_labels(raw: SourceCorpus) -> Labels:
  """Returns all descriptors of a corpus, and then labels that have none."""
  rows = raw.labels.ids.row_of.find(raw.label_ids)
  bare = (raw.label_ids[i] for i in np.flatnonzero(rows == PAD))
  return Labels.join(raw.labels, [Label(id_, id_) for id_ in bare])


def with_parents(labels: Labels) -> tuple[Labels, int]:
  """Adds the parents that have no descriptor, by id; returns how many."""
  rows = labels.ids.row_of
  names = dict.fromkeys(p for label in labels for p in label.parents)
  missing = [Label(id_, id_) for id_ in names if id_ not in rows]
  return Labels.join(labels, missing), len(missing)


def flattened(raw: SourceCorpus, kept: KeptLabels) -> Relabelling:
  """Forgets the parents of labels (Bertalis et al., Section 3.2).

  DataError: a label is its own ancestor. ConfigError: every label has a child.
  """
  labels = described_labels(raw)
  hierarchy = Hierarchy.of(labels)
  inside_V = np.ones(len(hierarchy), bool)
  if kept is KeptLabels.LEAVES:
    inside_V = hierarchy.children.lengths == 0
  inside_V[len(labels) :] = False  # parents without a descriptor
  nodes = np.flatnonzero(inside_V)
  own = hierarchy.ids.row_of.find(raw.label_ids)
  rows = [[node] if inside_V[node] else [] for node in own.tolist()]
  if kept is KeptLabels.CLOSED:
    above = hierarchy.ancestors
    rows = [
      row + [a for a in above[row[0]].tolist() if inside_V[a]] for row in rows
    ]
  flat = Labels.of(
    dataclasses.replace(label, parents=()) for label in labels[nodes]
  )
  described = len(raw.labels) > 0
  return Relabelling(hierarchy.ids, Ragged.of(rows), flat, described)


def without_meta_labels(
  raw: SourceCorpus, meta: Sequence[str], original: Labels | None
) -> Relabelling:
  """Leaves out meta-labels; `original`: the new descriptors, or None."""
  left_out = set(meta)
  rows = [[] if id_ in left_out else [i] for i, id_ in enumerate(raw.label_ids)]
  labels = original
  if labels is None:
    own = [id_ for id_ in raw.label_ids if id_ not in left_out]
    labels = Labels.of(()).with_ids(own)
  described = original is not None
  return Relabelling(raw.label_ids, Ragged.of(rows), labels, described)


def check_new_ids(
  meta: Sequence[str], raw: SourceCorpus, prefix: str, also: Sequence[str] = ()
) -> None:
  """Checks that ids of meta-labels are not those of labels, or in `also`."""
  taken = {*raw.label_ids, *raw.labels.ids, *also}
  if same := [id_ for id_ in meta if id_ in taken]:
    raise ConfigError(
      f'--prefix={prefix!a}: the corpus has a label {same[0]!a}, but a '
      'meta-label would have the same id; choose another --prefix'
    )
