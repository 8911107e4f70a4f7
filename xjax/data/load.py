"""The corpus that a config asks for."""

from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.data.batches.feature_files import add_features
from xjax.data.files.json_lines import Fields
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.draft import (
  TRAIN,
  USUAL,
  CutDocuments,
  RawCorpus,
  choose_splits,
  keep_zones,
)
from xjax.data.formats.jsonl import JsonlData, read_documents
from xjax.data.labels import add_outside, hold_out, make_space, order_labels
from xjax.data.schema import Corpus, Document, LabelSpace, Split

_IDS = 1 << 16  # of labels, spelled at a time


def build_corpus(
  raw: RawCorpus,
  data: DataConfig,
  seed: int,
  space: LabelSpace | None = None,
  splits: Sequence[str] | None = None,
) -> Corpus:
  """Makes a corpus of what a source found.

  Args:
    raw: the source's documents and descriptors.
    data: the label space, the zones and the hold-out.
    seed: decides which labels are held out.
    space: a trained model's labels, kept as they are; None: as data says.
    splits: those to keep; None: all.

  Returns:
    The corpus. Its documents have no zones but those that data names, or
    that make the full text. Gold that is not in the label space stands after
    it, with a training count of 0. The split train has no held-out labels.

  Raises:
    ConfigError: data.zones, data.labels or data.hold_out_labels cannot be met.
    DataError: a fault in a label list; no label at all.
  """
  zones = _choose_zones(raw, data.zones)
  if space is None:
    space = make_space(order_labels(raw, data), raw)
    space = hold_out(space, data.hold_out_labels, seed)
  space = add_outside(space, raw)
  index = space.index.find(raw.label_ids).astype(np.int32)
  held = space.masks().get('held_out', np.zeros(len(space), bool))
  names = [n for n in raw.splits if splits is None or n in splits]
  made = {}
  for name in names:
    split = raw.splits[name]
    hidden = held if name == TRAIN else np.zeros_like(held)
    made[name] = Split(
      name=name,
      ids=split.ids,
      gold=_relabel(split.gold, index, hidden),
      documents=CutDocuments(split.documents, zones)
      if zones
      else split.documents,
      digest=_digest(split.digest, zones),
    )
  return Corpus(space, made, _fingerprint(raw, names, zones, space))


def _relabel(gold: Ragged, index: np.ndarray, hidden: np.ndarray) -> Ragged:
  """Rows of new indices, sorted within each row, without the hidden ones."""
  values = index[gold.values]
  rows = np.repeat(np.arange(len(gold)), gold.lengths)
  values = values[np.lexsort((values, rows))]
  return Ragged(gold.indptr, values).keep(~hidden[values])


def _choose_zones(raw: RawCorpus, wanted: Sequence[str]) -> tuple[str, ...]:
  """The zones to cut documents to; empty: as they are."""
  for zone in wanted:
    if zone not in raw.zones:
      raise ConfigError(
        f'data.zones: no such zone: {zone!r}; {raw.source} has: '
        f'{", ".join(raw.zones)}'
      )
  return tuple(wanted) or raw.full_text


def _fingerprint(
  raw: RawCorpus,
  names: Sequence[str],
  zones: Sequence[str],
  space: LabelSpace,
) -> str:
  splits = [[name, raw.splits[name].digest] for name in names]
  sizes = [space.n_train, space.n_trained, space.n_held_out]
  # The digest of [splits, zones, sizes, ids], without a list of all ids.
  found = hashlib.sha256(json.dumps([splits, zones, sizes])[:-1].encode())
  found.update(b', [')
  for start in range(0, len(space), _IDS):
    ids = list(space.ids[start : start + _IDS])
    found.update(b', ' if start else b'')
    found.update(json.dumps(ids)[1:-1].encode())
  found.update(b']]')
  return found.hexdigest()


def _digest(*parts: Any) -> str:
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def load_corpus(
  data: DataConfig,
  seed: int,
  space: LabelSpace | None = None,
  splits: Sequence[str] | None = None,
) -> Corpus:
  """Loads a corpus, and logs its splits, those it lacks, and its labels.

  Args:
    data: the source; its type decides which.
    seed: decides which labels are held out.
    space: a trained model's labels: their order and counts are kept, and gold
      that is not among them is appended with count 0. None: as data says.
    splits: those to load; None: train, dev and test, where they are there.

  Returns:
    The corpus.

  Raises:
    ConfigError: a field of data that cannot be met.
    DataError: faults in the files, or a split asked for is absent.
  """
  if data.abstract:
    raise ConfigError(f'data: no corpus is read from {type(data).__name__}')
  # A label space of our own making depends on train, dev and test too.
  with Progress('reading documents'):
    raw = data.read(splits or (), splits is None or space is None)
  example, usual = 'a split train, dev or test', splits is None
  names = choose_splits(raw.source, raw.splits, splits or (), usual, example)
  corpus = build_corpus(raw, data, seed, space, names)
  with Progress('reading features of documents'):
    corpus = add_features(corpus, data)
  if splits is None:
    for name in USUAL:
      if name not in names:
        logging.info('%s has no split %s: it is left out', raw.source, name)
  _log(corpus)
  return corpus


def _log(corpus: Corpus) -> None:
  for name, split in corpus.splits.items():
    logging.info('%s: %d documents', name, len(split))
  space = corpus.label_space
  parts = [f'{mask.sum()} {name}' for name, mask in space.masks().items()]
  outside = space.n_outside
  parts += [f'{outside} outside the label space'] if outside else []
  logging.info('%d labels: %s', len(space), ', '.join(parts))


def read_input(data: DataConfig, source: str) -> Sequence[Document]:
  """Reads documents to be tagged, in the format of a corpus or as JSON lines.

  Args:
    data: the corpus a model was trained on; but for JSON lines, a line may
      also be a record of that corpus, one with neither text nor zones.
    source: a file of JSON lines, perhaps gzipped; '-' is standard input. For a
      corpus of feature files, such a file.

  Returns:
    The documents by random access, cut as by model_view; one without an id is
    line-N of the source, and labels are None where there is no such field;
    labels are as given, whatever a taxonomy says of them. Of a feature file,
    SparseDocuments.

  Raises:
    DataError: the source cannot be read, has no documents, or has faults.
  """
  if data.sparse:
    return data.read_rows(source)

  def read(
    fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    has_text = 'text' in fields or 'zones' in fields
    format_ = JsonlData() if has_text else data
    document = format_.read_record(fields, default_id, need_labels)
    if format_.label_field not in fields:
      document = dataclasses.replace(document, labels=None)
    return model_view(data, document)

  return read_documents(source, data.on_error, read)


def model_view(data: DataConfig, document: Document) -> Document:
  """Cuts a document to the zones that a corpus of this config has.

  One that has none of them, such as bare text, is left whole.
  """
  zones = tuple(data.zones) or data.full_text
  if not any(name in document.zones for name in zones):
    return document
  return keep_zones(document, zones)
