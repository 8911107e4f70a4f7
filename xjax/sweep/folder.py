"""Gives the paths of a sweep's files, and checks whether a sweep can resume."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import os
import pathlib
from typing import Any

from absl import logging

from xjax.core.atomic import remove_temporaries, write_json, writing
from xjax.core.errors import ConfigError, DataError
from xjax.core.processes.lock import locked
from xjax.models.config_json import diff, from_json, to_json
from xjax.models.contract import Config
from xjax.sweep.config import Sweep
from xjax.sweep.overrides import plain_json
from xjax.train.workdir import read_json

# A resumed run may change these fields. A resumed sweep must not change them,
# because all its trials must be comparable.
_SAME_FOR_ALL = (
  'train.steps',
  'data.dir',
  'data.tokens.dir',
  'model.embedding.vectors',
  'model.encoder.folder',
)


@dataclasses.dataclass(frozen=True)
class Place:
  """Holds the paths of the files of one run (one trial with one seed)."""

  workdir: pathlib.Path
  config: pathlib.Path
  log: pathlib.Path  # output of the run's process
  pid: pathlib.Path  # id of the run's process, which keeps the file locked


@dataclasses.dataclass(frozen=True)
class SweepFolder:
  """Gives the paths of a sweep's files."""

  path: pathlib.Path

  @classmethod
  def at(cls, path: str | os.PathLike) -> 'SweepFolder':
    """Returns the sweep folder with a given path, which need not exist yet.

    Raises:
      ConfigError: the folder is the workdir of a run.
    """
    folder = cls(pathlib.Path(os.path.expanduser(path)).absolute())
    if (folder.path / 'config.json').exists():
      raise ConfigError(
        f'{folder.path}: is the workdir of a run, not of a sweep; choose '
        'another folder'
      )
    return folder

  @property
  def sweep(self) -> pathlib.Path:
    """Returns the path of the file that describes the sweep."""
    return self.path / 'sweep.json'

  @property
  def store(self) -> pathlib.Path:
    """Returns the path of the database of trials."""
    return self.path / 'sweep.db'

  @property
  def best(self) -> pathlib.Path:
    """Returns the path of best.py, the config file of the best trial."""
    return self.path / 'best.py'

  def place(self, number: int, seed: int | None) -> Place:
    """Returns the paths of a run; seed is None if trials have only one seed."""
    name = f'{number:04d}' + ('' if seed is None else f'_seed{seed}')
    return Place(
      self.path / 'trials' / name,
      self.path / 'configs' / f'{name}.py',
      self.path / 'logs' / f'{name}.txt',
      self.path / 'logs' / f'{name}.pid',
    )

  @contextlib.contextmanager
  def lock(self) -> Iterator[None]:
    """Makes the folder, and locks it until the context is left.

    What a killed sweep has left of unfinished files is removed. The workdirs of
    trials are left alone: each run looks after its own.

    Raises:
      ConfigError: another process has locked the folder; the message says who.
    """
    with locked(self.path, wait=0):
      for folder in ('trials', 'configs', 'logs'):
        with writing(self.path / folder):
          (self.path / folder).mkdir(exist_ok=True)
      for files in (self.sweep.name, self.store.name, self.best.name):
        remove_temporaries(self.path, files)
      remove_temporaries(self.path, 'configs/*')
      yield

  def open(self, sweep: Sweep, config: Config, seeds: int) -> None:
    """Checks that a resumed sweep has the same settings, and writes sweep.json.

    Fields of the config that a resumed run is allowed to change can also differ
    here. Exceptions are train.steps, and the paths of the data, the word
    vectors and the encoder, which must stay the same.

    Raises:
      ConfigError: the settings differ; the message shows the differences.
      DataError: sweep.json is damaged, or missing although there are trials.
    """
    described = {
      'sweep': _to_json(sweep),
      'config': to_json(config),
      'seeds': seeds,
    }
    if self.sweep.exists():
      self._compare(read_json(self.sweep), described, config)
    elif self.store.exists():
      raise DataError(
        f'{self.path}: has a sweep.db but no sweep.json; restore sweep.json, '
        'or choose another folder'
      )
    write_json(self.sweep, described)

  def _compare(
    self, old: Mapping[str, Any], new: Mapping[str, Any], config: Config
  ) -> None:
    try:
      before = from_json(old['config'], Config)
    except (KeyError, ConfigError) as error:
      raise DataError(
        f'{self.sweep}: does not describe a sweep of xjax ({error})'
      ) from error
    faults = _differences({**old, 'config': {}}, {**new, 'config': {}})
    for difference in diff(before, config):
      if difference.may_change and difference.path not in _SAME_FOR_ALL:
        logging.info('config changed: %s', difference)
      else:
        faults.append(f'config.{difference}')
    if faults:
      raise ConfigError(
        f'{self.path} was started with another sweep:\n  '
        + '\n  '.join(faults)
        + '\nchoose a new workdir, or use the same sweep as before'
      )


def _to_json(part: Any) -> Any:
  """Returns a part of a sweep as JSON, without fields that may change."""
  if isinstance(part, Mapping):
    return {key: _to_json(value) for key, value in part.items()}
  if isinstance(part, tuple):
    return [_to_json(value) for value in part]
  if type(part).__module__ != Sweep.__module__:
    return plain_json(part)
  fields = [
    field.name
    for field in dataclasses.fields(part)
    if not field.metadata.get('may_change')
  ]
  values = {name: _to_json(getattr(part, name)) for name in fields}
  return {'kind': type(part).__name__, **values}


def _differences(old: Any, new: Any, path: str = '') -> list[str]:
  """Returns the differences between two JSON values: `path: old -> new`."""
  if isinstance(old, dict) and isinstance(new, dict):
    differences = []
    for name in dict.fromkeys([*old, *new]):
      inner = f'{path}.{name}' if path else name
      differences += _differences(old.get(name), new.get(name), inner)
    return differences
  if old == new:
    return []
  return [f'{path}: {json.dumps(old)} -> {json.dumps(new)}']
