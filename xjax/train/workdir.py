"""Gives the paths of a run's files, and records what they must not change."""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from xjax.core.atomic import (
  WriteError,
  atomic_write,
  remove_temporaries,
  write_json,
)
from xjax.core.distributed import barrier, host0_answer, is_host0
from xjax.core.errors import ConfigError, DataError, UserError
from xjax.core.processes.lock import locked
from xjax.data.files.file_set import file_digest, read_json
from xjax.data.labels import read_left_out
from xjax.data.schema import Corpus, LabelSpace, load_concepts
from xjax.data.text.subwords import Subwords
from xjax.data.text.words import Vocabulary
from xjax.judge.files.evaluation import MARK
from xjax.networks.pretrained.architecture import Architecture, architecture_of

_REMEDY = 'Restore the file from a copy, or train in a new workdir'


def split_step(source: str) -> tuple[str, int | None]:
  """Returns the folder and the step, or None, of WORKDIR[@step]."""
  path, at, number = source.rpartition('@')
  if at and number.isdecimal():
    return path, int(number)
  return source, None


def _at(name: str) -> property:
  """Returns the property that gives the path of a file in a workdir."""
  return property(lambda self: self.path / name)


@dataclasses.dataclass(frozen=True)
class Workdir:
  """Holds the folder of a run, and gives the paths of its files."""

  path: pathlib.Path

  config = _at('config.json')
  labels = _at('labels.jsonl')
  concepts = _at('concepts.jsonl')  # of the taxonomy, that are not labels
  left_out = _at('left_out.txt')  # ids of labels that are left out of judging
  corpus = _at('corpus.json')
  vocab = _at('features/vocab.txt')
  tokenizer = _at('features/tokenizer.json')
  tfidf = _at('features/tfidf.npz')
  word_vectors = _at('features/word_vectors.npz')  # embed label descriptors
  encoder = _at('features/encoder.json')  # the sizes of the encoder
  encoder_weights = _at('features/encoder.npz')  # embed label descriptors
  text_vectors = _at('features/text_vectors.npz')  # computes vectors of texts
  model = _at('model')  # the folder of linear models and label trees
  levels = _at('model/levels.npz')  # of clusters, which a neural model uses
  shortlists = _at('model/shortlists.npz')  # nodes proposed in training
  checkpoints = _at('checkpoints')
  stages = _at('stages')
  profile = _at('profile')
  calibration = _at('calibration.json')
  record = _at('run.json')
  digest_list = _at('digests.json')

  @classmethod
  def at(cls, path: str | os.PathLike) -> 'Workdir':
    """Returns the workdir at a path; a ConfigError if it is no folder."""
    workdir = cls(pathlib.Path(os.path.expanduser(path)).absolute())
    try:
      workdir.config.exists()
    except OSError as error:
      raise ConfigError(
        f'{workdir.path}: cannot be a workdir: {error.strerror}'
      ) from error
    return workdir

  def check_has_run(self) -> None:
    if not self.config.exists():
      raise DataError(
        f'{self.path}: this folder has no run of xjax (no config.json)'
      )

  def history(self) -> list[dict[str, Any]]:
    """Returns the complete records of metrics.jsonl; [] if there is no file."""
    path, records = self.path / 'metrics.jsonl', []
    if not path.is_file():
      return []
    for line in path.read_text('utf-8', errors='replace').splitlines():
      # A line that a process still writes, or that a killed process has left,
      # is left out.
      with contextlib.suppress(ValueError, RecursionError):
        if isinstance(record := json.loads(line), dict):
          records.append(record)
    return records

  @contextlib.contextmanager
  def locked(self, needed: bool = True) -> Iterator[bool]:
    """Keeps other runs out of the workdir until the context is left.

    Host 0 holds the lock for all hosts. So all hosts must enter the context.
    What a killed run has left of unfinished files is removed. Raises
    ConfigError if another process uses the workdir. The context is False if the
    workdir is read-only, which is an error if the lock is `needed`.
    """
    if self.path.exists() and not self.path.is_dir():
      raise ConfigError(
        f'{self.path}: the workdir must be a folder, not a file'
      )
    with contextlib.ExitStack() as held:
      fault = None
      if is_host0():
        try:
          held.enter_context(locked(self.path))
          remove_temporaries(self.path)
        except UserError as error:
          fault = error
      is_locked = host0_answer(fault is None)
      is_read_only = isinstance(fault, WriteError) and fault.is_refused
      if not is_locked and (needed or not host0_answer(is_read_only)):
        raise fault or ConfigError(f'{self.path}: host 0 cannot lock it')
      yield is_locked

  def stage(self, name: str) -> 'Workdir':
    """Returns the workdir of a stage, a model that the run uses."""
    return Workdir(self.stages / name)

  @property
  def is_stage(self) -> bool:
    run = Workdir(self.path.parent.parent)
    return run.stages == self.path.parent and run.config.exists()

  def drawn(self, name: str) -> pathlib.Path:
    """Returns the path of the ids of a split that was drawn, one per line."""
    return self.path / 'splits' / f'{name}.txt'

  def evaluation(self, name: str) -> pathlib.Path:
    return self.path / 'eval' / name

  def judged(self, name: str) -> pathlib.Path:
    """Returns the path of the record of what an evaluation judged."""
    # It has the step, and the digests of documents and files. It exists only
    # after a complete evaluation.
    return self.evaluation(name) / MARK

  def record_search(
    self, search: dict[str, Any], splits: Iterable[str]
  ) -> None:
    """Writes search.json; if it has changed, `splits` will be judged again."""
    path = self.model / 'search.json'
    same = path.exists() and read_json(path) == search
    barrier('xjax:search')  # wait until no process reads the file
    if is_host0() and not same:
      for split in splits:
        self.judged(split).unlink(missing_ok=True)
      write_json(path, search)
    barrier('xjax:searched')

  @contextlib.contextmanager
  def recording(self, path: pathlib.Path) -> Iterator[None]:
    """Records the digest of a file after the `with` block has written it.

    The block must replace the file at once, or not at all. Meanwhile,
    digests.json lacks the file, so a killed process never leaves the digest of
    another content.
    """
    name = path.relative_to(self.path).as_posix()
    digests = self._recorded()
    if digests.pop(name, None) is not None:
      write_json(self.digest_list, digests)
    yield
    digests = self._recorded() | {name: file_digest(path)}
    write_json(self.digest_list, dict(sorted(digests.items())))

  def check(self, path: pathlib.Path, remedy: str = _REMEDY) -> None:
    """Raises a DataError with `remedy` if a file is not as it was written."""
    name = path.relative_to(self.path).as_posix()
    digest = self._recorded().get(name)
    # A file without a digest is not checked.
    if digest is not None and digest != file_digest(path):
      raise DataError(
        f'{path}: is not the file that this run wrote; it has changed, or is '
        f'from another run. {remedy}. If the change is intended, remove the '
        f'field {name!r} from {self.digest_list}'
      )

  def _recorded(self) -> dict[str, str]:
    return read_json(self.digest_list) if self.digest_list.is_file() else {}

  def record_corpus(self, corpus: Corpus) -> None:
    """Writes labels.jsonl, corpus.json and the ids of splits that were drawn.

    A DataError says that the run was started on another corpus, or with other
    parents of labels or concepts.
    """
    described = {
      'n_train': corpus.label_space.n_train,
      'splits': {name: len(split) for name, split in corpus.splits.items()},
      'digests': {name: s.digest for name, s in corpus.splits.items()},
      'fingerprint': corpus.fingerprint,
    }
    if left_out := corpus.label_space.left_out_ids:
      text = ''.join(f'{id_}\n' for id_ in left_out)
      described['left_out'] = hashlib.sha256(text.encode()).hexdigest()
    if taxonomy := corpus.label_space.taxonomy_digest:
      described['taxonomy'] = taxonomy
    # If config.json is absent, these files are from an interrupted start.
    has_run = self.config.exists() and self.corpus.exists()
    before = read_json(self.corpus) if has_run else described
    fields = dict.fromkeys((*before, *described))
    changed = [x for x in fields if before.get(x) != described.get(x)]
    if changed:
      raise DataError(
        f'{self.path}: was started on another corpus ({", ".join(changed)} '
        f'differ; before: {json.dumps(before)}; now: {json.dumps(described)}). '
        'The taxonomy is that of labels and concepts, with their parents. Use '
        'a new workdir, or judge this model on other data with xjax evaluate'
      )
    barrier('xjax:corpus')
    if is_host0():
      space = corpus.label_space
      for path, save, some in (
        (self.labels, space.save, True),
        (self.concepts, space.save_concepts, len(space.concepts)),
        (self.left_out, space.save_left_out, space.left_out_ids),
      ):
        if some and not (has_run and path.exists()):
          with self.recording(path):
            save(path)
      for name in corpus.drawn:
        if not has_run or not self.drawn(name).exists():
          with atomic_write(self.drawn(name)) as file:
            file.writelines(f'{id_}\n' for id_ in corpus.splits[name].ids)
      if not has_run:
        with self.recording(self.corpus):
          write_json(self.corpus, described)

  def _read_corpus(self) -> dict[str, Any]:
    described = read_json(self.corpus)
    self.check(self.corpus)
    return described

  def digests(self) -> dict[str, str]:
    return self._read_corpus()['digests']

  def label_space(self) -> LabelSpace:
    """Reads the labels, with those left out of judging, and the concepts."""
    space = LabelSpace.load(self.labels, self._read_corpus()['n_train'])
    self.check(self.labels)
    self.check(self.concepts)
    self.check(self.left_out)
    left_out = ()
    if self.left_out.exists():
      left_out = read_left_out(str(self.left_out), 'left_out')
    concepts = load_concepts(self.concepts)
    return dataclasses.replace(space, concepts=concepts, left_out_ids=left_out)

  def vocabulary(self) -> Vocabulary:
    vocab = Vocabulary.load(self.vocab)
    self.check(self.vocab)
    return vocab

  def subwords(self) -> Subwords:
    tokenizer = Subwords.load(self.tokenizer)
    self.check(self.tokenizer)
    return tokenizer

  def architecture(self) -> Architecture | None:
    """Reads the sizes of the pretrained encoder; None if the run has none."""
    # encoder.json is written after tokenizer.json. If only encoder.json is
    # absent, reading it raises the error.
    if not self.encoder.exists() and not self.tokenizer.exists():
      return None
    architecture = architecture_of(read_json(self.encoder), str(self.encoder))
    self.check(self.encoder)
    return architecture
