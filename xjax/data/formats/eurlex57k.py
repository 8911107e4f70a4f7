"""Reads EURLEX57K (Chalkidis et al. 2019): EU laws and EUROVOC concepts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
import hashlib
import http.client
import pathlib
import shutil
import urllib.request
import zipfile

from absl import logging

from xjax.core.atomic import build_folder
from xjax.core.errors import DAMAGE, DataError
from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import (
  Fields,
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
  choose_splits,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import read_concepts
from xjax.data.schema import Document

# Zones in reading order. The full text has no title, as in Chalkidis et al.
# 2019, because the header repeats the title.
ZONES = ('title', 'header', 'recitals', 'main_body', 'attachments')
SITE = 'http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K/'
ARCHIVE_URL = SITE + 'datasets.zip'
CONCEPTS = 'eurovoc_en.json'
CONCEPTS_URL = SITE + CONCEPTS
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
    """Reads the archive, zipped or unpacked, or a folder of JSON lines.

    If data.dir is empty, the official archive is downloaded once, and its
    documents must be the published ones; a warning is logged if those in
    data.dir are not.
    """
    download = self.cache_folder / 'eurlex57k'
    if not self.dir and not download.is_dir():
      _download(self, download)
    folder = find_source(self.dir) if self.dir else download
    raw = _read(self, folder, splits, usual)
    if faults := differences({n: part.ids for n, part in raw.splits.items()}):
      logging.warning(
        '%s: these are not the documents of the published EURLEX57K (%s), so '
        'results cannot be compared with published results',
        raw.source,
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


def differences(ids: Mapping[str, Collection[str]]) -> list[str]:
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
_Files = pathlib.Path | list[pathlib.Path | zipfile.Path]


def _find_files(
  path: pathlib.Path, faults: Faults
) -> tuple[dict[str, _Files], pathlib.Path | None]:
  """Finds the splits and concepts of an archive, or of a folder.

  The folder has the archive, its files, or JSON lines.
  """
  folder = path.parent if path.is_file() else path
  places = (folder, folder / 'dataset', folder.parent)
  concepts = [p / CONCEPTS for p in places if (p / CONCEPTS).is_file()]
  lines = {} if path.is_file() else find_files(path)
  splits: dict[str, _Files] = {
    name: only_file(lines[name], faults) for name in USUAL if name in lines
  }
  splits = splits or _files_in(path / 'dataset') or _files_in(path)
  archives = [path] if path.is_file() else sorted(path.glob('*.zip'))
  if not splits and len(archives) == 1:
    try:
      root = zipfile.Path(archives[0])
    except DAMAGE as error:
      message = f'not a zip archive: {str(error)[:80]}'
      raise DataError(f'{archives[0]}: {message}') from error
    splits = _files_in(root / 'dataset') or _files_in(root)
  if not splits:
    raise DataError(f'{path}: no EURLEX57K here; {_EXPECTED}')
  return splits, concepts[0] if concepts else None


def _files_in(root: pathlib.Path | zipfile.Path) -> dict[str, _Files]:
  return {
    name: sorted(
      (
        path
        for path in (root / name).iterdir()
        if path.name.endswith('.json') and not path.name.startswith('.')
      ),
      key=str,
    )
    for name in USUAL
    if (root / name).is_dir()
  }


def _records(
  files: _Files, faults: Faults
) -> Iterator[tuple[int | None, Fields]]:
  if isinstance(files, pathlib.Path):
    yield from read_records(files, faults)
    return
  for file in files:
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


def _read(
  data: Eurlex57kData,
  folder: pathlib.Path,
  splits: Sequence[str] = (),
  usual: bool = True,
) -> SourceCorpus:
  source, faults = data.dir or ARCHIVE_URL, Faults(data.on_error)
  files, concepts = _find_files(folder, faults)
  builder = CorpusBuilder(source, faults, data.cache_folder)
  if concepts:
    builder.describe(read_concepts, concepts)
  for name in choose_splits(source, files, splits, usual):
    records = _records(files[name], faults)
    builder.read(name, f'{source}: {name}', records, data.read_record)
  return builder.corpus()


def _download(data: Eurlex57kData, folder: pathlib.Path) -> None:
  """Downloads the archive and the concepts, if they are the published ones."""

  def fetch(new: pathlib.Path) -> None:
    for url in (ARCHIVE_URL, CONCEPTS_URL):
      logging.info('downloading %s', url)
      with (
        urllib.request.urlopen(url, timeout=30) as answer,
        (new / url.rpartition('/')[2]).open('wb') as file,
      ):
        shutil.copyfileobj(answer, file)
    # The server has no encryption, so the answer may come from another server.
    raw = _read(data, new)
    # () for a split that the download lacks, so that it differs.
    ids = dict.fromkeys(PUBLISHED, ())
    ids |= {name: part.ids for name, part in raw.splits.items()}
    if faults := differences(ids | {'concepts': raw.labels.ids}):
      raise DataError(f'the download is not EURLEX57K: {"; ".join(faults)}')

  try:
    build_folder(folder, fetch)
  except (OSError, http.client.HTTPException, DataError) as error:
    raise DataError(
      f'{ARCHIVE_URL}: could not be downloaded ({error}); get datasets.zip and '
      f'eurovoc_en.json from {SITE} and give their folder as --config.data.dir '
      'in training, or as --data_dir in evaluate'
    ) from error
