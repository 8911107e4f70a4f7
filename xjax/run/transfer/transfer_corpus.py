"""Transfers a corpus between hierarchical and flat form (xjax transfer).

The paper is Bertalis et al., Sections 3.2 and 3.3. The new folder has JSON
lines and labels.jsonl. For a hierarchical corpus, it also has meta_labels.txt:
the ids of its meta-labels, which judging leaves out (eval.leave_out).
"""

from collections.abc import Iterator
import dataclasses
import enum
import glob
import os
import pathlib

from absl import logging
import numpy as np

from xjax.core.atomic import build_folder, check_new_folder, remove_temporaries
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress, progress
from xjax.core.types import PAD, Ragged
from xjax.data.files.faults import plural
from xjax.data.files.json_lines import write_json_lines
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
from xjax.data.formats.label_files import LABELS
from xjax.data.hierarchy import Hierarchy
from xjax.data.load import choose_zones
from xjax.data.schema import Document, Label, Labels, label_row
from xjax.models.contract import Config
from xjax.run.transfer.meta_labels import (
  MetaLabelTree,
  Relabelling,
  cluster_labels,
  in_tree,
  labels_to_cluster,
  tree_lines,
)

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
