"""The folder of a sweep: what is where, and whether a sweep may go on in it."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
from typing import Any

from absl import logging

from xjax.config.json import diff, from_json, to_json
from xjax.config.run import Config
from xjax.core.atomic import write_json, writing
from xjax.core.errors import ConfigError, DataError
from xjax.sweep.config import Sweep
from xjax.sweep.overrides import plain
from xjax.train.workdir import read_json

# What may differ when a run goes on, but would set trials of one sweep apart.
_SAME_FOR_ALL = (
  'train.steps',
  'data.dir',
  'data.tokens.dir',
  'model.embedding.vectors',
  'model.encoder.folder',
)


@dataclasses.dataclass(frozen=True)
class Place:
  """Where the run of a trial with one seed is.

  Attributes:
    workdir: of experiments.train.
    config: the config file it is given.
    log: what it prints.
    pid: its process; locked while that lives.
  """

  workdir: pathlib.Path
  config: pathlib.Path
  log: pathlib.Path
  pid: pathlib.Path


@dataclasses.dataclass(frozen=True)
class SweepFolder:
  """Paths of a sweep's files."""

  path: pathlib.Path

  @classmethod
  def at(cls, path: str | os.PathLike) -> 'SweepFolder':
    """The folder of a sweep at a path, whether it exists or not.

    Raises:
      ConfigError: it is that of a run.
    """
    found = cls(pathlib.Path(os.path.expanduser(path)).absolute())
    if (found.path / 'config.json').exists():
      raise ConfigError(f'{found.path}: is the workdir of a run, not a sweep')
    return found

  @property
  def sweep(self) -> pathlib.Path:
    return self.path / 'sweep.json'

  @property
  def store(self) -> pathlib.Path:
    return self.path / 'sweep.db'

  @property
  def best(self) -> pathlib.Path:
    return self.path / 'best.py'

  def place(self, number: int, seed: int | None) -> Place:
    """Of a trial's run; with a seed where trials have several."""
    name = f'{number:04d}' + ('' if seed is None else f'_seed{seed}')
    return Place(
      self.path / 'trials' / name,
      self.path / 'configs' / f'{name}.py',
      self.path / 'logs' / f'{name}.txt',
      self.path / 'logs' / f'{name}.pid',
    )

  @contextlib.contextmanager
  def alone(self) -> Iterator[None]:
    """Makes the folder; keeps others out until left, or the process ends.

    Raises:
      ConfigError: another sweep is at work here.
      WriteError: it cannot be made.
    """
    for folder in ('trials', 'configs', 'logs'):
      with writing(self.path / folder):
        (self.path / folder).mkdir(parents=True, exist_ok=True)
    with (self.path / 'lock').open('w') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        raise ConfigError(
          f'{self.path}: another process is at work on this sweep'
        ) from None
      yield

  def open(self, sweep: Sweep, config: Config, seeds: int) -> None:
    """Begins a sweep, or goes on with the one that is here.

    Raises:
      ConfigError: it was started as another sweep; the message shows what
        differs. Of a config's fields those that a run may change may differ,
        but for train.steps and what trials read: data, vectors, encoder.
      DataError: sweep.json is damaged, or gone from beside the trials.
    """
    described = {
      'sweep': _described(sweep),
      'config': to_json(config),
      'seeds': seeds,
    }
    if self.sweep.exists():
      self._compare(read_json(self.sweep), described, config)
    elif self.store.exists():
      raise DataError(f'{self.path}: has a sweep.db but no sweep.json')
    write_json(self.sweep, described)

  def _compare(
    self, old: Mapping[str, Any], new: Mapping[str, Any], config: Config
  ) -> None:
    try:
      before = from_json(old['config'])
    except (KeyError, ConfigError) as error:
      raise DataError(f'{self.sweep}: not a sweep of xjax: {error}') from error
    refused = _differences({**old, 'config': {}}, {**new, 'config': {}})
    for difference in diff(before, config):
      if difference.may_change and difference.path not in _SAME_FOR_ALL:
        logging.info('config changed: %s', difference)
      else:
        refused.append(f'config.{difference}')
    if refused:
      raise ConfigError(
        f'{self.path} was started as another sweep:\n  '
        + '\n  '.join(refused)
        + '\ntake a new workdir, or the sweep this one was started as'
      )


def _described(part: Any) -> Any:
  """JSON of a sweep; what may change is left out."""
  if isinstance(part, Mapping):
    return {key: _described(value) for key, value in part.items()}
  if isinstance(part, tuple):
    return [_described(value) for value in part]
  if type(part).__module__ != Sweep.__module__:
    return plain(part)
  fields = [
    field.name
    for field in dataclasses.fields(part)
    if not field.metadata.get('may_change')
  ]
  shown = {name: _described(getattr(part, name)) for name in fields}
  return {'kind': type(part).__name__, **shown}


def _differences(old: Any, new: Any, path: str = '') -> list[str]:
  """What differs between two JSON values, as `path: old -> new`."""
  if isinstance(old, dict) and isinstance(new, dict):
    found = []
    for name in dict.fromkeys([*old, *new]):
      inner = f'{path}.{name}' if path else name
      found += _differences(old.get(name), new.get(name), inner)
    return found
  if old == new:
    return []
  return [f'{path}: {json.dumps(old)} -> {json.dumps(new)}']
