"""Writes the vectors of documents and labels to files (xjax embed).

The vectors come from a pretrained encoder that is not trained, or from the
encoder of a finished run. The files have the format of feature_files.py, so
another run can read them as frozen features. The folder appears when it is
complete.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import glob
import os
import pathlib
from typing import Any

from absl import logging
import jax
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
from xjax.data.config import TextVectorsConfig, WordsConfig
from xjax.data.documents import Documents
from xjax.data.files.file_set import read_json
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, Document, Label
from xjax.data.text.words import has_letters
from xjax.models.contract import Config, load_config
from xjax.models.text_vectors import TextVectors, check_folder
from xjax.run.evaluate import moved_data
from xjax.run.open_run import OpenRun, open_run
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir, split_step

_LABELS = 'labels'  # the stem of the files of labels
_CHUNK = 1024  # documents or labels whose vectors are computed at a time
_ENCODER = 'encoder/'

Vectors = Float32[np.ndarray, 'N D']


@dataclasses.dataclass(frozen=True, eq=False)
class VectorSource:
  """Computes the vectors of documents and of names."""

  dim: int  # D
  documents: Callable[[Sequence[Document]], Vectors]
  names: Callable[[Sequence[str]], Vectors] | None  # None: names have none

  def labels(self, labels: Sequence[Label]) -> Vectors:
    """Returns the vectors of labels; 0 for a name without a letter."""
    named_N = np.array([has_letters(label.name) for label in labels], bool)
    vectors_ND = np.zeros((len(labels), self.dim), np.float32)
    names = [labels[row].name for row in np.flatnonzero(named_N)]
    vectors_ND[named_N] = self.names(names)
    return vectors_ND


def embed_corpus(
  config: Config,
  encoder: TextVectorsConfig,
  output: str | os.PathLike,
  splits: Sequence[str] = (),
) -> list[str]:
  """Writes vectors by an encoder that is not trained; returns a line per file.

  A vector is the mean of the encoder's last states, scaled to length 1. The
  config's model and data.tokens are not used. No splits stand for those of
  train, dev and test that exist. The folder `output` must be new, or empty.
  """
  _check_one_process()
  if config.data.sparse:
    raise ConfigError(
      f'config.data={type(config.data).__name__}(...): the documents are '
      'features, not text, so an encoder cannot read them'
    )
  check_folder(encoder)
  vectors = TextVectors.fit((), encoder)
  source = VectorSource(
    vectors.n_features,
    lambda rows: vectors.vectors([document.text() for document in rows]),
    vectors.vectors,
  )
  # The corpus must not ask for the files that are written here.
  data = dataclasses.replace(config.data, tokens=WordsConfig())
  read = functools.partial(load_corpus, data, config.seed, None, splits or None)
  return _write_files(source, read, output)


def embed_run(
  workdir: str,
  output: str | os.PathLike,
  data_dir: str = '',
  splits: Sequence[str] = (),
) -> list[str]:
  """Writes vectors of a run's corpus by its encoder; returns a line per file.

  The vector of a document is the result of the pooling, or the mean over tokens
  if there is no pooling. If the encoder is pretrained, the vector of a label is
  the mean of the encoder's last states for its name, scaled to length 1.
  Otherwise, labels get no vectors.

  Args:
    workdir: WORKDIR[@step] of a neural run; by default the best checkpoint.
    output: the folder to write; it must be new, or empty.
    data_dir: folder of the data, or '' for that of the run's config.
    splits: () stands for those of train, dev and test that exist.
  """
  _check_one_process()
  path, step = split_step(workdir)
  folder = Workdir.at(path)
  folder.check_has_run()
  _check_encoder(load_config(folder.config), workdir)
  run = open_run(path, step)
  data = moved_data(run.config.data, data_dir)
  read = functools.partial(
    load_corpus, data, run.config.seed, run.space, splits or None
  )
  return _write_files(_run_source(run), read, output)


def _check_one_process() -> None:
  if process_count() > 1:
    raise ConfigError(
      'xjax embed can only be used by one process; start it on one host'
    )


def _check_encoder(config: Config, workdir: str) -> None:
  if not config.model.has_steps:
    raise ConfigError(
      f'--workdir={workdir}: is a {type(config.model).__name__}, which has no '
      'encoder of its own; give the workdir of a neural model, which may be a '
      'folder in stages/ of this run'
    )
  if config.data.tokens.dense:
    raise ConfigError(
      f'--workdir={workdir}: this run reads vectors, not text; use the encoder '
      'that has computed these vectors'
    )


def _run_source(run: OpenRun) -> VectorSource:
  config, folder, scorer, names = run.config, run.workdir, run.scorer, None
  if config.data.tokens.pretrained:
    weights = {
      path: np.asarray(jax.device_get(x))
      for path, x in by_path(scorer.params).items()
      if path.startswith(_ENCODER)
    }
    names = TextVectors(
      read_json(folder.encoder),
      folder.subwords(),
      weights,
      config.data.tokens.max_tokens,
    ).vectors
  return VectorSource(
    scorer.vector_dim,
    lambda rows: scorer.vectors(Documents.of(rows)),
    names,
  )


def _write_files(
  source: VectorSource,
  read: Callable[[], Corpus],
  output: str | os.PathLike,
) -> list[str]:
  folder = pathlib.Path(output).expanduser()
  check_new_folder(folder)
  corpus = read()
  parts: dict[str, tuple[Any, ...]] = {
    name: (split.ids, split.documents, source.documents)
    for name, split in corpus.splits.items()
  }
  if source.names is not None:
    # Gold labels outside the label space depend on the splits.
    labels = corpus.label_space.labels[: corpus.label_space.n_inside]
    parts[_LABELS] = labels.ids, labels, source.labels
  else:
    logging.info(
      '%s.npy is left out: the encoder of this run is not pretrained', _LABELS
    )

  def build(temporary: pathlib.Path) -> None:
    for name, (ids, items, vectors) in parts.items():
      with open(temporary / f'{name}.ids.txt', 'w', encoding='utf-8') as file:
        file.writelines(f'{id_}\n' for id_ in ids)
      shape = len(ids), source.dim
      _write_vectors(temporary / f'{name}.npy', shape, items, vectors)

  remove_temporaries(folder.parent, glob.escape(folder.name))
  with writing(folder):
    build_folder(folder, build)
  return [
    f'{folder / name}.npy: {len(ids)} vectors of size {source.dim}'
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
