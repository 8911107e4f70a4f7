"""Reads documents that are text files, in one folder per label."""

from collections.abc import Iterator
import io
import pathlib

from xjax.data.files.faults import Fault, Faults
from xjax.data.files.json_lines import Fields
from xjax.data.files.tables import encoding_of
from xjax.data.formats.own.layout import label_folders, text_files
from xjax.data.schema import Document


def read_label_folders(
  folder: pathlib.Path, faults: Faults
) -> Iterator[tuple[pathlib.Path, Document]]:
  """Yields the documents FOLDER/<label>/.../*.txt, with their files.

  The id of a document is its path in the folder. Faulty files are left out.
  """
  for inner in label_folders(folder):
    yield from _read(text_files(inner), folder, inner.name, faults)


def read_texts(
  folder: pathlib.Path, faults: Faults
) -> Iterator[tuple[pathlib.Path, Document]]:
  """Yields the text files below a folder as documents without labels."""
  yield from _read(text_files(folder), folder, None, faults)


def _read(
  paths: Iterator[pathlib.Path],
  folder: pathlib.Path,
  label: str | None,
  faults: Faults,
) -> Iterator[tuple[pathlib.Path, Document]]:
  for path in paths:
    try:
      text = _text(path)
    except Fault as fault:
      faults.add(path, fault.line, str(fault))
      continue
    fields = Fields({})
    document = Document(
      id=fields.as_id(path.relative_to(folder).as_posix(), 'the path'),
      zones={'text': text},
      labels=(fields.as_id(label, 'the label'),) if label else None,
    )
    if not text.strip():
      fields.faults.append('the document has no text')
    if faults.extend(path, 1, fields.faults):
      yield path, document


def _text(path: pathlib.Path) -> str:
  """Reads a text file, whose encoding its bytes tell."""
  try:
    data = path.read_bytes()
    return data.decode(encoding_of(io.BytesIO(data)))
  except OSError as error:
    raise Fault(f'cannot be read: {error.strerror}') from error
  except UnicodeDecodeError as error:
    raise Fault(f'the text is damaged: {error.reason}') from error
