"""Where training of word vectors stands, on disk: JSON and arrays."""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from xjax.core.atomic import write_json, write_npz
from xjax.core.errors import DAMAGE, ConfigError, DataError


@dataclasses.dataclass(frozen=True, eq=False)
class WordState:
  """All that decides how training goes on.

  Attributes:
    epoch: epochs done.
    words: n of them, most frequent first.
    counts: int64 [n], how often each occurs.
    vectors: float32 [n, E], of words: what training is for.
    contexts: float32 [n, E], of words as neighbours of others.
  """

  epoch: int
  words: tuple[str, ...]
  counts: np.ndarray
  vectors: np.ndarray
  contexts: np.ndarray

  def is_sound(self) -> bool:
    """Whether the arrays go together and are finite."""
    n = len(self.words)
    return bool(
      len(set(self.words)) == n > 0
      and self.counts.shape == (n,)
      and self.vectors.shape == self.contexts.shape
      and self.vectors.shape[:-1] == (n,)
      and np.isfinite(self.vectors).all()
      and np.isfinite(self.contexts).all()
    )


@dataclasses.dataclass(frozen=True)
class StateFolder:
  """OUTPUT.state, beside the file OUTPUT."""

  path: pathlib.Path

  @property
  def settings(self) -> pathlib.Path:
    """What training was begun with."""
    return self.path / 'settings.json'

  @property
  def arrays(self) -> pathlib.Path:
    """The state after the last epoch."""
    return self.path / 'state.npz'

  def begin(self, settings: Mapping[str, Any], state: WordState) -> None:
    """Notes what training begins with, and saves its first state.

    Args:
      settings: JSON values by what a user calls them.
      state: before the first epoch.

    Raises:
      WriteError: it cannot be written.
    """
    write_json(self.settings, dict(settings))
    self.save(state)

  def compare(self, settings: Mapping[str, Any]) -> None:
    """Sees that training, if it has begun, did so with these settings.

    Args:
      settings: JSON values by what a user calls them.

    Raises:
      ConfigError: it was begun with others; the message names them.
      DataError: the file is damaged.
    """
    if not self.settings.exists():
      return
    before = self._read_settings()
    differences = [
      f'  {name}: {before.get(name)} -> {settings.get(name)}'
      for name in dict.fromkeys((*before, *settings))
      if before.get(name) != settings.get(name)
    ]
    if differences:
      raise ConfigError(
        f'{self.path} was begun with other settings:\n'
        + '\n'.join(differences)
        + '\ntake another output, or remove that folder to begin anew'
      )

  def _read_settings(self) -> dict[str, Any]:
    try:
      before = json.loads(self.settings.read_text(encoding='utf-8'))
    except DAMAGE as error:
      raise self._damaged(self.settings) from error
    if not isinstance(before, dict):
      raise self._damaged(self.settings)
    return before

  def save(self, state: WordState) -> None:
    """Replaces the state as a whole.

    Raises:
      WriteError: it cannot be written.
    """
    text = '\n'.join(state.words).encode()
    arrays = {
      'epoch': np.int64(state.epoch),
      'words': np.frombuffer(text, np.uint8),
      'counts': state.counts,
      'vectors': state.vectors,
      'contexts': state.contexts,
    }
    write_npz(self.arrays, arrays)

  def load(self) -> WordState | None:
    """The state saved last; None: there is none yet.

    Raises:
      DataError: the file is damaged.
    """
    if not self.arrays.exists():
      return None
    try:
      # Opened here: of a damaged one, NumPy leaves closing to chance.
      with self.arrays.open('rb') as file:
        state = _state(np.load(file, allow_pickle=False))
    except DAMAGE as error:
      raise self._damaged(self.arrays) from error
    if not state.is_sound():
      raise self._damaged(self.arrays)
    return state

  def _damaged(self, path: pathlib.Path) -> DataError:
    return DataError(
      f'{path}: the file is damaged: remove {self.path} to begin anew'
    )


def _state(arrays: Mapping[str, np.ndarray]) -> WordState:
  return WordState(
    epoch=int(arrays['epoch']),
    words=tuple(arrays['words'].tobytes().decode().split('\n')),
    counts=arrays['counts'].astype(np.int64, casting='safe'),
    vectors=arrays['vectors'].astype(np.float32, casting='safe'),
    contexts=arrays['contexts'].astype(np.float32, casting='safe'),
  )
