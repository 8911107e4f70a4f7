"""Transfers a corpus between hierarchical and flat form (xjax transfer).

The paper is Bertalis et al., Sections 3.2 and 3.3. The folder that is written
has the new corpus and these files:

- transfer.json: what was transferred, and what was printed; also the zones that
  models of the source read, and whether labels have an order;
- original/labels.jsonl: the labels of the source, if they have descriptors;
- meta_labels.txt: for a hierarchical corpus, the ids of its meta-labels, which
  judging leaves out (eval.leave_out);
- tree.npz: for a hierarchical corpus, the tree.
"""

import collections
from collections.abc import Iterable, Iterator
import dataclasses
import glob
import gzip
import hashlib
import json
import os
import pathlib
from typing import Any

from absl import logging

from xjax.core.atomic import (
  atomic_write,
  build_folder,
  remove_temporaries,
  write_json,
  write_npz,
)
from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.data.files.faults import Faults, plural
from xjax.data.files.file_set import read_json
from xjax.data.files.json_lines import Fields, read_rows
from xjax.data.formats.corpus_builder import TRAIN, SourceCorpus
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
_RECORD = 'transfer.json'
_OTHER = 'use another --output, or remove the folder'
_ORIGINAL = 'original/labels.jsonl'
_TREE, _PREFIX = 'tree.npz', 'tree'


def transfer(config: Config, request: TransferRequest) -> list[str]:
  """Writes a corpus in flat or in hierarchical form; returns lines about it.

  The folder appears when it is complete. ConfigError: the request does not fit
  the corpus, or the folder has other files.
  """
  request.check(config)
  output = pathlib.Path(os.path.expanduser(request.output)).absolute()
  source = os.path.realpath(os.path.expanduser(config.data.dir))
  if config.data.dir and source == os.path.realpath(output):
    raise ConfigError(
      f'--output={request.output}: is the folder of the corpus; give a new one'
    )
  facts = json.loads(json.dumps(request.facts(config)))
  record = _earlier_record(output, facts)
  data = config.data.settled()
  with Progress('reading documents'):
    raw = data.read(request.splits, True)
  digest = _digest(raw)
  if record:
    if record['corpus'] != digest:
      raise DataError(f'{output}: has files of another corpus; {_OTHER}')
    logging.info('%s: is complete already', output)
    return record['lines']
  config = dataclasses.replace(config, data=data)
  lines: list[str] = []

  def build(folder: pathlib.Path) -> None:
    result, shown = _Transfer(config, request, raw, folder).run()
    lines.extend(shown)
    record = {'arguments': facts, 'corpus': digest, 'result': result}
    write_json(folder / _RECORD, record | {'lines': lines})

  remove_temporaries(output.parent, glob.escape(output.name))
  build_folder(output, build)
  _earlier_record(output, facts)  # another transfer may have made the folder
  return lines


def _earlier_record(
  output: pathlib.Path, facts: dict[str, Any]
) -> dict[str, Any] | None:
  """Returns the record of a transfer with the same arguments, if any."""
  if output.exists() and not output.is_dir():
    raise ConfigError(f'--output={output}: is a file; give a folder')
  if not output.exists() or not (names := sorted(os.listdir(output))):
    return None
  if _RECORD not in names:
    raise ConfigError(
      f'--output={output}: the folder has files that are not of a transfer, '
      f'such as {names[0]}; {_OTHER}'
    )
  record = _read_record(output)
  theirs = record['arguments']
  for name in {**facts, **theirs}:
    if facts.get(name) != theirs.get(name):
      raise ConfigError(
        f'{output}: was written with {name}={theirs.get(name)!r}, but now it '
        f'is {facts.get(name)!r}; {_OTHER}'
      )
  return record


def _read_record(folder: pathlib.Path) -> dict[str, Any]:
  path = folder / _RECORD
  if not path.is_file():
    raise DataError(
      f'{folder}: no transfer has made this corpus (no {_RECORD}), so it has '
      'no original'
    )
  record = read_json(path)
  parts = {'arguments': dict, 'result': dict, 'corpus': str, 'lines': list}
  if not all(isinstance(record.get(x), kind) for x, kind in parts.items()):
    raise DataError(f'{path}: is damaged; {_OTHER}')
  return record


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
  folder: pathlib.Path  # a temporary one
  # Facts about the transfer that has made the source, if it is undone.
  earlier: dict[str, Any] = dataclasses.field(default_factory=dict)

  def run(self) -> tuple[dict[str, Any], list[str]]:
    """Returns facts about the new corpus, and lines for the user."""
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
    parts = [
      plural(result['documents'], 'document'),
      plural(result['labels'], 'label'),
    ]
    if meta := result['meta_labels']:
      parts.append(plural(meta, 'meta-label'))
    title = f'{self.request.output}: {", ".join(parts)}'
    more = _lines_about(result, self.raw, self.request)
    return result, [title, *lines, *more]

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
    tree = cluster_labels(corpus, self.config, self.request)
    arrays = {f'{_PREFIX}/{k}': v for k, v in tree.arrays().items()}
    write_npz(self.folder / _TREE, arrays, packed=True)
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
    record = _read_record(source)
    arguments, result = record['arguments'], record['result']
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
      _write_lines(self.folder / _ORIGINAL, label_lines(self.raw.labels))
    if len(relabelling.meta):
      _write_lines(self.folder / META, relabelling.meta)
    path = self.folder / labels_file(self.request)
    if self.request.form is Form.HTC:
      _write_lines(path, taxonomy_lines(labels))
    elif relabelling.described:
      _write_lines(path, label_lines(labels))

  def _write_splits(
    self, relabelling: Relabelling, zones: tuple[str, ...]
  ) -> dict[str, int]:
    """Writes the documents; returns the sums of DocumentLines.counts."""
    sums = collections.Counter()
    for name in self.raw.splits:
      lines = DocumentLines(self.raw, name, relabelling, self.request, zones)
      _write_lines(self.folder / split_file(name, self.request), lines)
      sums.update(lines.counts)
    return dict(sums)

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


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
  """Writes lines in UTF-8, gzipped if the name ends in .gz."""
  with atomic_write(path, 'wb') as file:
    if path.suffix == '.gz':
      # Without the time and the name, equal contents give equal files.
      options = {'mode': 'wb', 'mtime': 0, 'filename': ''}
      with gzip.GzipFile(fileobj=file, **options) as packed:
        packed.writelines(f'{line}\n'.encode() for line in lines)
    else:
      file.writelines(f'{line}\n'.encode() for line in lines)


def _has_texts(label: Label) -> bool:
  return label.name != label.id or bool(label.alt or label.description)


def _read_original(path: pathlib.Path) -> Labels:
  """Reads the labels of the source, whose parents may have no descriptor."""
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
