"""Reads corpora of hierarchical text classification, which have a taxonomy.

Each JSON line is a document with the fields "doc_token" (a text or a list of
tokens) and "doc_label" (a list of labels). The two fields may also be called
"token" and "label". A field "id" is optional.

The taxonomy has a line `parent<TAB>child<TAB>child...` for each label that has
children. The topmost parent is Root, which is not a label. A label may have
several parents.
"""

from collections.abc import Callable, Sequence
import dataclasses
import enum
import pathlib
import re

from xjax.core.config_part import ConfigPart, field
from xjax.core.errors import ConfigError, DataError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import Fields, find_files, find_folder
from xjax.data.formats.corpus_builder import (
  CorpusBuilder,
  SourceCorpus,
  choose_splits,
)
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.descriptors import Descriptors
from xjax.data.formats.jsonl import read_split
from xjax.data.formats.taxonomy import read_taxonomy
from xjax.data.schema import Document, Label
from xjax.data.text.token_cache import default_cache_dir


class HtcLabels(enum.Enum):
  """Says whether documents keep all labels or only leaves of the taxonomy."""

  ALL = 'all'
  LEAVES = 'leaves'


@dataclasses.dataclass
class HtcConfig(ConfigPart):
  """Says which file is the taxonomy, and which labels documents keep."""

  taxonomy: str = field(
    '',
    'The name of the taxonomy file in data.dir. Each line of the file is '
    '`parent<TAB>child<TAB>child...`. If this field is empty, the only file '
    'with "tax" in its name is read. JSON files do not count.',
  )
  labels: HtcLabels = field(
    HtcLabels.ALL,
    'ALL keeps the labels of a document and adds their ancestors; LEAVES keeps '
    'only labels without children.',
  )


@dataclasses.dataclass
class HtcData(DataConfig):
  """Configures a corpus of hierarchical text classification.

  The splits are files of JSON lines {"doc_token", "doc_label"}, plain or
  gzipped, with names like wos_train.json, wos_val.json and wos_test.json. The
  taxonomy is another file.
  """

  htc: HtcConfig = field(
    HtcConfig, 'The taxonomy file, and the labels that documents keep.'
  )

  label_field = 'doc_label'

  def read(
    self, splits: Sequence[str] = (), usual: bool = True
  ) -> SourceCorpus:
    return read_htc(self, splits, usual)

  def read_record(
    self, fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    return htc_document(fields, default_id, need_labels)


_SPLITS = {'val': 'dev', 'valid': 'dev'}
_USUAL = ('train', 'dev', 'val', 'valid', 'test')
_EXAMPLE = 'a file like train.json or wos_train.json'
_WORDS = re.compile('[_.-]')
_JSON = re.compile(r'.*\.jsonl?(\.gz)?')

# Maps the labels in a record to the labels that its document gets.
LabelMap = Callable[[tuple[str, ...]], tuple[str, ...]]


def htc_document(
  fields: Fields, default_id: str | None = None, need_labels: bool = True
) -> Document:
  """Reads a document, and adds faults; no ancestors are added to the labels."""
  before = len(fields.faults)
  token = _field_name(fields, 'doc_token')
  if isinstance(fields.row.get(token), list):
    text = ' '.join(fields.texts(token))
  else:
    text = fields.text(token)
  if len(fields.faults) == before and not text.strip():
    fields.faults.append('the document has no text')
  return Document(
    id=fields.identifier('id', default_id),
    zones={'text': text},
    labels=hierarchy_labels(fields, None if need_labels else ()),
  )


def hierarchy_labels(
  fields: Fields, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
  """Reads the labels of a record; without a default they are required."""
  return fields.identifiers(_field_name(fields, 'doc_label'), default)


def _field_name(fields: Fields, name: str) -> str:
  """Returns the name of a field in the record, with or without doc_."""
  short = name.removeprefix('doc_')
  return short if short in fields and name not in fields else name


def read_htc(
  data: HtcData, splits: Sequence[str] = (), usual: bool = True
) -> SourceCorpus:
  """Reads a corpus of hierarchical text classification from a folder.

  The descriptors have parents and are in the order of the taxonomy. The labels
  of a document depend on data.htc.labels (see Bertalis et al., section 3.2 and
  App. B). ALL adds the ancestors of the labels. LEAVES keeps only labels
  without children; a document may lose all labels.
  """
  folder = find_folder(data.dir)
  builder = CorpusBuilder(default_cache_dir(data), Faults(data.on_error))
  files = _find_splits(folder)
  taxonomy = _find_taxonomy(folder, data.htc)
  builder.described = read_taxonomy(taxonomy, builder.faults)
  map_labels, labels = _label_map(builder.described, data.htc.labels)

  def read(
    fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    document = htc_document(fields, default_id, need_labels)
    return dataclasses.replace(document, labels=map_labels(document.labels))

  for name in choose_splits(data.dir, files, splits, usual, _EXAMPLE):
    read_split(builder, name, files[name], read, name_lines=True)
  return builder.corpus(data.dir, builder.faults.settle(), labels)


def _label_map(
  described: Descriptors, kept: HtcLabels
) -> tuple[LabelMap, tuple[Label, ...]]:
  labels = tuple(described.labels.values())
  match kept:
    case HtcLabels.ALL:
      return _WithAncestors(described), labels
    case HtcLabels.LEAVES:
      inner = {parent for label in labels for parent in label.parents}
      leaves = tuple(label for label in labels if label.id not in inner)
      return lambda ids: tuple(i for i in ids if i not in inner), leaves


class _WithAncestors:
  """Maps a document's labels to these labels and all their ancestors."""

  def __init__(self, described: Descriptors):
    self._labels = described.labels
    self._ancestors: dict[str, dict[str, None]] = {}

  def __call__(self, ids: tuple[str, ...]) -> tuple[str, ...]:
    labels = dict.fromkeys(ids)
    for id_ in ids:
      labels |= self._ancestors_of(id_)
    return tuple(labels)

  def _ancestors_of(self, id_: str) -> dict[str, None]:
    """Returns the ancestors of a label, as keys; computes them only once."""
    if id_ not in self._ancestors:
      ancestors: dict[str, None] = {}
      waiting = [id_]
      while waiting:
        label = self._labels.get(waiting.pop())
        parents = label.parents if label else ()
        new = [parent for parent in parents if parent not in ancestors]
        ancestors.update(dict.fromkeys(new))
        waiting += new
      self._ancestors[id_] = ancestors
    return self._ancestors[id_]


def _find_splits(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
  """Finds the files of each split.

  A file name consists of words that are separated by `_`, `-` or `.`. The last
  word is the split, as in wos_train.json. If no file name ends with `train`, an
  earlier word can be `train`, as in nyt_train_all.json. The same holds for dev
  and test. The words `val` and `valid` mean dev. Each file with another name is
  a split of its own.
  """
  files = find_files(folder, 'jsonl?')
  if not files:
    raise DataError(f'{folder}: no split to read; expected {_EXAMPLE}')
  words = {stem: _WORDS.split(stem) for stem in files}
  last = {stem: _split_of(words[stem][-1:]) for stem in files}
  splits: dict[str, list[pathlib.Path]] = {}
  for stem, paths in files.items():
    inner = _split_of(words[stem])
    inner = '' if inner in last.values() else inner
    splits.setdefault(last[stem] or inner or stem, []).extend(paths)
  return splits


def _split_of(words: Sequence[str]) -> str:
  """Returns the only split among the words; '' for no or several splits."""
  named = {_SPLITS.get(word, word) for word in words if word in _USUAL}
  return named.pop() if len(named) == 1 else ''


def _find_taxonomy(folder: pathlib.Path, config: HtcConfig) -> pathlib.Path:
  if config.taxonomy:
    path = folder / pathlib.Path(config.taxonomy).expanduser()
    if not path.is_file():
      raise ConfigError(f'data.htc.taxonomy: there is no file {path}')
    return path
  # The pattern is short because some files are called taxnomy.
  paths = [p for p in sorted(folder.glob('*tax*')) if _is_table(p)]
  if len(paths) != 1:
    names = ', '.join(path.name for path in paths) or 'none'
    raise ConfigError(
      'data.htc.taxonomy is not set: give the name of the taxonomy in '
      f'{folder}; files with "tax" in their names: {names}'
    )
  return paths[0]


def _is_table(path: pathlib.Path) -> bool:
  """Returns whether a path is a visible file that is not JSON."""
  hidden = path.name.startswith('.')
  return path.is_file() and not hidden and not _JSON.fullmatch(path.name)
