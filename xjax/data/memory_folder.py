"""Writes documents that are in memory as the data folder of a run."""

from collections.abc import Container, Mapping, Sequence
import dataclasses
import filecmp
import pathlib

from xjax.core.atomic import build_folder, temporary_folder, writing
from xjax.core.errors import ConfigError, DataError
from xjax.data.documents import SparseDocuments
from xjax.data.files.json_lines import write_json_lines
from xjax.data.in_memory import MemoryLabels, documents_of, labels_of
from xjax.data.schema import Document, Label, label_row


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledDocuments:
  documents: list[Document] | SparseDocuments
  labels: MemoryLabels

  def __len__(self) -> int:
    return len(self.documents)


def labelled_documents(
  texts: object,
  labels: object,
  label_names: object = None,
  names: tuple[str, str] = ('texts', 'labels'),
  known_ids: Container[str] = (),
  zones: Sequence[str] = (),
) -> LabelledDocuments:
  """Returns the documents and gold labels that a caller has in memory.

  For the forms of the arguments, see documents_of and labels_of. If all `texts`
  are Documents with labels, `labels` may be None. `names` are for messages, and
  `zones` are the columns of a DataFrame.
  """
  documents = documents_of(texts, names[0], zones)
  if labels is None and isinstance(documents, list):
    labels = [document.labels for document in documents]
    if None in labels:
      raise DataError(
        f'{names[1]} is None: give the labels, or Documents with labels'
      )
  gold = labels_of(labels, label_names, names[1], known_ids)
  if len(documents) != len(gold.rows):
    raise DataError(
      f'{names[0]} has {len(documents)} documents, but {names[1]} has labels '
      f'of {len(gold.rows)} documents'
    )
  return LabelledDocuments(documents, gold)


def check_trainable(split: LabelledDocuments, name: str) -> None:
  """Raises a DataError unless a model can be trained or judged on documents."""
  if not len(split):
    raise DataError(f'{name} is empty: there are no documents')
  if isinstance(split.documents, SparseDocuments):
    return
  seen: set[str] = set()
  for row, document in enumerate(split.documents):
    if not any(text.strip() for text in document.zones.values()):
      raise DataError(f'{name}[{row}] has no text: leave it and its labels out')
    if document.id in seen:
      raise DataError(f'{name}[{row}]: the id {document.id!a} occurs twice')
    seen.add(document.id)


def write_folder(
  folder: pathlib.Path, splits: Mapping[str, LabelledDocuments]
) -> bool:
  """Writes splits as JSON lines, or as feature files of the XC repository.

  Returns whether the folder was written. An existing folder stays, and must
  have the same contents, else a ConfigError is raised. The labels of all splits
  are those of `train`.
  """
  is_sparse = isinstance(splits['train'].documents, SparseDocuments)

  def write(target: pathlib.Path) -> None:
    with writing(target):
      (_write_features if is_sparse else _write_lines)(target, splits)

  if not folder.exists():
    build_folder(folder, write)
    return True
  with temporary_folder(folder) as new:
    write(new)
    names = sorted(path.name for path in new.iterdir())
    before = sorted(path.name for path in folder.iterdir())
    # The lists have files that differ, and files that cannot be compared.
    _, *other = filecmp.cmpfiles(folder, new, names, shallow=False)
    same = names == before and not any(other)
  if not same:
    raise ConfigError(
      f'{folder.parent}: this workdir was made from other texts or labels '
      f'({folder.name}/ differs); use a new workdir'
    )
  return False


def _write_lines(
  folder: pathlib.Path, splits: Mapping[str, LabelledDocuments]
) -> None:
  for name, split in splits.items():
    rows = (
      {'id': x.id, 'zones': dict(x.zones), 'labels': ids}
      for x, ids in zip(split.documents, split.labels.rows)
    )
    write_json_lines(folder / f'{name}.jsonl', rows)
  if labels := splits['train'].labels.labels:
    write_json_lines(folder / 'labels.jsonl', map(label_row, labels))


def _write_features(
  folder: pathlib.Path, splits: Mapping[str, LabelledDocuments]
) -> None:
  used = {id_ for x in splits.values() for row in x.labels.rows for id_ in row}
  labels = splits['train'].labels.labels
  labels = labels or [Label(id_, id_) for id_ in sorted(used)]
  write_json_lines(folder / 'labels.jsonl', map(label_row, labels))
  index = {label.id: str(i) for i, label in enumerate(labels)}
  for name, split in splits.items():
    rows = split.documents.rows
    with (folder / f'{name}.txt').open('w', encoding='ascii') as file:
      file.write(f'{rows.shape[0]} {rows.shape[1]} {len(labels)}\n')
      for row, ids in enumerate(split.labels.rows):
        part = slice(rows.indptr[row], rows.indptr[row + 1])
        gold = ','.join(index[id_] for id_ in ids)
        # The shortest decimal text of a float32 is read back as it was.
        pairs = zip(rows.indices[part].tolist(), rows.data[part].astype(str))
        entries = ' '.join(f'{i}:{value}' for i, value in pairs)
        file.write(f'{gold} {entries}\n')
