"""Writes vectors of documents and labels in files, as in feature_files.py."""

from collections.abc import Callable, Sequence
import dataclasses
import glob
import os
import pathlib
from typing import Any

from jaxtyping import Float32
import numpy as np

from xjax.core.atomic import (
  build_folder,
  check_new_folder,
  remove_temporaries,
  writing,
)
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError
from xjax.core.progress import Progress
from xjax.data.load import load_corpus
from xjax.data.schema import Document, Label
from xjax.data.text.words import has_letters
from xjax.data.tokens_config import TextVectorsConfig, WordsConfig
from xjax.models.contract import Config
from xjax.models.text_vectors import TextVectors, check_folder

_CHUNK = 1024  # documents or labels whose vectors are computed at a time

Vectors = Float32[np.ndarray, 'N D']


def embed_corpus(
  config: Config,
  encoder: TextVectorsConfig,
  output: str | os.PathLike,
  splits: Sequence[str] = (),
) -> list[str]:
  """Writes the vectors of a corpus; returns a line per file.

  A vector is the mean of the encoder's last states, scaled to length 1, and 0
  for a label whose name has no letter. The config's model and data.tokens are
  not used. No splits stand for those of train, dev and test that exist. The
  folder `output` must be new, or empty.
  """
  if process_count() > 1:
    raise ConfigError(
      'xjax embed can only be used by one process; start it on one host'
    )
  if config.data.sparse:
    raise ConfigError(
      f'config.data={type(config.data).__name__}(...): the documents are '
      'features, not text, so an encoder cannot read them'
    )
  folder = pathlib.Path(output).expanduser()
  check_new_folder(folder)
  check_folder(encoder)
  texts = TextVectors.fit((), encoder)
  dim = texts.n_features

  def of_documents(documents: Sequence[Document]) -> Vectors:
    return texts.vectors([document.text() for document in documents])

  def of_labels(labels: Sequence[Label]) -> Vectors:
    named_N = np.array([has_letters(label.name) for label in labels], bool)
    vectors_ND = np.zeros((len(labels), dim), np.float32)
    names = [labels[row].name for row in np.flatnonzero(named_N)]
    vectors_ND[named_N] = texts.vectors(names)
    return vectors_ND

  # The corpus must not ask for the files that are written here.
  data = dataclasses.replace(config.data, tokens=WordsConfig())
  corpus = load_corpus(data, config.seed, None, splits or None)
  # Gold labels outside the label space depend on the splits.
  labels = corpus.label_space.labels[: corpus.label_space.n_inside]
  parts: dict[str, tuple[Any, ...]] = {
    name: (split.ids, split.documents, of_documents)
    for name, split in corpus.splits.items()
  }
  parts['labels'] = labels.ids, labels, of_labels

  def build(temporary: pathlib.Path) -> None:
    for name, (ids, items, vectors) in parts.items():
      with open(temporary / f'{name}.ids.txt', 'w', encoding='utf-8') as file:
        file.writelines(f'{id_}\n' for id_ in ids)
      shape = len(ids), dim
      _write_vectors(temporary / f'{name}.npy', shape, items, vectors)

  remove_temporaries(folder.parent, glob.escape(folder.name))
  with writing(folder):
    build_folder(folder, build)
  return [
    f'{folder / name}.npy: {len(ids)} vectors of size {dim}'
    for name, (ids, *_) in parts.items()
  ]


def _write_vectors(
  path: pathlib.Path,
  shape: tuple[int, int],  # N, D
  items: Sequence[Any],
  vectors: Callable[[Sequence[Any]], Vectors],
) -> None:
  """Writes a .npy file; only a chunk of the vectors is in memory."""
  header = {'descr': '<f4', 'fortran_order': False, 'shape': shape}
  with (
    open(path, 'wb') as file,
    Progress(f'vectors of {path.stem}', shape[0]) as shown,
  ):
    np.lib.format.write_array_header_1_0(file, header)
    for start in range(0, shape[0], _CHUNK):
      rows = range(start, min(start + _CHUNK, shape[0]))
      vectors_ND = vectors([items[row] for row in rows])
      file.write(vectors_ND.astype('<f4').tobytes())
      shown.update(len(rows))
