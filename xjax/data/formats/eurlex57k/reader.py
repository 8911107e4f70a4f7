"""Reads EURLEX57K; prepares it once, in the cache, for random access."""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import shutil
import sys
from typing import Any
import uuid

from absl import logging
import numpy as np
import tensorflow_datasets as tfds

from xjax.core.atomic import build_folder, write_json, write_npz
from xjax.core.errors import DAMAGE, DataError, UserError
from xjax.core.types import Ragged
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
from xjax.data.formats.eurlex57k.builder import ARCHIVE_URL, SITE, Eurlex57k
from xjax.data.formats.eurlex57k.published import differences
from xjax.data.formats.eurlex57k.records import (
  FULL_TEXT,
  ZONES,
  input_document,
  record_document,
)
from xjax.data.formats.eurlex57k.sources import find_source
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
  raw = _open_or_remove(folder, source)
  if raw is None:
    logging.info('preparing EURLEX57K in %s', folder)
    try:
      build_folder(folder, functools.partial(_prepare, data))
    except OSError as error:
      raise UserError(f'{folder}: cannot be written: {error}') from error
    raw = _open(folder, source)
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


def _open_or_remove(folder: pathlib.Path, source: str) -> SourceCorpus | None:
  """Opens prepared data, or removes it and returns None if it is damaged."""
  if not folder.is_dir():
    return None
  try:
    return _open(folder, source)
  except DAMAGE as error:
    logging.warning('%s is damaged (%s) and is prepared again', folder, error)
  # Other processes may remove the folder at the same time. So each process
  # renames the folder first: only one process can rename it.
  aside = folder.with_name(f'.{folder.name}.{uuid.uuid4().hex}')
  with contextlib.suppress(FileNotFoundError):
    folder.rename(aside)
  shutil.rmtree(aside, ignore_errors=True)
  return None


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
