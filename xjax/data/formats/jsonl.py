"""Reads your own text from {split}.jsonl[.gz] and labels.jsonl[.gz].

Each line is a JSON object:

- A document is {"id", "text" or "zones": {name: text}, "labels": [ids]}.
- A label is {"id", "name", "alt": [...], "parents": [ids], "description"}. Only
  the id is required.

Other fields are ignored. The file labels.jsonl is optional. Without this file,
a label's id is its name. With this file, all labels of documents must be in the
file. The usual splits are train, dev and test. Any other split is read only if
it is requested.
"""

from collections.abc import Sequence
import dataclasses

from xjax.core.errors import DataError
from xjax.data.files.json_lines import find_files, find_source
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig, read_document
from xjax.data.formats.label_files import read_descriptors

LABELS = 'labels'  # the file of labels; no split can have this name


@dataclasses.dataclass
class JsonlData(DataConfig):
  """Configures a corpus of your own text in {split}.jsonl and labels.jsonl."""

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    folder = find_source(self.dir)
    files = {} if folder.is_file() else find_files(folder)
    if not files:
      raise DataError(
        f'{folder}: is not a folder with JSON lines, such as train.jsonl; '
        '--config=own_linear reads files, tables and text files'
      )
    builder = self.builder()
    builder.describe(read_descriptors, files.pop(LABELS, ()))
    builder.read_files(files, splits, usual, read_document)
    return builder.corpus()
