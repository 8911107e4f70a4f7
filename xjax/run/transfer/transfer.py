"""Transfers a corpus between hierarchical and flat form (xjax transfer).

The paper is Bertalis et al., Sections 3.2 and 3.3. The folder that is written
has the new corpus and these files:

- transfer.json: what was transferred, and the digests of all files; also the
  zones that models of the source read, and whether labels have an order;
- original/labels.jsonl: the labels of the source, if they have descriptors;
- meta_labels.txt: for a hierarchical corpus, the ids of its meta-labels, which
  judging leaves out (eval.leave_out);
- tree.npz: for a hierarchical corpus, the tree.
"""

from collections.abc import Iterator
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from absl import logging

from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.data.files.faults import Faults, plural
from xjax.data.files.json_lines import Fields, read_rows
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
from xjax.data.label_trees.label_tree import LabelTree
from xjax.data.labels import read_left_out
from xjax.data.load import choose_zones
from xjax.data.schema import Label, Labels, label_row, read_label
from xjax.models.contract import Config
from xjax.run.transfer.clusters import (
  cluster_labels,
  in_tree,
  labels_to_cluster,
  tree_lines,
)
from xjax.run.transfer.folder import TransferFolder, read_result
from xjax.run.transfer.relabelling import (
  Relabelling,
  flattened,
  with_parents,
  without_meta_labels,
)
from xjax.run.transfer.request import (
  Form,
  Target,
  TransferRequest,
)
from xjax.run.transfer.written import (
  ONLY_TEXT,
  DocumentLines,
  check_writable,
  label_lines,
  labels_file,
  split_file,
  taxonomy_lines,
)

META = 'meta_labels.txt'
_ORIGINAL = 'original/labels.jsonl'
_TREE, _PREFIX = 'tree.npz', 'tree'


def transfer(config: Config, request: TransferRequest) -> list[str]:
  """Writes a corpus in flat or in hierarchical form; returns lines about it.

  If the same transfer was killed, files that are complete are kept. The model
  of the config is not used.

  Raises:
    ConfigError: the request does not fit the corpus, or the folder has other
      files.
  """
  request.check(config)
  folders = config.data.dir, request.output
  source, target = (os.path.realpath(os.path.expanduser(x)) for x in folders)
  if config.data.dir and source == target:
    raise ConfigError(
      f'--output={request.output}: is the folder of the corpus; give a new one'
    )
  facts = request.facts(config)
  with TransferFolder.opened(request.output, facts) as folder:
    data = config.data.settled()
    with Progress('reading documents'):
      raw = data.read(request.splits, True)
    folder.check_corpus(_digest(raw))
    config = dataclasses.replace(config, data=data)
    return _Transfer(config, request, raw, folder).run()


def _digest(raw: SourceCorpus) -> str:
  splits = {name: split.digest for name, split in raw.splits.items()}
  digest = hashlib.sha256(json.dumps([splits, raw.label_ids]).encode())
  for label in raw.labels:
    digest.update(json.dumps(label_row(label)).encode())
  return digest.hexdigest()


@dataclasses.dataclass(eq=False)
class _Transfer:
  """Writes the files of one transfer from the source `raw`."""

  config: Config
  request: TransferRequest
  raw: SourceCorpus
  folder: TransferFolder
  # Facts about the transfer that has made the source, if it is undone.
  earlier: dict[str, Any] = dataclasses.field(default_factory=dict)

  def run(self) -> list[str]:
    lines: list[str] = []
    match self.request.target:
      case Target.FLAT:
        relabelling = self._flat()
      case Target.HIERARCHICAL:
        relabelling, lines = self._hierarchical()
      case Target.ORIGINAL:
        relabelling = self._original()
    labels, n_parents = with_parents(relabelling.labels)
    check_writable(self.raw, labels, self.request)
    zones = self._zones()
    self._write_labels(relabelling, labels)
    counts = self._write_splits(relabelling, zones)
    result = {
      **counts,
      **self._result(relabelling),
      'parents': n_parents,
      'zones': list(zones),
    }
    self.folder.finish(result)
    parts = [
      plural(result['documents'], 'document'),
      plural(result['labels'], 'label'),
    ]
    if meta := result['meta_labels']:
      parts.append(plural(meta, 'meta-label'))
    title = f'{self.request.output}: {", ".join(parts)}'
    return [title, *lines, *_lines_about(result, self.raw, self.request)]

  def _zones(self) -> tuple[str, ...]:
    """Returns the zones that a model of the source reads; () means all."""
    zones = choose_zones(self.raw, self.config.data.zones)
    if not self.config.data.zones:
      known = self.earlier.get('zones') or ()
      zones = tuple(z for z in self.raw.zones if z in known) or zones
    return zones

  def _hierarchical(self) -> tuple[Relabelling, list[str]]:
    corpus = labels_to_cluster(self.raw, self.config)
    if TRAIN not in corpus.splits:
      raise DataError(
        f'{self.raw.source}: has no split train, whose documents are needed to '
        'cluster labels'
      )
    if any(label.parents for label in corpus.label_space.labels):
      logging.info('the tree of clusters replaces the parents of labels')
    path = self.folder.path / _TREE
    if self.folder.has(_TREE):
      logging.info('%s: is complete already', path)
    else:
      tree = cluster_labels(corpus, self.config, self.request)
      arrays = {f'{_PREFIX}/{k}': v for k, v in tree.arrays().items()}
      self.folder.forget()  # other files may be about another tree
      write_npz(path, arrays, packed=True)
      self.folder.note(_TREE)
    arrays = Arrays.read(path)
    tree = LabelTree.take(arrays, _PREFIX)
    arrays.finish()
    space, prefix = corpus.label_space, self.request.prefix
    return in_tree(tree, space, self.raw, prefix), tree_lines(tree)

  def _flat(self) -> Relabelling:
    if not any(label.parents for label in self.raw.labels):
      logging.warning(
        '%s: no label has parents, so the corpus is flat already',
        self.raw.source,
      )
    return flattened(self.raw, self.request.kept)

  def _original(self) -> Relabelling:
    source = pathlib.Path(os.path.expanduser(self.config.data.dir))
    arguments, result = read_result(source)
    _check_undo(source, arguments, result)
    self.earlier = result
    meta, labels = (), None
    if arguments.get('to') == Target.HIERARCHICAL.value:
      meta = read_left_out(str(source / META), META)
    if result.get('described'):
      labels = _read_original(source / _ORIGINAL)
    return without_meta_labels(self.raw, meta, labels)

  def _write_labels(self, relabelling: Relabelling, labels: Labels) -> None:
    """Writes the labels of the source, and the new labels with all parents."""
    if len(self.raw.labels) and self.request.target is not Target.ORIGINAL:
      self.folder.write_lines(_ORIGINAL, label_lines(self.raw.labels))
    if len(relabelling.meta):
      self.folder.write_lines(META, relabelling.meta)
    name = labels_file(self.request)
    if self.request.form is Form.HTC:
      self.folder.write_lines(name, taxonomy_lines(labels))
    elif relabelling.described:
      self.folder.write_lines(name, label_lines(labels))

  def _write_splits(
    self, relabelling: Relabelling, zones: tuple[str, ...]
  ) -> dict[str, int]:
    """Writes the documents; returns the sums of DocumentLines.counts."""
    parts = relabelling, self.request, zones
    sums: dict[str, int] = {}
    for name in self.raw.splits:
      lines, file = DocumentLines(self.raw, name, *parts), self._file(name)
      self.folder.write_lines(file, lines, lambda of=lines: of.counts)
      facts = self.folder.facts(file)
      for kind in lines.counts:
        sums[kind] = sums.get(kind, 0) + facts.get(kind, 0)
    return sums

  def _file(self, split: str) -> str:
    return split_file(split, self.request)

  def _result(self, relabelling: Relabelling) -> dict[str, Any]:
    """Returns facts about the new corpus that transfer.json keeps."""
    is_htc, meta = self.request.form is Form.HTC, len(relabelling.meta)
    labels = relabelling.labels
    ordered = self.raw.ordered or self.config.data.labels == 'all'
    return {
      'labels': len(labels) - meta,
      'meta_labels': meta,
      'described': len(self.raw.labels) > 0,
      'joined_zones': is_htc and tuple(self.raw.zones) != ONLY_TEXT,
      'lost_texts': sum(map(_has_texts, labels)) if is_htc else 0,
      'ordered': ordered or bool(self.earlier.get('ordered')),
    }


def _has_texts(label: Label) -> bool:
  return label.name != label.id or bool(label.alt or label.description)


def _read_original(path: pathlib.Path) -> Labels:
  """Reads the labels of the source of an earlier transfer.

  Unlike the labels of a corpus, they may have parents without a descriptor.
  """
  faults, labels = Faults(on_error=None), []
  for number, row in read_rows(path, faults):
    fields = Fields(row)
    labels.append(read_label(fields))
    faults.extend(path, number, fields.faults)
  faults.settle()
  return Labels.of(labels)


def _check_undo(
  source: pathlib.Path, arguments: dict[str, Any], result: dict[str, Any]
) -> None:
  """Checks that a corpus still has all that its original had."""
  reasons = []
  if arguments.get('to') == Target.ORIGINAL.value:
    reasons.append('it is an original already')
  if result.get('removed'):
    reasons.append('documents have lost labels that are no leaves')
  is_flat = arguments.get('to') == Target.FLAT.value
  if is_flat and result.get('added'):
    reasons.append('documents have got ancestors of their labels')
  if result.get('joined_zones'):
    reasons.append('the zones of documents were joined')
  if reasons:
    raise ConfigError(
      f'{source}: cannot be turned back into its original: '
      f'{"; ".join(reasons)}; use the original corpus'
    )


def _lines_about(
  result: dict[str, Any], raw: SourceCorpus, request: TransferRequest
) -> Iterator[str]:
  """Yields lines about what has changed, and what to do about it."""
  if result['without_labels']:
    yield (
      'documents that have no label any more; they are kept, with no labels: '
      f'{result["without_labels"]:,}'
    )
  if result['removed']:
    yield f'labels removed from documents: {result["removed"]:,}'
  if result['added']:
    yield f'labels added to documents: {result["added"]:,}'
  yield from _zone_lines(result, raw)
  yield from _label_lines(result, request)
  if raw.drawn:
    yield f'splits that xjax has drawn: {", ".join(raw.drawn)}'


def _zone_lines(result: dict[str, Any], raw: SourceCorpus) -> Iterator[str]:
  """Yields lines about the zones that models of the new corpus read."""
  zones = tuple(result['zones']) or raw.zones
  if result['joined_zones']:
    yield f'the zones of documents ({", ".join(zones)}) are joined'
    if others := [zone for zone in raw.zones if zone not in zones]:
      yield (
        f'zones that models of {raw.source} do not read are lost: '
        f'{", ".join(others)}'
      )
  elif zones != raw.zones:
    yield (
      'documents keep all zones; to train on the same text as with '
      f'{raw.source}, give --config.data.zones={",".join(zones)}'
    )


def _label_lines(
  result: dict[str, Any], request: TransferRequest
) -> Iterator[str]:
  """Yields lines about labels that are read in another way than before."""
  jsonl = 'use --format=jsonl to keep'
  if result['lost_texts']:
    yield (
      'a taxonomy has no names, alternative names and descriptions; labels '
      f'that lose them: {result["lost_texts"]:,}; {jsonl} them'
    )
  if result['implied']:
    yield (
      'documents will be read with all ancestors of their labels; labels that '
      f'they will get: {result["implied"]:,}; {jsonl} the labels as they are'
    )
  if result['parents']:
    yield (
      f'parents without a descriptor: {result["parents"]:,}; they are in the '
      'file of labels too, with their ids as names'
    )
  if not (result['ordered'] and result['described']):
    return
  if request.form is Form.JSONL:
    yield (
      'models of the source have all labels in the order of their descriptors; '
      'so do models of the new corpus if you give --config.data.labels=all, or '
      'use a config for your own documents, such as own_linear'
    )
  else:
    yield f'the order of labels is lost; {jsonl} it'
