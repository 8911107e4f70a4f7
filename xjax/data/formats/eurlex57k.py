"""Reads EURLEX57K (Chalkidis et al. 2019): EU laws and EUROVOC concepts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import re
import sys
from typing import Any
import urllib.error
import urllib.request
import zipfile

from absl import logging
import numpy as np
import tensorflow_datasets as tfds

from xjax.core.atomic import build_folder, write_json
from xjax.core.errors import DAMAGE, DataError, UserError
from xjax.core.types import Ragged
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  find_files,
  find_source,
  only_file,
  parse_object,
  read_records,
  with_faults,
)
from xjax.data.formats.corpus_builder import (
  USUAL,
  CorpusBuilder,
  SourceCorpus,
  StoredDocuments,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import read_concepts
from xjax.data.schema import (
  Document,
  Labels,
  Split,
  json_digest,
  label_row,
  read_label,
)

# Zones in reading order. The full text has no title, as in Chalkidis et al.
# 2019, because the header repeats the title.
ZONES = ('title', 'header', 'recitals', 'main_body', 'attachments')
SITE = 'http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K/'
ARCHIVE_URL = SITE + 'datasets.zip'
CONCEPTS = 'eurovoc_en.json'
CONCEPTS_URL = SITE + CONCEPTS
FORMAT = 4  # version of prepared data; data of another version is not read
INDEX = 'index.json'
_DOCUMENT = re.compile(r'[^.].*\.json')  # not of JSON lines
_EXPECTED = (
  f'expected {CONCEPTS} and the official archive datasets.zip, its files '
  'dataset/{train,dev,test}/*.json, or {train,dev,test}.jsonl[.gz]'
)


@dataclasses.dataclass
class Eurlex57kData(DataConfig):
  """Configures EURLEX57K, the official archive or a folder of JSON lines."""

  label_field = 'concepts'
  full_text = ZONES[1:]

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads the corpus, and prepares it first if the cache does not have it.

    data.dir is the archive (zipped or unpacked) or a folder of JSON lines. If
    it is empty, the official archive is downloaded, and its documents must be
    the published ones; a warning is logged if those in data.dir are not.
    """
    folder = self.cache_folder / 'eurlex57k' / _key(self)
    source = self.dir or ARCHIVE_URL
    is_new = not folder.is_dir()
    if is_new:
      logging.info('preparing EURLEX57K in %s', folder)
      try:
        build_folder(folder, functools.partial(_prepare, self))
      except OSError as error:
        raise UserError(f'{folder}: cannot be written: {error}') from error
    try:
      raw = _open(folder, source)
    except DAMAGE as error:
      raise DataError(
        f'{folder}: is damaged ({error}); remove this folder, and EURLEX57K is '
        'prepared again'
      ) from error
    # _prepare has just logged this for a new corpus.
    if raw.left_out and not is_new:
      logging.warning('%s: %s', source, raw.left_out)
    raw = raw.chosen(splits, usual)
    ids = {name: split.ids for name, split in raw.splits.items()}
    if faults := differences_from_published(ids):
      logging.warning(
        '%s: these are not the documents of the published EURLEX57K (%s), so '
        'results cannot be compared with published results',
        source,
        '; '.join(faults),
      )
    return raw

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    """Reads a document; one that is to be tagged may lack zones."""
    # Fields requires a field whose default is None.
    blank, none = (None, None) if need_labels else ('', ())
    id_ = fields.identifier('celex_id', default_id)
    labels = fields.identifiers('concepts', none)
    zones = {
      name: '\n'.join(fields.texts(name, none))
      if name == 'main_body'
      else fields.text(name, blank)
      for name in ZONES
    }
    fields.check_text(zones.values())
    return Document(id_, zones, labels)


# The number of ids of each split and of the concepts, and the digest of the
# sorted ids if it is known. Chalkidis et al. 2019 publish the counts, but no
# digests. The digests here are from a copy of train, dev and the concepts. The
# ids of the split test are not known here, so only its documents are counted.
PUBLISHED = {
  'train': (
    45_000,
    '5ed5aa7a2461920da3f218a165eb06891ae6dfd4b13b2da8bdcb88d2a25ceae5',
  ),
  'dev': (
    6_000,
    '15642ec3aef79c9e5b81ef4bc9a336e3d7821cd436037ce7d46fd1a4eb45a833',
  ),
  'test': (6_000, ''),
  'concepts': (
    7_201,
    'b7d763357c5768bf5dd3fd7fbc2e6ad2f24199e75800997b2eaee3e9eaba01d7',
  ),
}


def differences_from_published(ids: Mapping[str, Collection[str]]) -> list[str]:
  """Returns what differs from the published ids of splits and concepts."""
  faults = []
  for name in ids.keys() & PUBLISHED.keys():
    count, digest = PUBLISHED[name]
    text = '\n'.join(sorted(ids[name]))
    if len(ids[name]) != count:
      faults.append(f'{name} has {len(ids[name]):,} ids, not {count:,}')
    elif digest and hashlib.sha256(text.encode()).hexdigest() != digest:
      faults.append(f'{name} has other ids')
  return sorted(faults)


# A file of JSON lines, or the file of each document, perhaps in an archive.
_Files = Sequence[pathlib.Path | zipfile.Path]


def _find_files(
  path: pathlib.Path, faults: Faults
) -> tuple[dict[str, _Files], list[pathlib.Path]]:
  """Finds splits and concepts in an archive, a folder of it, or JSON lines."""
  folder = path.parent if path.is_file() else path
  places = (folder / CONCEPTS, folder / 'dataset' / CONCEPTS)
  concepts = [place for place in places if place.is_file()][:1]
  files = {} if path.is_file() else find_files(path)
  splits: dict[str, _Files] = {
    name: [only_file(files[name], faults)] for name in USUAL if name in files
  }
  splits = splits or _files_in(path / 'dataset')
  archives = [path] if path.is_file() else sorted(path.glob('*.zip'))
  if not splits and len(archives) == 1:
    try:
      root = zipfile.Path(archives[0])
    except DAMAGE as error:
      message = f'not a zip archive: {str(error)[:80]}'
      raise DataError(f'{archives[0]}: {message}') from error
    splits = _files_in(root / 'dataset')
  if not splits:
    raise DataError(f'{path}: no EURLEX57K here; {_EXPECTED}')
  return splits, concepts


def _files_in(root: pathlib.Path | zipfile.Path) -> dict[str, _Files]:
  return {
    name: sorted(
      (x for x in (root / name).iterdir() if _DOCUMENT.fullmatch(x.name)),
      key=str,
    )
    for name in USUAL
    if (root / name).is_dir()
  }


def _records(
  files: _Files, faults: Faults
) -> Iterator[tuple[int | None, Fields]]:
  for file in files:
    if not _DOCUMENT.fullmatch(file.name):
      yield from read_records(file, faults)
      continue
    try:
      row = parse_object(file.read_bytes())
    except Fault as fault:
      faults.add(str(file), fault.line, str(fault))
    except DAMAGE as error:
      # The fault is fatal, because the file may be one of many that are lost.
      # The message is cut, since zipfile quotes the damaged bytes.
      message = f'cannot be read: {str(error)[:80]}'
      faults.add(str(file), None, message, fatal=True)
    else:
      yield from with_faults([(1, row)], faults, str(file))


def _key(data: Eurlex57kData) -> str:
  """Returns a key that depends on the source's files and on data.on_error."""
  stamp: Any = ARCHIVE_URL
  if data.dir:
    # Faults are dropped here, because they are reported when files are read.
    splits, concepts = _find_files(find_source(data.dir), Faults())
    files = {
      pathlib.Path(x.root.filename) if isinstance(x, zipfile.Path) else x
      for x in itertools.chain(concepts, *splits.values())
    }
    stats = [(str(file), file.stat()) for file in sorted(files)]
    stamp = [(name, s.st_size, s.st_mtime_ns) for name, s in stats]
  return json_digest(FORMAT, data.on_error.value, stamp)[:24]


def _prepare(data: Eurlex57kData, folder: pathlib.Path) -> None:
  faults = Faults(data.on_error)
  # TFDS prints to standard output, which may be reserved for predictions.
  tfds.display_progress_bar(sys.stderr.isatty())
  with contextlib.redirect_stdout(sys.stderr):
    downloads = [] if data.dir else _download(data.cache_folder)
    source = downloads[0] if downloads else find_source(data.dir)
    files_of, concepts = _find_files(source, faults)
    name = data.dir or ARCHIVE_URL
    builder = CorpusBuilder(name, faults, folder.parent)
    builder.describe(read_concepts, downloads[1:] or concepts)
    for split, files in files_of.items():
      records = _records(files, faults)
      builder.read(split, f'{name}: {split}', records, data.read_record)
    raw = builder.corpus()
    if downloads:
      _check_download(raw, downloads)
    Eurlex57k(raw.splits, data_dir=folder).download_and_prepare()
  splits = {
    split: {
      'ids': part.ids,
      'digest': part.digest,
      'indptr': part.gold.indptr.tolist(),
      'values': part.gold.values.tolist(),
      'text_digests': part.text_digests.tolist(),
    }
    for split, part in raw.splits.items()
  }
  files = sorted(path for path in folder.rglob('*') if path.is_file())
  index = {
    'label_ids': raw.label_ids,
    'labels': [label_row(label) for label in raw.labels],
    'left_out': raw.left_out,
    'splits': splits,
    'sizes': {str(p.relative_to(folder)): p.stat().st_size for p in files},
  }
  write_json(folder / INDEX, index)


def _download(cache: pathlib.Path) -> list[pathlib.Path]:
  try:
    # This request fails at once without a network. The download itself would
    # try for minutes.
    request = urllib.request.Request(ARCHIVE_URL, method='HEAD')
    with urllib.request.urlopen(request, timeout=30):
      pass
    manager = tfds.download.DownloadManager(download_dir=cache / 'downloads')
    urls = ARCHIVE_URL, CONCEPTS_URL
    return [pathlib.Path(manager.download(url)) for url in urls]
  except Exception as error:
    if isinstance(error, urllib.error.HTTPError):
      error.close()  # it holds the answer of the server
    # The errors that a download may raise have no common type.
    raise DataError(
      f'{ARCHIVE_URL}: could not be downloaded ({error}); get datasets.zip and '
      f'eurovoc_en.json from {SITE} and give their folder as --config.data.dir '
      'in training, or as --data_dir in evaluate'
    ) from error


def _check_download(raw: SourceCorpus, files: Sequence[pathlib.Path]) -> None:
  """Checks that a download is EURLEX57K, and removes it if it is not."""
  # The server has no encryption, so the answer may come from another server.
  # () for a split that the download lacks, so that it differs.
  ids = dict.fromkeys(PUBLISHED, ())
  ids |= {name: split.ids for name, split in raw.splits.items()}
  if faults := differences_from_published(ids | {'concepts': raw.labels.ids}):
    for path in files:
      path.unlink(missing_ok=True)
    raise DataError(
      f'{ARCHIVE_URL}: the download is not EURLEX57K: {"; ".join(faults)}. It '
      'was removed; try again, or get datasets.zip and eurovoc_en.json '
      'elsewhere and give their folder as data.dir'
    )


class Eurlex57k(tfds.core.GeneratorBasedBuilder):
  """Stores the splits of EURLEX57K as a TFDS dataset, in their order."""

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'First release.'}

  def __init__(self, splits: Mapping[str, Split] | None = None, **kwargs: Any):
    self._parts = splits or {}
    super().__init__(file_format='array_record', **kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text()
    lists = {'labels': tfds.features.Sequence(text)}
    features = {'id': text, **dict.fromkeys(ZONES, text), **lists}
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(features),
      description='EU laws and their EUROVOC concepts.',
      homepage=SITE,
      disable_shuffling=True,
    )

  def _split_generators(
    self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
    return {name: self._generate_examples(name) for name in self._parts}

  def _generate_examples(
    self, name: str
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, document in enumerate(self._parts[name].documents):
      record = {'id': document.id, 'labels': list(document.labels)}
      yield row, record | dict(document.zones)


def _document(example: Mapping[str, Any]) -> Document:
  zones = {name: example[name].decode() for name in ZONES}
  labels = tuple(label.decode() for label in example['labels'])
  return Document(example['id'].decode(), zones, labels)


def _open(folder: pathlib.Path, source: str) -> SourceCorpus:
  """Opens the data that _prepare wrote; damage is one of the errors DAMAGE."""
  index = json.loads((folder / INDEX).read_text('utf-8'))
  for name, size in index['sizes'].items():
    if (folder / name).stat().st_size != size:
      raise ValueError(f'{name} is not {size} bytes long')
  builder = Eurlex57k(data_dir=folder)
  splits = {}
  for name, row in index['splits'].items():
    records = builder.as_data_source(split=name)
    splits[name] = Split(
      name=name,
      ids=tuple(row['ids']),
      gold=Ragged(
        np.array(row['indptr'], np.int64), np.array(row['values'], np.int32)
      ),
      documents=StoredDocuments(records, _document),
      digest=row['digest'],
      text_digests=np.array(row['text_digests'], np.uint64),
    )
  return SourceCorpus(
    source=source,
    labels=Labels.of(read_label(Fields(row)) for row in index['labels']),
    label_ids=tuple(index['label_ids']),
    splits=splits,
    zones=ZONES,
    left_out=index['left_out'],
  )
