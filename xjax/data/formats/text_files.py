"""Reads text files: one per document, in a folder or in a folder per label."""

import collections
from collections.abc import Iterable, Iterator
import contextlib
import io
import pathlib

from xjax.core.errors import DataError
from xjax.data.files.encodings import Encoding, encoding_of, guess_encoding
from xjax.data.files.faults import Fault, Faults, plural
from xjax.data.files.json_lines import Fields, with_faults

_SAMPLED = 1000  # bytes of a text, to guess its encoding


def label_folders(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders in a folder that have documents, sorted by name."""
  return [p for p in _entries(folder) if p.is_dir() and any(_text_files(p))]


def _text_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the text files below a folder, sorted by path.

  Their names end in .txt or have no ending. Hidden files and folders are left
  out. A broken link is kept, so that reading it is an error.
  """
  for path in _entries(folder):
    if path.is_dir():
      if not path.is_symlink():  # a link may lead back to this folder
        yield from _text_files(path)
    elif path.suffix.lower() in ('', '.txt'):
      if path.is_file() or not path.exists():
        yield path


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
  for inner in label_folders(folder) if by_label else [folder]:
    for path in _text_files(inner):
      row = {'id': path.relative_to(folder).as_posix()}
      row |= {'labels': [inner.name]} if by_label else {}
      try:
        data = path.read_bytes()
        used = encoding_of(io.BytesIO(data), encoding)
        if used.doubt:
          joint = joint or _joint_guess(folder)
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


def _joint_guess(folder: pathlib.Path) -> Encoding:
  """Guesses from the first texts that are not UTF-8, since one may be short."""
  sample = b''
  for path in _text_files(folder):
    with contextlib.suppress(OSError, Fault):
      data = path.read_bytes()
      if encoding_of(io.BytesIO(data)).guessed:
        sample += data[:_SAMPLED] + b'\n'
    if len(sample) > 100 * _SAMPLED:
      break
  return guess_encoding(sample)
