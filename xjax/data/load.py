"""Loads the corpus of a config, and reads documents to be tagged."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import json

from absl import logging
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.progress import Progress
from xjax.core.types import Ragged
from xjax.data.documents import Documents
from xjax.data.files.faults import Faults, plural
from xjax.data.formats.corpus_builder import (
  TRAIN,
  USUAL,
  SourceCorpus,
  StoredDocuments,
  choose_splits,
  stored,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.labels import (
  add_concepts,
  add_outside,
  hold_out,
  make_space,
  mark_left_out,
  order_labels,
  read_left_out,
)
from xjax.data.quality import find_overlaps, similar_names_warning
from xjax.data.schema import Corpus, Document, LabelSpace, json_digest
from xjax.data.tokens_config import OnError
from xjax.data.vectors.feature_files import add_features

_LEAVE_OUT = 'config.eval.leave_out'


def build_corpus(
  raw: SourceCorpus,
  data: DataConfig,
  seed: int,
  space: LabelSpace | None = None,
  splits: Sequence[str] | None = None,
  leave_out: str = '',
) -> Corpus:
  """Makes a corpus from the documents and descriptors of a source.

  Documents keep only the zones in data.zones, or the zones of the full text if
  it is empty. Gold labels outside the label space are appended to it, with
  count 0. Held-out labels are removed from the gold labels of train. The
  `space` of a trained model keeps its labels, order and counts; with None, the
  config decides. `splits` None keeps all. `leave_out` is a file of labels that
  are neither predicted nor judged; a given `space` knows them already.

  A ConfigError says that data.zones, data.labels or data.hold_out_labels does
  not fit the source, or that `leave_out` does not exist; a DataError, that one
  of these files has faults, or that no document has a label.
  """
  zones = choose_zones(raw, data)
  left_out = read_left_out(leave_out, _LEAVE_OUT, data.dir)
  if space is None:
    space = make_space(order_labels(raw, data), raw)
    space = hold_out(space, data.hold_out_labels, seed, left_out)
    space = add_concepts(space, raw)
  space = add_outside(space, raw)
  space = mark_left_out(space, left_out, f'{_LEAVE_OUT}={leave_out}')
  index = space.index.find(raw.label_ids).astype(np.int32)
  held_out = np.zeros(len(space), bool)
  held_out[space.held_out] = True
  names = [n for n in raw.splits if splits is None or n in splits]
  corpus_splits = {}
  for name in names:
    split = raw.splits[name]
    hidden = held_out if name == TRAIN else np.zeros_like(held_out)
    documents = split.documents
    if zones:
      show = functools.partial(_keep_zones, zones)
      documents = StoredDocuments(documents, show)
    corpus_splits[name] = dataclasses.replace(
      split,
      gold=_relabel(split.gold, index, hidden),
      documents=documents,
      digest=json_digest(split.digest, zones),
    )
  fingerprint = _fingerprint(raw, names, zones, space)
  drawn = tuple(name for name in raw.drawn if name in names)
  return Corpus(space, corpus_splits, fingerprint, drawn, raw.left_out)


def cut_corpus(
  corpus: Corpus, zones: tuple[str, ...], checks: bool = True
) -> Corpus:
  """Returns a corpus whose documents have only some of their zones."""
  # A document with none of these zones keeps all, as in prediction. With
  # `checks`, a zone that no training document has is a DataError.
  documents = corpus.split(TRAIN).documents
  for zone in zones if checks else ():
    if not any(zone in document.zones for document in documents):
      raise DataError(f'no training document has the zone {zone!r}')
  show = functools.partial(_with_zones, zones)
  splits = {
    name: dataclasses.replace(
      split,
      documents=Documents.of(split.documents).seen_as(show, zones),
      digest=json_digest(split.digest, zones),
    )
    for name, split in corpus.splits.items()
  }
  fingerprint = json_digest(corpus.fingerprint, zones)
  return dataclasses.replace(corpus, splits=splits, fingerprint=fingerprint)


def _relabel(gold: Ragged, index: np.ndarray, hidden: np.ndarray) -> Ragged:
  """Drops hidden labels, maps the others by `index`, and sorts each row."""
  gold = Ragged(gold.indptr, index[gold.values]).ascending()
  return gold.keep(~hidden[gold.values])


def choose_zones(raw: SourceCorpus, data: DataConfig) -> tuple[str, ...]:
  """Returns the zones that documents keep; () means all zones."""
  # Other splits than train need not have the facts.
  facts = data.facts if TRAIN in raw.splits else ()
  zones = data.zones or data.text_zones * bool(data.facts)
  for name, chosen in ('zones', zones), ('facts', facts):
    for zone in chosen:
      if zone not in raw.zones:
        raise ConfigError(
          f'data.{name}: there is no zone {zone!r}; the zones of {raw.source} '
          f'are: {", ".join(raw.zones)}'
        )
  return data.kept_zones


def _fingerprint(
  raw: SourceCorpus,
  names: Sequence[str],
  zones: Sequence[str],
  space: LabelSpace,
) -> str:
  splits = [[name, raw.splits[name].digest] for name in names]
  sizes = [space.n_train, space.n_trained, space.n_held_out]
  digest = hashlib.sha256(json.dumps([splits, zones, sizes]).encode())
  digest.update(np.diff(space.ids.offsets).astype(np.int64))
  digest.update(np.ascontiguousarray(space.ids.bytes()))
  return digest.hexdigest()


def load_corpus(
  data: DataConfig,
  seed: int,
  space: LabelSpace | None = None,
  splits: Sequence[str] | None = None,
  leave_out: str = '',
  log: bool = True,
) -> Corpus:
  """Loads a corpus; if `log`, logs its sizes and what spoils a run.

  By default, train, dev and test are loaded if they exist. `seed` decides which
  labels are held out; for `space` and `leave_out`, see build_corpus. A
  ConfigError says that a field does not fit the source; a DataError, that the
  files have faults, or that a requested split is missing.
  """
  if data.abstract:
    raise ConfigError(
      f'data={type(data).__name__}: must be a corpus format, such as JsonlData'
    )
  # Without a given label space, the labels depend on train, dev and test, even
  # if only other splits are requested.
  with Progress('reading documents'):
    raw = data.read(splits or (), splits is None or space is None)
  names = choose_splits(raw.source, raw.splits, splits or (), splits is None)
  corpus = build_corpus(raw, data, seed, space, names, leave_out)
  with Progress('reading features of documents'):
    corpus = add_features(corpus, data)
  missing = (name for name in USUAL if splits is None and name not in names)
  for name in missing:
    logging.info('%s has no split %s; the split is left out', raw.source, name)
  if log:
    _log(corpus, is_new=space is None)
  return corpus


def _log(corpus: Corpus, is_new: bool) -> None:
  """Logs the sizes of a corpus; warns of what spoils training or judging."""
  for name, split in corpus.splits.items():
    logging.info('%s: %s', name, plural(len(split), 'document'))
  space = corpus.label_space
  parts = [f'{mask.sum()} {name}' for name, mask in space.masks().items()]
  outside = space.n_outside
  parts += [f'{outside} outside the label space'] if outside else []
  left_out = len(space.left_out)
  parts += [f'{left_out} left out of judging'] if left_out else []
  logging.info('%s: %s', plural(len(space), 'label'), ', '.join(parts))
  for overlap in find_overlaps(corpus):
    for message in overlap.warnings():
      logging.warning('%s', message)
  if is_new and (message := similar_names_warning(space)):
    logging.warning('%s', message)


def read_input(
  data: DataConfig, source: str, skip_bad_lines: bool = False
) -> Sequence[Document]:
  """Reads documents to be tagged, in the format of a corpus or as JSON lines.

  `source` is a file of JSON lines, plain or gzipped, or '-' for standard input;
  a feature file if data.sparse; or a table or folder of texts, if corpora of
  this format may be one. A JSON line that is no record of the corpus needs
  `text` or `zones`. Documents have the zones of read_zones, and the id line-N
  if they have none. Labels are None without a field for them, and get no
  ancestors.

  `skip_bad_lines` leaves faulty lines out, with a warning (a ConfigError for a
  feature file); otherwise data.on_error decides. A DataError says that the
  source cannot be read, has no documents, or has faults.
  """
  if data.sparse and skip_bad_lines:
    raise ConfigError(
      '--skip_bad_lines: lines of a feature file cannot be skipped, because '
      'the id of a document is its row; correct the file'
    )
  if data.sparse:
    return data.read_input(source)
  return stored(stream_input(data, source, skip_bad_lines))


def stream_input(
  data: DataConfig,
  source: str,
  skip_bad_lines: bool = False,
  on_wait: Callable[[], None] | None = None,
) -> Iterator[Document]:
  """Yields the documents of read_input, but of no feature file, as they come.

  A DataError with all faults ends the iteration; no document follows a fault
  that is an error. Of a pipe, each document is yielded when its line comes, and
  the first such fault is raised at once. `on_wait` is called before a pipe is
  waited for; it must not raise an OSError.
  """
  on_error = OnError.SKIP if skip_bad_lines else data.on_error
  faults = Faults(on_error, skip='--skip_bad_lines')
  for document in data.stream_input(source, faults, on_wait):
    yield read_zones(document, data)
  faults.raise_or_log()


def read_zones(document: str | Document, data: DataConfig) -> Document:
  """Returns a document with the config's zones, or with all if it has none."""
  if isinstance(document, str):
    return Document('', {'text': document})
  return _with_zones(data.kept_zones, document)


def _with_zones(zones: tuple[str, ...], document: Document) -> Document:
  kept = _keep_zones(zones, document)
  return kept if kept.zones else document


def _keep_zones(zones: Sequence[str], document: Document) -> Document:
  texts = document.zones
  kept = {zone: texts[zone] for zone in zones if zone in texts}
  return dataclasses.replace(document, zones=kept)
