"""Transfers a corpus between hierarchical and flat form (xjax transfer).

The paper is Bertalis et al., Sections 3.2 and 3.3. The folder that is written
has the new corpus and these files:

- transfer.json: what was transferred, and the digests of all files;
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

from xjax.config.run import Config
from xjax.core.arrays import Arrays
from xjax.core.atomic import write_npz
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.data.files.faults import Faults, plural
from xjax.data.formats.descriptors import read_descriptors
from xjax.data.formats.draft import TRAIN, RawCorpus
from xjax.data.labels import read_left_out
from xjax.data.schema import Labels, label_row
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
from xjax.score.trees.label_tree import LabelTree

META = 'meta_labels.txt'
_ORIGINAL = 'original/labels.jsonl'
_TREE, _PREFIX = 'tree.npz', 'tree'


def transfer(config: Config, request: TransferRequest) -> list[str]:
  """Writes a corpus in flat or in hierarchical form.

  If the same transfer was killed, files that are complete are kept.

  Args:
    config: config whose corpus is read; its model is not used.
    request: what is written.

  Returns:
    Lines of text about the new corpus.

  Raises:
    ConfigError: the request does not fit the corpus, or the folder has other
      files.
    DataError: the corpus or the folder has a fault.
    WriteError: the folder cannot be written.
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


def _digest(raw: RawCorpus) -> str:
  """Returns the hex digest of all documents and descriptors of a corpus."""
  splits = {name: split.digest for name, split in raw.splits.items()}
  digest = hashlib.sha256(json.dumps([splits, raw.label_ids]).encode())
  for label in raw.labels:
    digest.update(json.dumps(label_row(label)).encode())
  return digest.hexdigest()


@dataclasses.dataclass(eq=False)
class _Transfer:
  """Writes the files of one transfer.

  Attributes:
    config: config of the source.
    request: what is written.
    raw: the source.
    folder: the folder to write.
  """

  config: Config
  request: TransferRequest
  raw: RawCorpus
  folder: TransferFolder

  def run(self) -> list[str]:
    """Writes all files, and describes the new corpus."""
    lines: list[str] = []
    match self.request.target:
      case Target.FLAT:
        relabelling = self._flat()
      case Target.HIERARCHICAL:
        relabelling, lines = self._hierarchical()
      case Target.ORIGINAL:
        relabelling = self._original()
    check_writable(self.raw, relabelling.labels, self.request)
    self._write_labels(relabelling)
    counts = self._write_splits(relabelling)
    result = self._result(relabelling, counts)
    self.folder.finish(result)
    parts = [
      plural(result['documents'], 'document'),
      plural(result['labels'], 'label'),
    ]
    if meta := result['meta_labels']:
      parts.append(plural(meta, 'meta-label'))
    title = f'{self.request.output}: {", ".join(parts)}'
    return [title, *lines, *_lines_about(result, self.raw)]

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
      self.folder.start()
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
    """Undoes the transfer that has made the source."""
    source = pathlib.Path(os.path.expanduser(self.config.data.dir))
    arguments, result = read_result(source)
    _check_undo(source, arguments, result)
    meta, labels = (), None
    if arguments.get('to') == Target.HIERARCHICAL.value:
      meta = read_left_out(str(source / META), META)
    if result.get('described'):
      faults = Faults(on_error=None)
      described = read_descriptors(source / _ORIGINAL, faults)
      labels = Labels.of(described.labels.values())
      faults.settle()
    return without_meta_labels(self.raw, meta, labels)

  def _write_labels(self, relabelling: Relabelling) -> None:
    """Writes the labels of the source and the new labels."""
    if len(self.raw.labels) and self.request.target is not Target.ORIGINAL:
      self.folder.write_lines(_ORIGINAL, label_lines(self.raw.labels))
    if len(relabelling.meta):
      self.folder.write_lines(META, relabelling.meta)
    name = labels_file(self.request)
    if self.request.form is Form.HTC:
      self.folder.write_lines(name, taxonomy_lines(relabelling.labels))
    elif relabelling.described:
      self.folder.write_lines(name, label_lines(relabelling.labels))

  def _write_splits(self, relabelling: Relabelling) -> dict[str, int]:
    """Writes the documents, and returns the sums of DocumentLines.counts."""
    parts = relabelling, self.request
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

  def _result(
    self, relabelling: Relabelling, counts: dict[str, int]
  ) -> dict[str, Any]:
    """Returns the facts about the new corpus that transfer.json keeps."""
    is_htc, meta = self.request.form is Form.HTC, len(relabelling.meta)
    return {
      **counts,
      'labels': len(relabelling.labels) - meta,
      'meta_labels': meta,
      'described': len(self.raw.labels) > 0,
      'joined_zones': is_htc and tuple(self.raw.zones) != ONLY_TEXT,
    }


def _check_undo(
  source: pathlib.Path, arguments: dict[str, Any], result: dict[str, Any]
) -> None:
  """Checks that a corpus still has all that its original had.

  Raises:
    ConfigError: it does not; the message says what is lost.
  """
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


def _lines_about(result: dict[str, Any], raw: RawCorpus) -> Iterator[str]:
  """Yields lines about what has changed in the documents."""
  if result['without_labels']:
    yield (
      'documents that have no label any more; they are kept, with no labels: '
      f'{result["without_labels"]:,}'
    )
  if result['removed']:
    yield f'labels removed from documents: {result["removed"]:,}'
  if result['added']:
    yield f'labels added to documents: {result["added"]:,}'
  if result['joined_zones']:
    yield f'the zones of documents ({", ".join(raw.zones)}) are joined'
  if raw.drawn:
    yield f'splits that xjax has drawn: {", ".join(raw.drawn)}'
