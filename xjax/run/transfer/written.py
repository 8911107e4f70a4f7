"""Writes the documents and the labels of a corpus in a format of xjax."""

from collections.abc import Iterator, Sequence
import json
from typing import Any

import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import progress
from xjax.core.types import PAD, Ragged
from xjax.data.formats.corpus_builder import USUAL, SourceCorpus
from xjax.data.formats.jsonl import LABELS
from xjax.data.formats.taxonomy import ROOT
from xjax.data.hierarchy import Hierarchy
from xjax.data.schema import Document, Label, Labels, label_row
from xjax.run.transfer.relabelling import Relabelling
from xjax.run.transfer.request import Form, TransferRequest

ONLY_TEXT = ('text',)  # the only zone of a document that has no named zones
_ENDING = {Form.JSONL: 'jsonl', Form.HTC: 'json'}


def split_file(name: str, request: TransferRequest) -> str:
  """Returns the name of the file of a split."""
  return f'{name}.{_ENDING[request.form]}{".gz" * request.gzip}'


def labels_file(request: TransferRequest) -> str:
  """Returns the name of the file of the labels."""
  if request.form is Form.HTC:
    return 'taxonomy.txt'
  return f'{LABELS}.jsonl{".gz" * request.gzip}'


def check_writable(
  raw: SourceCorpus, labels: Labels, request: TransferRequest
) -> None:
  """Checks that the format reserves no name of a split or a label."""
  for name in raw.splits:
    if request.form is Form.HTC and name not in USUAL:
      raise ConfigError(
        f'--format=htc: has only the splits {", ".join(USUAL)}, not {name!r}; '
        'use --format=jsonl'
      )
    if name == LABELS:
      raise ConfigError(f'a split cannot have the name {LABELS!r}; rename it')
  if request.form is Form.HTC and ROOT in labels.ids.row_of:
    raise ConfigError(
      f'--format=htc: {ROOT!r} is the top of every taxonomy, but a label has '
      'this id; use --format=jsonl'
    )


class DocumentLines:
  """Makes the lines of the documents of a split, and counts what changes.

  Of `counts`, `without_labels` are documents that have lost all labels.
  `removed` and `added` are labels of documents; `implied` are ancestors that
  documents do not have, but get when the format is read.
  """

  def __init__(
    self,
    raw: SourceCorpus,
    name: str,
    relabelling: Relabelling,
    request: TransferRequest,
    zones: Sequence[str] = (),
  ):
    """`zones` are joined if the format has only one; () means all zones."""
    self._split, self._name = raw.splits[name], name
    self._source = raw.source
    self._relabelling, self._form = relabelling, request.form
    self._zones = zones if request.form is Form.HTC else ()
    self._hierarchy: Hierarchy | None = None
    if request.form is Form.HTC and len(relabelling.labels.parents.bytes()):
      self._hierarchy = Hierarchy.of(relabelling.labels)
    kinds = 'documents', 'without_labels', 'removed', 'added', 'implied'
    self.counts = dict.fromkeys(kinds, 0)

  def __iter__(self) -> Iterator[str]:
    documents, gold = self._split.documents, self._split.gold
    with progress(documents, f'writing {self._name}') as shown:
      for row, document in enumerate(shown):
        self._check(document)
        labels = self._relabelling.of_row(gold[row])
        self._count(gold[row], labels)
        record = _records[self._form](document, labels, self._zones)
        yield json.dumps(record, ensure_ascii=False)

  def _count(self, before: np.ndarray, labels: Sequence[str]) -> None:
    removed = int((self._relabelling.new.lengths[before] == 0).sum())
    self.counts['documents'] += 1
    self.counts['without_labels'] += len(before) > 0 and not labels
    self.counts['removed'] += removed
    self.counts['added'] += len(labels) - (len(before) - removed)
    if self._hierarchy and labels:
      nodes = self._hierarchy.ids.row_of.find(labels)
      nodes = nodes[nodes != PAD]
      closed = self._hierarchy.with_ancestors(Ragged.of([nodes]))
      self.counts['implied'] += len(closed.values) - len(nodes)

  def _check(self, document: Document) -> None:
    if not any(text.strip() for text in document.zones.values()):
      raise DataError(
        f'{self._source}: {self._name}: document {document.id!a} has no text, '
        'so that no format of xjax can hold it; remove the document'
      )
    if not document.text(_read_zones(document, self._zones)).strip():
      raise DataError(
        f'{self._source}: {self._name}: document {document.id!a} has no text '
        f'in the zones that are joined ({", ".join(self._zones)}); use '
        '--format=jsonl, or give other zones with --config.data.zones'
      )


def _read_zones(document: Document, zones: Sequence[str]) -> Sequence[str]:
  """Returns the zones that a model reads; () if it reads all zones."""
  return zones if any(zone in document.zones for zone in zones) else ()


def _jsonl_record(
  document: Document, labels: Sequence[str], zones: Sequence[str]
) -> dict[str, Any]:
  del zones
  texts = dict(document.zones)
  texts = texts if tuple(texts) == ONLY_TEXT else {'zones': texts}
  return {'id': document.id, **texts, 'labels': list(labels)}


def _htc_record(
  document: Document, labels: Sequence[str], zones: Sequence[str]
) -> dict[str, Any]:
  """Returns a document in the form that HtcData reads, with one zone."""
  text = document.zones.get('text')
  if tuple(document.zones) != ONLY_TEXT:
    text = document.text(_read_zones(document, zones))
  return {'id': document.id, 'doc_token': text, 'doc_label': list(labels)}


_records = {Form.JSONL: _jsonl_record, Form.HTC: _htc_record}


def label_lines(labels: Sequence[Label]) -> Iterator[str]:
  """Yields the lines of labels.jsonl."""
  for label in labels:
    yield json.dumps(label_row(label), ensure_ascii=False)


def taxonomy_lines(labels: Sequence[Label]) -> Iterator[str]:
  """Yields `parent<TAB>child...`; Root has labels without known parents."""
  known = {label.id for label in labels}
  children: dict[str, list[str]] = {ROOT: []}
  for label in labels:
    above = [parent for parent in label.parents if parent in known]
    for parent in above or (ROOT,):
      children.setdefault(parent, []).append(label.id)
  for parent, below in children.items():
    yield '\t'.join((parent, *below))
