"""Corpora of hierarchical text classification: JSON lines and a taxonomy.

A line is a document, {"doc_token": text or a list of tokens, "doc_label":
[names]} or {"token", "label"}, perhaps with an "id". The taxonomy has a line
per label that has others below it, `parent<TAB>child<TAB>child...`, the first
of them Root, which is no label. A label may have several parents.
"""

from collections.abc import Callable, Sequence
import dataclasses
import enum
import pathlib
import re

from xjax.core.config_part import ConfigPart, field
from xjax.core.errors import ConfigError, DataError
from xjax.data.files.faults import Faults
from xjax.data.files.json_lines import (
  Fields,
  find_files,
  find_folder,
  only_file,
)
from xjax.data.formats.contract import DataConfig
from xjax.data.formats.descriptors import Descriptors
from xjax.data.formats.draft import Draft, RawCorpus, choose_splits
from xjax.data.formats.jsonl import read_split
from xjax.data.formats.taxonomy import read_taxonomy
from xjax.data.schema import Document, Label
from xjax.data.text.token_cache import default_cache_dir


class HtcLabels(enum.Enum):
  """Which labels of a taxonomy documents have."""

  ALL = 'all'
  LEAVES = 'leaves'


@dataclasses.dataclass
class HtcConfig(ConfigPart):
  """A taxonomy, and what is made of it."""

  taxonomy: str = field(
    '',
    'File in data.dir, `parent<TAB>child<TAB>child...` a line; empty: the one '
    'there that is called so.',
  )
  labels: HtcLabels = field(
    HtcLabels.ALL,
    'All: those given and all above them; leaves: those given that have no '
    'label below them.',
  )


@dataclasses.dataclass
class HtcData(DataConfig):
  """Hierarchical text classification: JSON lines and a taxonomy.

  Files like wos_train.json, wos_val.json and wos_test.json, each perhaps
  gzipped, of lines {"doc_token", "doc_label"}.
  """

  htc: HtcConfig = field(HtcConfig, 'The taxonomy, and which labels count.')

  label_field = 'doc_label'

  def read(self, splits: Sequence[str] = (), usual: bool = True) -> RawCorpus:
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

Transfer = Callable[[tuple[str, ...]], tuple[str, ...]]


def htc_document(
  fields: Fields, default_id: str | None = None, need_labels: bool = True
) -> Document:
  """Reads a document; what is wrong is noted in fields.faults."""
  before = len(fields.faults)
  token = _field_name(fields, 'doc_token')
  if isinstance(fields.row.get(token), list):
    text = ' '.join(fields.texts(token))
  else:
    text = fields.text(token)
  if len(fields.faults) == before and not text.strip():
    fields.faults.append('an empty document: no text in it')
  return Document(
    id=fields.identifier('id', default_id),
    zones={'text': text},
    labels=hierarchy_labels(fields, None if need_labels else ()),
  )


def hierarchy_labels(
  fields: Fields, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
  """Reads doc_label, or label; without a default one must be there."""
  return fields.identifiers(_field_name(fields, 'doc_label'), default)


def _field_name(fields: Fields, name: str) -> str:
  """The name of a field, with or without its doc_, as it is given."""
  short = name.removeprefix('doc_')
  return short if short in fields and name not in fields else name


def read_htc(
  data: HtcData, splits: Sequence[str] = (), usual: bool = True
) -> RawCorpus:
  """Reads a folder of hierarchical text classification.

  Args:
    data: where, which labels, and what a faulty line does.
    splits: those that must be there.
    usual: whether train, dev and test are read as well, where they are there.

  Returns:
    The corpus, its descriptors in the order of the taxonomy, with parents.
    Documents have their labels and all that those imply, which lie above
    them (Bertalis et al., section 3.2), or, where data.htc.labels is leaves,
    those alone that have no label below them (App. B), which may be none.

  Raises:
    ConfigError: no such taxonomy.
    DataError: no such folder, no split, one of splits is absent, or the files
      have faults: all of them, in one message.
  """
  folder = find_folder(data.dir)
  faults = Faults(data.on_error)
  files = _find_splits(folder)
  described = read_taxonomy(_find_taxonomy(folder, data.htc), faults)
  transfer, kept = _transfer(described, data.htc.labels)

  def read(
    fields: Fields, default_id: str | None, need_labels: bool
  ) -> Document:
    document = htc_document(fields, default_id, need_labels)
    return dataclasses.replace(document, labels=transfer(document.labels))

  draft = Draft(default_cache_dir(data))
  zones: dict[str, None] = {}
  for name in choose_splits(data.dir, files, splits, usual, _EXAMPLE):
    path = only_file(files[name], faults)
    zones |= read_split(path, draft.begin(name), described, faults, read, True)
  faults.settle()
  return draft.corpus(data.dir, kept, zones)


def _transfer(
  described: Descriptors, which: HtcLabels
) -> tuple[Transfer, tuple[Label, ...]]:
  """What becomes of a document's labels, and the labels there are then."""
  labels = tuple(described.labels.values())
  match which:
    case HtcLabels.ALL:
      return _Implied(described), labels
    case HtcLabels.LEAVES:
      inner = {parent for label in labels for parent in label.parents}
      leaves = tuple(label for label in labels if label.id not in inner)
      return lambda ids: tuple(i for i in ids if i not in inner), leaves


class _Implied:
  """Labels and all that lie above them, those given first."""

  def __init__(self, described: Descriptors):
    self._labels = described.labels
    self._above: dict[str, dict[str, None]] = {}

  def __call__(self, ids: tuple[str, ...]) -> tuple[str, ...]:
    found = dict.fromkeys(ids)
    for id_ in ids:
      found |= self._above_of(id_)
    return tuple(found)

  def _above_of(self, id_: str) -> dict[str, None]:
    if id_ not in self._above:
      above: dict[str, None] = {}
      waiting = [id_]
      while waiting:
        label = self._labels.get(waiting.pop())
        new = [p for p in (label.parents if label else ()) if p not in above]
        above.update(dict.fromkeys(new))
        waiting += new
      self._above[id_] = above
    return self._above[id_]


def _find_splits(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
  """Split -> its files.

  A word of the name says which: the last one, as in wos_train.json, or, where
  no file ends so, another one, as in nyt_train_all.json.
  """
  files = find_files(folder, 'jsonl?')
  if not files:
    raise DataError(f'{folder}: no split here: there must be {_EXAMPLE}')
  words = {stem: _WORDS.split(stem) for stem in files}
  ended = {stem: _split_of(words[stem][-1:]) for stem in files}
  found: dict[str, list[pathlib.Path]] = {}
  for stem, paths in files.items():
    within = _split_of(words[stem])
    within = '' if within in ended.values() else within
    found.setdefault(ended[stem] or within or stem, []).extend(paths)
  return found


def _split_of(words: Sequence[str]) -> str:
  """The split that words name; '' where they name none, or several."""
  named = {_SPLITS.get(word, word) for word in words if word in _USUAL}
  return named.pop() if len(named) == 1 else ''


def _find_taxonomy(folder: pathlib.Path, config: HtcConfig) -> pathlib.Path:
  if config.taxonomy:
    path = folder / pathlib.Path(config.taxonomy).expanduser()
    if not path.is_file():
      raise ConfigError(f'data.htc.taxonomy: no such file: {path}')
    return path
  # Some are spelled taxnomy.
  paths = [p for p in sorted(folder.glob('*tax*')) if _is_table(p)]
  if len(paths) != 1:
    there = ', '.join(path.name for path in paths) or 'none'
    raise ConfigError(
      'data.htc.taxonomy is not set: give the name of the taxonomy in '
      f'{folder}; called so: {there}'
    )
  return paths[0]


def _is_table(path: pathlib.Path) -> bool:
  """Whether it is a file, and none of JSON, which may be about taxes."""
  hidden = path.name.startswith('.')
  return path.is_file() and not hidden and not _JSON.fullmatch(path.name)
