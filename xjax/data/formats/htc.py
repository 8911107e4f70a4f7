"""Reads corpora of hierarchical text classification, which have a taxonomy.

Each JSON line is a document with the fields "doc_token" (a text or a list of
tokens) and "doc_label" (a list of labels). The two fields may also be called
"token" and "label". A field "id" is optional.

The taxonomy has a line `parent<TAB>child<TAB>child...` for each label that has
children. The topmost parent is Root, which is not a label. A label may have
several parents.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import pathlib
import re

from xjax.core.config_part import field
from xjax.core.errors import ConfigError
from xjax.core.texts import plain_name
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import find_files, find_source
from xjax.data.formats.corpus_builder import SourceCorpus
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.label_files import read_taxonomy
from xjax.data.formats.own_files import name_splits
from xjax.data.schema import Document, Label


@dataclasses.dataclass
class HtcData(DataConfig):
  """Configures a corpus of hierarchical text classification.

  The splits are files, plain or gzipped, with names like wos_train.json.
  """

  taxonomy: str = field(
    '',
    'The name of the taxonomy file in data.dir. Each line of the file is '
    '`parent<TAB>child<TAB>child...`. If this field is empty, the only file '
    'with "tax" in its name is read. JSON files do not count.',
  )

  label_field = 'doc_label'

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    """Reads a corpus; the descriptors are in the order of the taxonomy.

    Documents get the ancestors of their labels (Bertalis et al., section 3.2).
    """
    folder = find_source(self.dir)
    builder = self.builder()
    files = name_splits(find_files(folder, 'jsonl?'))
    builder.describe(read_taxonomy, [_find_taxonomy(folder, self.taxonomy)])

    def read(
      fields: Fields, default_id: str | None, need_labels: bool
    ) -> Document:
      document = self.read_record(fields, default_id, need_labels)
      ids = _with_ancestors(builder.labels, document.labels)
      return dataclasses.replace(document, labels=ids)

    builder.read_files(files, splits, usual, read, lines='line-')
    return builder.corpus()

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    """Reads a document; no ancestors are added to the labels."""
    token = _field_name(fields, 'doc_token')
    is_list = isinstance(fields.row.get(token), list)
    text = ' '.join(fields.texts(token)) if is_list else fields.text(token)
    fields.check_text([text])
    return Document(
      id=fields.identifier('id', default_id),
      zones={'text': text},
      labels=hierarchy_labels(fields, None if need_labels else ()),
    )


_NO_TAXONOMY = re.compile(r'\..*|.*\.jsonl?(\.gz)?')  # hidden, or JSON


def hierarchy_labels(
  fields: Fields, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
  """Reads the labels of a record; without a default they are required."""
  names = fields.identifiers(_field_name(fields, 'doc_label'), default)
  return tuple(dict.fromkeys(map(plain_name, names)))


def _field_name(fields: Fields, name: str) -> str:
  short = name.removeprefix('doc_')
  return short if short in fields and name not in fields else name


def _with_ancestors(
  labels: Mapping[str, Label], ids: Iterable[str]
) -> tuple[str, ...]:
  closed = list(ids)
  for id_ in closed:  # grows while it is read
    parents = labels[id_].parents if id_ in labels else ()
    closed += [parent for parent in parents if parent not in closed]
  return tuple(closed)


def _find_taxonomy(folder: pathlib.Path, name: str) -> pathlib.Path:
  if name:
    path = folder / pathlib.Path(name).expanduser()
    if not path.is_file():
      raise ConfigError(f'data.taxonomy: there is no file {path}')
    return path
  # The pattern is short because some files are called taxnomy.
  paths = [
    path
    for path in sorted(folder.glob('*tax*'))
    if path.is_file() and not _NO_TAXONOMY.fullmatch(path.name)
  ]
  if len(paths) != 1:
    names = ', '.join(path.name for path in paths) or 'none'
    raise ConfigError(
      'data.taxonomy is not set: give the name of the taxonomy in '
      f'{folder}; files with "tax" in their names: {names}'
    )
  return paths[0]
