"""Reads your own text from {split}.jsonl[.gz] and labels.jsonl[.gz].

Each line is a JSON object:

- A document is {"id", "text" or "zones": {name: text}, "labels": [ids]}.
- A label is {"id", "name", "alt": [...], "parents": [ids], "description"}. Only
  the id is required.

Other fields are ignored. The file labels.jsonl is optional, and may also be a
table or SKOS (label_files.py). A label without a line in it is named by its id.
The usual splits are train, dev and test. Any other split is read only if it is
requested.
"""

from collections.abc import Sequence
import dataclasses

from xjax.core.config_part import field
from xjax.core.errors import DataError
from xjax.data.files.json_lines import find_files, find_source
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import FACTS, DataConfig, read_document
from xjax.data.formats.label_files import (
  find_labels,
  is_labels,
  read_descriptors,
)
from xjax.data.formats.own_files import name_splits, unread_files


@dataclasses.dataclass
class JsonlData(DataConfig):
  """Configures a corpus of your own text in {split}.jsonl and labels.jsonl."""

  facts: tuple[str, ...] = field((), FACTS)

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    folder = find_source(self.dir)
    files = {} if folder.is_file() else find_files(folder)
    files = name_splits({k: v for k, v in files.items() if not is_labels(k)})
    if not files:
      raise DataError(
        f'{folder}: is not a folder with JSON lines, such as train.jsonl; '
        '--config=own_linear reads files, tables and text files'
      )
    builder = self.builder()
    labels = find_labels(folder)
    builder.describe(read_descriptors, labels)
    unread = unread_files(folder, files, labels)
    builder.read_files(files, splits, usual, read_document, unread=unread)
    return builder.corpus()
