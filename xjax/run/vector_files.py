"""Writes the vectors of documents and labels to files (xjax embed).

The vectors come from a pretrained encoder that is not trained, or from the
encoder of a finished run. The files have the format of feature_files.py, so
another run can read them as frozen features. The folder also has embed.json,
which says which encoder has computed the files.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from typing import Any

from absl import logging
import jax
from jaxtyping import Float32
import numpy as np

from xjax.core.atomic import atomic_write, remove_temporaries, write_json
from xjax.core.distributed import process_count
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.core.progress import Progress
from xjax.data.config import TextVectorsConfig, WordsConfig
from xjax.data.documents import Documents
from xjax.data.files.file_set import read_json
from xjax.data.load import load_corpus
from xjax.data.schema import Corpus, Document, Label, Labels
from xjax.data.text.words import has_letters
from xjax.models.config_json import to_json
from xjax.models.contract import Config, load_config
from xjax.models.text_vectors import TextVectors, check_folder
from xjax.run.evaluate import moved_data
from xjax.run.open_run import OpenRun, open_run
from xjax.train.parameters import by_path
from xjax.train.workdir import Workdir, split_step

_LABELS = 'labels'  # the stem of the files of labels
_RECORD = 'embed.json'
_CHUNK = 1024  # documents or labels whose vectors are computed at a time
_ENCODER, _HEAD = 'encoder/', 'head/'

Vectors = Float32[np.ndarray, 'N D']


@dataclasses.dataclass(frozen=True, eq=False)
class VectorSource:
  """Computes the vectors of documents and of names."""

  name: str  # the encoder and its settings, for messages
  digest: str  # of all that decides the vectors of a text
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
  train, dev and test that exist.
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
    f'{encoder.folder}, max_tokens={encoder.max_tokens}',
    vectors.digest,
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
    output: the folder to write.
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
  pretrained = config.data.tokens.pretrained
  vocab = folder.subwords() if pretrained else folder.vocabulary()
  params = {
    path: np.asarray(jax.device_get(x))
    for path, x in by_path(scorer.params).items()
    if not path.startswith(_HEAD)
  }
  if pretrained:
    weights = {x: y for x, y in params.items() if x.startswith(_ENCODER)}
    names = TextVectors(
      read_json(folder.encoder), vocab, weights, config.data.tokens.max_tokens
    ).vectors
  settings = to_json(config)
  decides = settings['data']['tokens'], settings['model'], vocab.digest
  digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode())
  for path, x in sorted(params.items()):
    digest.update(f'{path} {x.dtype} {x.shape} '.encode())
    digest.update(np.ascontiguousarray(x).tobytes())
  return VectorSource(
    f'{folder.path}, step {run.step}',
    digest.hexdigest(),
    scorer.vector_dim,
    lambda rows: scorer.vectors(Documents.of(rows)),
    names,
  )


def _write_files(
  source: VectorSource,
  read: Callable[[], Corpus],
  output: str | os.PathLike,
) -> list[str]:
  """Writes the files that the folder lacks, and describes all files."""
  folder = pathlib.Path(output).expanduser()
  with locked(folder):
    remove_temporaries(folder, '*')
    files = _Files.open(folder, source)
    corpus, lines = read(), []
    for name, split in corpus.splits.items():
      parts = split.digest, split.ids, split.documents, source.documents
      lines.append(files.write(name, *parts))
    # Gold labels outside the label space depend on the splits.
    space = corpus.label_space
    labels = space.labels[: space.n_inside]
    if source.names is not None:
      parts = _digest(labels), labels.ids, labels, source.labels
      lines.append(files.write(_LABELS, *parts))
    else:
      logging.info(
        '%s is left out: the encoder of this run is not pretrained',
        f'{_LABELS}.npy',
      )
  return lines


def _digest(labels: Labels) -> str:
  digest = hashlib.sha256()
  for label in labels:
    digest.update(json.dumps([label.id, label.name]).encode())
  return digest.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class _Files:
  """Writes files of vectors to a locked folder; embed.json notes them."""

  folder: pathlib.Path
  source: VectorSource
  # Stem -> digest of the documents or labels whose vectors are complete; None
  # while the files of this stem are written.
  done: dict[str, str | None]

  @classmethod
  def open(cls, folder: pathlib.Path, source: VectorSource) -> '_Files':
    """Reads embed.json, if any; ConfigError if it is from another encoder."""
    path = folder / _RECORD
    if not path.exists():
      return cls(folder, source, {})
    record = read_json(path)
    done = record.get('done')
    if not isinstance(done, dict):
      raise DataError(f'{path}: has no object "done"; remove the folder')
    if record.get('digest') != source.digest:
      raise ConfigError(
        f'{folder}: has vectors of another encoder, or of other settings '
        f'(before: {record.get("encoder")}; now: {source.name}); choose '
        'another folder'
      )
    return cls(folder, source, done)

  def write(
    self,
    stem: str,
    digest: str,
    ids: Sequence[str],
    items: Sequence[Any],
    vectors: Callable[[Sequence[Any]], Vectors],
  ) -> str:
    """Writes N vectors, unless they are complete; returns a line about them.

    ConfigError: files of another `digest`, or not from this command.
    """
    path = self.folder / f'{stem}.npy'
    ids_path = path.with_suffix('.ids.txt')
    lengths_path = path.with_suffix('.lengths.npy')
    line = f'{path}: {len(ids)} vectors of size {self.source.dim}'
    others = lengths_path, *(() if stem in self.done else (path, ids_path))
    if other := next(filter(pathlib.Path.exists, others), None):
      raise ConfigError(
        f'{other}: exists, but xjax embed has not written it; choose another '
        'folder'
      )
    if self.done.get(stem) not in (None, digest):
      raise ConfigError(
        f'{path}: has vectors of other documents or labels than those of this '
        'corpus; choose another folder'
      )
    if self.done.get(stem) and path.exists() and ids_path.exists():
      logging.info('%s: is complete already', path)
      return line
    self._note(stem, None)
    with atomic_write(ids_path) as file:
      file.writelines(f'{id_}\n' for id_ in ids)
    self._write_vectors(path, ids, items, vectors)
    self._note(stem, digest)
    return line

  def _write_vectors(
    self,
    path: pathlib.Path,
    ids: Sequence[str],
    items: Sequence[Any],
    vectors: Callable[[Sequence[Any]], Vectors],
  ) -> None:
    """Writes a .npy file; only a chunk of the vectors is in memory."""
    shape = len(ids), self.source.dim
    header = {'descr': '<f4', 'fortran_order': False, 'shape': shape}
    with (
      atomic_write(path, 'wb') as file,
      Progress(f'vectors of {path.stem}', len(ids)) as shown,
    ):
      np.lib.format.write_array_header_1_0(file, header)
      for rows in _chunks(len(ids)):
        vectors_ND = vectors([items[row] for row in rows])
        bad = ~np.isfinite(vectors_ND).all(axis=1)
        if bad.any():
          row = rows[int(np.argmax(bad))]
          raise DataError(
            f'{path}: the vector of {ids[row]!a} has values that are not '
            f'finite; check the encoder ({self.source.name})'
          )
        file.write(vectors_ND.astype('<f4').tobytes())
        shown.update(len(rows))

  def _note(self, stem: str, digest: str | None) -> None:
    self.done[stem] = digest
    record = {
      'encoder': self.source.name,
      'digest': self.source.digest,
      'done': self.done,
    }
    write_json(self.folder / _RECORD, record)


def _chunks(n: int) -> Iterator[range]:
  for start in range(0, n, _CHUNK):
    yield range(start, min(start + _CHUNK, n))
