"""Defines EURLEX57K as a TFDS dataset, without TensorFlow."""

from collections.abc import Iterator
import pathlib
from typing import Any
import urllib.request

import tensorflow_datasets as tfds

from xjax.core.errors import DataError
from xjax.data.config import OnError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields
from xjax.data.formats.corpus_builder import CorpusBuilder
from xjax.data.formats.eurlex57k.published import (
  CONCEPTS,
  PUBLISHED,
  differences,
)
from xjax.data.formats.eurlex57k.records import (
  read_concepts,
  read_eurlex_record,
  record_document,
)
from xjax.data.formats.eurlex57k.sources import Source, find_source

SITE = 'http://nlp.cs.aueb.gr/software_and_datasets/EURLEX57K/'
ARCHIVE_URL = SITE + 'datasets.zip'
CONCEPTS_URL = SITE + 'eurovoc_en.json'


class Eurlex57k(tfds.core.GeneratorBasedBuilder):
  """Builds the TFDS dataset of 57,000 EU laws with EUROVOC concepts.

  See Chalkidis et al. 2019. The official archive is downloaded if `source` is
  empty. If the source is JSON lines, documents are in the order of lines.
  Otherwise, documents are in the order of file names. All files are checked
  before anything is written. The attributes are set when the splits are
  generated.

  Attributes:
    left_out: a message about records that are left out; '' if there are none.
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'First release.'}

  def __init__(
    self, *, source: str = '', on_error: OnError = OnError.RAISE, **kwargs: Any
  ):
    self._source = source
    self._on_error = on_error
    self.draft = CorpusBuilder()
    self.left_out = ''
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
    return Source(source.splits, (), concepts)

  def _check_download(self) -> None:
    """Checks that the download is EURLEX57K, and removes it if it is not.

    The server has no encryption, so the answer may come from another server.
    """
    ids = {
      **{name: self.draft.splits[name].ids for name in self.draft.splits},
      CONCEPTS: self.draft.described.labels,
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
