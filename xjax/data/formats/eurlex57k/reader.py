"""Reads EURLEX57K; prepares it once, in the cache, for random access."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import sys
from typing import Any
import urllib.request

from absl import logging
import numpy as np
import tensorflow_datasets as tfds

from xjax.core.atomic import build_folder, write_json, write_npz
from xjax.core.errors import DAMAGE, DataError, UserError
from xjax.core.types import Ragged
from xjax.data.config import OnError
from xjax.data.files.faults import Faults, first_line
from xjax.data.files.json_lines import Fields, find_folder
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  RawSplit,
  SourceCorpus,
  StoredDocuments,
  choose_splits,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k.records import (
  FULL_TEXT,
  ZONES,
  Source,
  find_source,
  input_document,
  read_concepts,
  read_eurlex_record,
  record_document,
)
from xjax.data.schema import Document, Labels, label_row, read_label
from xjax.data.text.token_cache import default_cache_dir


@dataclasses.dataclass
class Eurlex57kData(DataConfig):
  """Configures EURLEX57K, the official archive or a folder of JSON lines."""

  label_field = 'concepts'
  full_text = FULL_TEXT

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return read_eurlex57k(self, splits, usual)

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    return input_document(fields, default_id, need_labels)


SITE = 'http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K/'
ARCHIVE_URL = SITE + 'datasets.zip'
CONCEPTS_URL = SITE + 'eurovoc_en.json'
FORMAT = 3  # version of prepared data; data of another version is not read
INDEX = 'index.json'


def read_eurlex57k(
  data: Eurlex57kData, splits: Sequence[str] = (), usual: bool = True
) -> SourceCorpus:
  """Reads EURLEX57K, and prepares it first if the cache does not have it.

  data.dir is the archive (zipped or unpacked) or a folder of JSON lines. If it
  is empty, the official archive is downloaded, and its documents must be the
  published ones; a warning is logged if those in data.dir are not. The full
  text has no title, since the header repeats the title.
  """
  folder = default_cache_dir(data) / 'eurlex57k' / _key(data)
  source = data.dir or ARCHIVE_URL
  if not folder.is_dir():
    logging.info('preparing EURLEX57K in %s', folder)
    try:
      build_folder(folder, functools.partial(_prepare, data))
    except OSError as error:
      raise UserError(f'{folder}: cannot be written: {error}') from error
  try:
    raw = _open(folder, source)
  except DAMAGE as error:
    raise DataError(
      f'{folder}: is damaged ({error}); remove this folder, and EURLEX57K is '
      'prepared again'
    ) from error
  chosen = choose_splits(source, raw.splits, splits, usual)
  if faults := differences({name: raw.splits[name].ids for name in chosen}):
    logging.warning(
      '%s: these are not the documents of the published EURLEX57K (%s), so '
      'results cannot be compared with published results',
      source,
      '; '.join(faults),
    )
  return dataclasses.replace(
    raw, splits={name: raw.splits[name] for name in chosen}
  )


PUBLISHED_CONCEPTS = 'concepts'


@dataclasses.dataclass(frozen=True)
class _Part:
  """Holds a number of ids, and the digest of the sorted ids if it is known."""

  count: int
  digest: str = ''


# Chalkidis et al. 2019 publish the counts, but no digests. The digests here are
# from a copy of the splits train and dev and of the concepts. The ids of the
# split test are not known here, so only its documents are counted.
PUBLISHED = {
  'train': _Part(
    45_000, '5ed5aa7a2461920da3f218a165eb06891ae6dfd4b13b2da8bdcb88d2a25ceae5'
  ),
  'dev': _Part(
    6_000, '15642ec3aef79c9e5b81ef4bc9a336e3d7821cd436037ce7d46fd1a4eb45a833'
  ),
  'test': _Part(6_000),
  PUBLISHED_CONCEPTS: _Part(
    7_201, 'b7d763357c5768bf5dd3fd7fbc2e6ad2f24199e75800997b2eaee3e9eaba01d7'
  ),
}


def differences(ids: Mapping[str, Collection[str]]) -> list[str]:
  """Returns what differs from the published ids of splits and concepts."""
  faults = []
  for name, part in ids.items():
    if name not in PUBLISHED:
      continue
    expected = PUBLISHED[name]
    if len(part) != expected.count:
      faults.append(f'{name} has {len(part):,} ids, not {expected.count:,}')
    elif expected.digest and _digest(part) != expected.digest:
      faults.append(f'{name} has other ids')
  return faults


def _digest(ids: Collection[str]) -> str:
  """Returns the SHA-256 of the sorted ids, one per line."""
  return hashlib.sha256('\n'.join(sorted(ids)).encode()).hexdigest()


class Eurlex57k(tfds.core.GeneratorBasedBuilder):
  """Builds the TFDS dataset of 57,000 EU laws with EUROVOC concepts.

  See Chalkidis et al. 2019. The official archive is downloaded if `source` is
  empty. Documents are in the order of lines, or else of file names. All files
  are checked before anything is written.
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'First release.'}

  def __init__(
    self, *, source: str = '', on_error: OnError = OnError.RAISE, **kwargs: Any
  ):
    self._source = source
    self._on_error = on_error
    self.draft = CorpusBuilder()
    self.left_out = ''  # what is left out, once the splits are generated
    self._downloads: tuple[pathlib.Path, ...] = ()
    super().__init__(file_format='array_record', **kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text()
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(
        {
          'celex_id': text,
          'uri': text,
          'type': text,
          'concepts': tfds.features.Sequence(text),
          'title': text,
          'header': text,
          'recitals': text,
          'main_body': tfds.features.Sequence(text),
          'attachments': text,
        }
      ),
      description='EU laws and their EUROVOC concepts.',
      homepage=SITE,
      disable_shuffling=True,
    )

  def _split_generators(
    self, dl_manager: tfds.download.DownloadManager
  ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
    faults = Faults(self._on_error)
    source = self._find(dl_manager, faults)
    self.draft = CorpusBuilder(pathlib.Path(self.data_dir).parent, faults)
    if source.concepts:
      self.draft.described = read_concepts(source.concepts, faults)
    for name in source.splits:
      self._read_split(name, source, faults)
    self.left_out = faults.check()
    if not self._source:
      self._check_download()
    return {name: self._generate_examples(name) for name in source.splits}

  def _find(
    self, dl_manager: tfds.download.DownloadManager, faults: Faults
  ) -> Source:
    """Finds the source; if no path is set, downloads the archive."""
    if self._source:
      return find_source(pathlib.Path(self._source), faults)
    # This request fails at once without a network. The download itself would
    # try for minutes.
    request = urllib.request.Request(ARCHIVE_URL, method='HEAD')
    with urllib.request.urlopen(request, timeout=30):
      pass
    urls = ARCHIVE_URL, CONCEPTS_URL
    archive, concepts = (pathlib.Path(dl_manager.download(u)) for u in urls)
    self._downloads = archive, concepts
    source = find_source(archive, faults)
    return dataclasses.replace(source, concepts=concepts)

  def _check_download(self) -> None:
    """Checks that the download is EURLEX57K, and removes it if it is not.

    The server has no encryption, so the answer may come from another server.
    """
    ids = {
      **{name: self.draft.splits[name].ids for name in self.draft.splits},
      PUBLISHED_CONCEPTS: self.draft.described.labels,
    }
    if faults := differences(dict.fromkeys(PUBLISHED, ()) | ids):
      for path in self._downloads:
        path.unlink(missing_ok=True)
      raise DataError(
        f'{ARCHIVE_URL}: the download is not EURLEX57K: {"; ".join(faults)}. '
        'It was removed; try again, or get datasets.zip and eurovoc_en.json '
        'elsewhere and give their folder as data.dir'
      )

  def _read_split(self, name: str, source: Source, faults: Faults) -> None:
    before, split = faults.count, self.draft.begin(name)
    for file, line, row in source.splits[name](faults):
      fields = Fields(row)
      record = read_eurlex_record(fields)
      document = record_document(record)
      self.draft.add(split, file, line, document, fields.faults, record)
    if not split.ids:
      place = f'{self._source or ARCHIVE_URL}: {name}'
      faults.add_empty(place, 'document', before)

  def _generate_examples(
    self, name: str
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from enumerate(self.draft.splits[name].records)


def _key(data: Eurlex57kData) -> str:
  """Returns a key that depends on the source's files and on data.on_error."""
  stamp: Any = ARCHIVE_URL
  if data.dir:
    # Faults are dropped here, because they are reported when files are read.
    stamp = find_source(find_folder(data.dir), Faults()).stamp()
  text = json.dumps([FORMAT, data.on_error.value, stamp])
  return hashlib.sha256(text.encode()).hexdigest()[:24]


def _prepare(data: Eurlex57kData, folder: pathlib.Path) -> None:
  builder = Eurlex57k(
    source=str(pathlib.Path(data.dir).expanduser()) if data.dir else '',
    on_error=data.on_error,
    data_dir=folder,
  )
  downloads = default_cache_dir(data) / 'downloads'
  tfds.display_progress_bar(sys.stderr.isatty())
  try:
    # TFDS prints to standard output, which may be reserved for predictions.
    with contextlib.redirect_stdout(sys.stderr):
      builder.download_and_prepare(download_dir=downloads)
  except UserError:
    raise
  except Exception as error:
    # The errors that a download may raise have no common type.
    if data.dir or builder.draft.splits:
      raise
    raise DataError(
      f'{ARCHIVE_URL}: could not be downloaded ({error}); get datasets.zip and '
      f'eurovoc_en.json from {SITE} and give their folder as --config.data.dir '
      'in training, or as --data_dir in evaluate'
    ) from error
  _write_index(folder, builder)


def _write_index(folder: pathlib.Path, builder: Eurlex57k) -> None:
  draft: CorpusBuilder = builder.draft
  index: dict[str, Any] = {
    'label_ids': draft.label_ids,
    'labels': [label_row(v) for v in draft.described.labels.values()],
    'left_out': builder.left_out,
    'splits': {},
  }
  for name, split in draft.splits.items():
    done = split.done(())
    index['splits'][name] = {'ids': done.ids, 'digest': done.digest}
    write_npz(
      folder / f'{name}.npz',
      {
        'indptr': done.gold.indptr,
        'values': done.gold.values,
        'text_digests': done.text_digests,
      },
    )
  index['sizes'] = {
    str(path.relative_to(folder)): path.stat().st_size
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }
  write_json(folder / INDEX, index)


def _open(folder: pathlib.Path, source: str) -> SourceCorpus:
  """Opens the data that _prepare wrote, and warns about left-out records.

  If the data is damaged, one of the errors in DAMAGE is raised.
  """
  index = json.loads((folder / INDEX).read_text('utf-8'))
  for name, size in index['sizes'].items():
    if (folder / name).stat().st_size != size:
      raise ValueError(f'{name} is not {size} bytes long')
  builder = Eurlex57k(data_dir=folder)
  raw = SourceCorpus(
    source=source,
    labels=Labels.of(read_label(Fields(row)) for row in index['labels']),
    label_ids=tuple(index['label_ids']),
    splits={
      name: _open_split(folder, builder, name, row)
      for name, row in index['splits'].items()
    },
    zones=ZONES,
    full_text=FULL_TEXT,
    left_out=first_line(index['left_out']),
  )
  if index['left_out']:
    logging.warning('%s', index['left_out'])
  return raw


def _open_split(
  folder: pathlib.Path, builder: Eurlex57k, name: str, row: dict[str, Any]
) -> RawSplit:
  # If np.load opened the file itself, a damaged file would stay open.
  with (folder / f'{name}.npz').open('rb') as file:
    arrays = np.load(file, allow_pickle=False)
    gold = Ragged(arrays['indptr'], arrays['values'])
    text_digests = arrays['text_digests']
  records = builder.as_data_source(split=name)
  sizes = {len(records), len(gold), len(row['ids']), len(text_digests)}
  if len(sizes) > 1:
    raise ValueError(f'{name} lacks documents')
  return RawSplit(
    ids=tuple(row['ids']),
    gold=gold,
    documents=StoredDocuments(records, _document),
    digest=row['digest'],
    text_digests=text_digests,
  )


def _document(example: Mapping[str, Any]) -> Document:
  """Makes a document from a prepared example, and decodes its texts."""
  record = {
    name: [part.decode('utf-8') for part in value]
    if name in ('concepts', 'main_body')
    else value.decode('utf-8')
    for name, value in example.items()
  }
  return record_document(record)
