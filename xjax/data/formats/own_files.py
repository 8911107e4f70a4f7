"""Finds the files of a corpus of one's own, and reads texts in folders."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import io
import itertools
import pathlib
import re

from absl import logging

from xjax.core.errors import DataError
from xjax.data.files import skos
from xjax.data.files.encodings import (
  Encoding,
  encoding_of,
  guess_encoding,
  not_ascii,
)
from xjax.data.files.faults import Fault, Faults, plural
from xjax.data.files.fields import Fields
from xjax.data.files.json_lines import (
  PACKED,
  Files,
  check_rereadable,
  find_files,
  find_source,
  only_file,
  with_faults,
)
from xjax.data.files.split_names import split_of, splits_of
from xjax.data.formats.corpus_builder import TRAIN
from xjax.data.formats.label_files import LABELS, find_labels, is_labels

_SAMPLED = 1000  # bytes of a text, to guess its encoding
_ENDINGS = 'jsonl|jsonlines|ndjson|json|csv|tsv|tab|psv|parquet'
# Forms of data that are not read: other tables and archives.
_FOREIGN = re.compile(
  r'\.(xlsx?|xlsm|ods|feather|arrow|orc|avro|pkl|pickle|h5|hdf5?|sav|dta|rds'
  r'|rda(ta)?|sqlite3?|db|html?|zip|7z|rar|tar|t[gbx]z|zst|zstd|lz4|lzma|br|z)$',
  re.I,
)
_DATA = re.compile(rf'\.({_ENDINGS}|te?xt|{skos.ENDINGS}){PACKED}$', re.I)
_FEATURES = re.compile(r'\.(npy|(ids|lengths)\.txt)$')  # vectors of documents
_WORDS = re.compile(r'[\W_]+')
# Part 0 of 2 of train is train-00000-of-00002.
_SHARD = re.compile(r'(.+?)[-_.](\d+)-of-(\d+)(?!\d)')


@dataclasses.dataclass(frozen=True)
class CorpusFiles:
  """Says where the documents of a corpus are."""

  # Each split's files (one, or shards), or its folder of label folders.
  splits: Files
  by_label: bool = False  # a folder of files per label
  # Whether the source says which documents are in which split. If not, train
  # has all documents.
  divided: bool = True
  labels: Sequence[pathlib.Path] = ()  # files of descriptors
  unread: Sequence[pathlib.Path] = ()  # what seems to be data, too


def find_layout(source: str, label_file: str = '') -> CorpusFiles:
  """Finds the documents of a corpus, in a file or a folder, and its labels."""
  path = find_source(source)
  check_rereadable(path)
  if not path.is_dir():
    labels = find_labels(path.parent, label_file)
    beside = _tables(path.parent)
    named = [x for x, split in splits_of(beside).items() if split]
    unread = [p for stem in named for p in beside[stem] if not p.samefile(path)]
    if label_file:
      return CorpusFiles({TRAIN: [path]}, False, False, labels, unread)
    return CorpusFiles({TRAIN: [path]}, False, False, (), [*unread, *labels])
  labels = find_labels(path, label_file)
  files, inner = _tables(path), path / 'data'
  if not files and inner.is_dir() and _tables(inner):  # as on Hugging Face
    layout = find_layout(str(inner), label_file)
    return dataclasses.replace(layout, labels=layout.labels or labels)
  folders = label_folders(path)
  if files or not folders:  # those of fastText are read for want of others
    known, texts = {*splits_of(files).values()}, _tables(path, 'te?xt')
    for stem, split in splits_of(texts).items():
      if not known or split and split not in known:
        files[stem] = texts[stem]
  if label_file:
    files = {k: v for k, v in files.items() if not labels[0].samefile(v[0])}
  if files:
    # The only file is train, whatever its name, unless it is another split.
    is_one = len(files) == 1 and not any(_by_words(files, -1).values())
    splits = {TRAIN: files.popitem()[1]} if is_one else name_splits(files)
    unread = unread_files(path, splits, labels)
    return CorpusFiles(splits, False, [*splits] != [TRAIN], labels, unread)
  unread = unread_files(path, {TRAIN: folders} if folders else {}, labels)
  if not folders:
    raise DataError(
      f'{source}: no documents in it; expected a file or a folder of CSV, TSV, '
      'Parquet or JSON lines, such as train.csv, or a folder per label with '
      'text files, such as sport/1.txt'
    )
  return _label_layout(path, folders, labels, unread)


def _label_layout(
  path: pathlib.Path,
  folders: Sequence[pathlib.Path],
  labels: Sequence[pathlib.Path],
  unread: Sequence[pathlib.Path],
) -> CorpusFiles:
  """Finds folders of labels; if folders are splits, it is those in them."""
  splits = {}
  for name, split in _by_words([x.name for x in folders], -1).items():
    splits.setdefault(split, [path / name])
  others = [x for x in folders if [x] not in splits.values()]
  others += splits.pop('', [])
  is_split = TRAIN in splits and (len(splits) > 1 or not others)
  if is_split and all(label_folders(x) for (x,) in splits.values()):
    return CorpusFiles(splits, True, True, labels, [*unread, *others])
  return CorpusFiles({TRAIN: [path]}, True, False, labels, unread)


def _tables(folder: pathlib.Path, endings: str = _ENDINGS) -> Files:
  """Returns the files of documents in a folder; shards have one name."""
  named: Files = {}
  for stem, paths in find_files(folder, endings).items():
    shard = _SHARD.fullmatch(stem)
    if not is_labels(stem) and not _FEATURES.search(paths[0].name):
      named.setdefault(shard[1] if shard else stem, []).extend(paths)
  return named


def unread_files(
  folder: pathlib.Path,
  splits: Mapping[str, Sequence[pathlib.Path]],
  labels: Sequence[pathlib.Path],
) -> list[pathlib.Path]:
  """Returns what seems to be data in a folder, but is not read.

  A DataError says that a split, or labels, are only in a form that is not read.
  """
  known = {*labels, *itertools.chain(*splits.values())}
  unread = []
  for path in _entries(folder):
    stem = path.name.partition('.')[0]
    name = splits_of([*splits, stem])[stem]
    if is_labels(stem) and path.is_file() and not labels:
      name = LABELS
    is_new = bool(name) and name not in splits
    is_foreign = _FOREIGN.search(path.name)
    if path in known or _FEATURES.search(path.name):
      continue
    if is_new and is_foreign and path.is_file():
      raise DataError(
        f'{path}: is {name} by its name, but {is_foreign[0]} is not read: '
        'save it as CSV, Parquet or JSON lines (gzip may pack it), or move it '
        'elsewhere'
      )
    if is_new or path.is_file() and (is_foreign or _DATA.search(path.name)):
      unread.append(path)
  return unread


def files_of(
  paths: Sequence[pathlib.Path], faults: Faults
) -> Sequence[pathlib.Path]:
  """Returns the only file of a split, or its shards, of which none may lack."""
  shards = {p: _SHARD.match(p.name) for p in paths}
  if not all(shards.values()):
    return [only_file(paths, faults)]
  numbers = sorted(int(shard[2]) for shard in shards.values())
  (total, *others) = {int(shard[3]) for shard in shards.values()}
  if others or numbers != [*range(total)]:
    found = ', '.join(path.name for path in paths)
    expected = f'expected the shards 0 to {total - 1} of {total}'
    faults.add(paths[0], None, f'{expected}, but found {found}', fatal=True)
  return sorted(paths, key=lambda path: int(shards[path][2]))


def name_splits(files: Files) -> Files:
  """Names files by split; every other file is a split of its own.

  If no file is called train, a word in the name is the split, best the last
  one, as in wos_train.json and nyt_train_all.json. The words of a name are
  separated by `_`, `-`, `.` or spaces.
  """
  splits: Files = {}
  for stem, name in _by_words(files).items():
    splits.setdefault(name or stem, []).extend(files[stem])
  for first in (-1, 0) if TRAIN not in splits else ():
    named: Files = {}
    for stem, name in _by_words(files, first).items():
      if name:
        named.setdefault(name, []).extend(files[stem])
    splits = named | splits
  return splits


def _by_words(names: Iterable[str], first: int | None = None) -> dict[str, str]:
  """Returns the only split that words of each name mean, or ''.

  `first` is the first word that counts; -1 is the last word; None is the whole
  name. Of several names such as test1 and test2, none is the split.
  """
  words = {x: [x] if first is None else _WORDS.split(x)[first:] for x in names}
  known = splits_of(word for some in words.values() for word in some)
  found = {x: {*map(known.get, some)} - {''} for x, some in words.items()}
  named = {x: y.pop() if len(y) == 1 else '' for x, y in found.items()}
  counts = collections.Counter(named.values())
  return {
    x: y if counts[y] == 1 or any(map(split_of, words[x])) else ''
    for x, y in named.items()
  }


def label_folders(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders in a folder that have documents, sorted by name."""
  return [p for p in _entries(folder) if p.is_dir() and any(_text_files(p))]


def _text_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the text files below a folder, sorted by path.

  Their names end in .txt or have no ending. A broken link is kept, so that
  reading it is an error.
  """
  return filter(_is_text, _files(folder))


def _is_text(path: pathlib.Path) -> bool:
  return path.suffix.lower() in ('', '.txt')


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the files below a folder, without those that are hidden."""
  for path in _entries(folder):
    if path.is_dir():
      if not path.is_symlink():  # a link may lead back to this folder
        yield from _files(path)
    elif path.is_file() or not path.exists():
      yield path


def _looks(folder: pathlib.Path, path: pathlib.Path) -> tuple:
  """Returns the name of a file in its folder, and its size."""
  size = path.stat().st_size if path.exists() else None
  return path.relative_to(folder), size


def _entries(folder: pathlib.Path) -> Iterable[pathlib.Path]:
  try:
    return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))
  except OSError as error:
    raise DataError(f'{folder}: not a folder that can be read') from error


def read_texts(
  folder: pathlib.Path, faults: Faults, by_label: bool, encoding: str = ''
) -> Iterator[tuple[int, Fields]]:
  """Yields the text files below a folder as records of the jsonl format.

  `by_label` says that they are FOLDER/<label>/.../*.txt. The id of a document
  is its path in the folder.
  """
  counts: collections.Counter[Encoding] = collections.Counter()
  joint: Encoding | None = None  # a guess from several files
  folders, twins = label_folders(folder) if by_label else [folder], 0
  texts = [(inner, path) for inner in folders for path in _text_files(inner)]
  # A file with several labels is in the folder of each of them.
  alike: dict[tuple, list[pathlib.Path]] = {}
  for inner, path in texts if by_label else ():
    alike.setdefault(_looks(inner, path), []).append(inner)
  for inner, path in texts:
    row = {'id': path.relative_to(folder).as_posix()}
    try:
      data = path.read_bytes()
      if by_label:
        name = path.relative_to(inner)
        homes = alike[_looks(inner, path)]
        homes = [x for x in homes if (x / name).read_bytes() == data]
        row['labels'] = [home.name for home in homes]
        if homes[0] != inner:
          twins += 1
          continue
      used = encoding_of(io.BytesIO(data), encoding)
      if used.doubt:
        joint = joint or _joint_guess(path for _, path in texts)
        with contextlib.suppress(Fault):  # texts may differ
          encoding_of(io.BytesIO(data), joint.name)
          used = joint
      row['text'] = data.decode(used.name).removeprefix('\ufeff')
      counts[used] += 1
    except Fault as fault:
      faults.add(path, fault.line, str(fault))
    except OSError as error:
      faults.add(path, None, f'cannot be read: {error.strerror}')
    except UnicodeDecodeError as error:
      faults.add(path, 1, f'the text is damaged: {error.reason}')
    else:
      yield from with_faults([(1, row)], faults, path)
  for used, count in counts.items():
    used.log(f'{folder}: {plural(count, "file")}')
  if twins:
    logging.info(
      '%s: %s equal to a file of that name of another label: equal files are '
      'one document, with all their labels',
      *(folder, plural(twins, 'file')),
    )
  others = collections.Counter(
    path.suffix.lower()
    for path in _files(folder)
    if not _is_text(path) and not (by_label and path.parent == folder)
  )
  if others:
    kinds = ', '.join(f'{count} {kind}' for kind, count in others.most_common())
    logging.info(
      '%s: only .txt files are read, and files without an ending, but not %s',
      *(folder, kinds),
    )


def _joint_guess(texts: Iterable[pathlib.Path]) -> Encoding:
  """Guesses from the first texts that are not UTF-8, since one may be short."""
  sample = b''
  for path in texts:
    with contextlib.suppress(OSError, Fault):
      file = io.BytesIO(path.read_bytes())
      if encoding_of(file).guessed:
        sample += not_ascii(file)[:_SAMPLED] + b'\n'
    if len(sample) > 100 * _SAMPLED:
      break
  return guess_encoding(sample)
