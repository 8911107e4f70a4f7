"""Summarises a sweep: a table of its trials, and commands to run next."""

from collections.abc import Mapping, Sequence
import shlex
import statistics
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from xjax.core.console import command_words
from xjax.report.table import Table, number_cell, plain_text
from xjax.sweep.session import SweepSession
from xjax.sweep.trials import (
  STATES,
  best_trial,
  error_of,
  fields_of,
  seed_values,
)

_ORDER = list(STATES)
_WIDTH = 24  # maximum number of characters of a cell; longer values are cut
_REPORTED = 10  # a report on more systems would be unreadable


def sweep_summary(session: SweepSession, trials: Sequence[FrozenTrial]) -> str:
  """Returns the trials by state, a table of all, errors and next commands."""
  ranked = sorted(trials, key=_rank)
  counts = ', '.join(
    f'{sum(trial.state is state for trial in trials)} {name}'
    for state, name in STATES.items()
  )
  table = plain_text(_trials(session, ranked))
  parts = [f'dev {session.metric}: {counts}\n{table}']
  if failed := [x for x in trials if x.state is TrialState.FAIL]:
    parts.append('\n'.join(_failure(session, trial) for trial in failed))
  if best := best_trial(trials):
    parts.append(
      f'To train the best trial (number {best.number}) again:\n'
      f'  {session.train_again(session.folder.best)}\n'
      f'{_report(session, ranked)}'
    )
  return '\n\n'.join(parts)


def _rank(trial: FrozenTrial) -> tuple[int, float, int]:
  value = 0.0 if trial.value is None else trial.value
  return _ORDER.index(trial.state), -value, trial.number


def _trials(session: SweepSession, trials: Sequence[FrozenTrial]) -> Table:
  keys = list(dict.fromkeys(key for trial in trials for key in trial.params))
  names = short_names(keys)
  several = ['sd'] if session.seeds > 1 else []
  rows = []
  for trial in trials:
    numbers = [trial.value, *([_deviation(trial)] if several else [])]
    rows.append(
      [
        str(trial.number),
        STATES[trial.state],
        *map(number_cell, numbers),
        *(_cell(trial.params, key) for key in keys),
      ]
    )
  columns = 'trial', 'state', 'value', *several, *(names[key] for key in keys)
  return Table.of(columns, rows, n_text=2)


def _deviation(trial: FrozenTrial) -> float | None:
  if trial.state is not TrialState.COMPLETE:
    return None
  return statistics.stdev(seed_values(trial))


def short_names(keys: Sequence[str]) -> dict[str, str]:
  """Returns the last parts of each key's fields, or the key if they collide."""
  short = {
    key: '/'.join(dict.fromkeys(f.rpartition('.')[2] for f in fields_of(key)))
    for key in keys
  }
  names = list(short.values())
  return {k: v if names.count(v) == 1 else k for k, v in short.items()}


def _cell(parameters: Mapping[str, Any], key: str) -> str:
  value = parameters.get(key, '-')
  text = f'{value:.4g}' if isinstance(value, float) else str(value)
  return text if len(text) <= _WIDTH else f'{text[: _WIDTH - 3]}...'


def _failure(session: SweepSession, trial: FrozenTrial) -> str:
  logs = session.folder.path / 'logs'
  return (
    f'! trial {trial.number} failed: {error_of(trial):.160} '
    f'({logs}/{trial.number:04d}*.txt)'
  )


def _report(session: SweepSession, ranked: Sequence[FrozenTrial]) -> str:
  complete = [x for x in ranked if x.state is TrialState.COMPLETE][:_REPORTED]
  seeds = range(session.config.seed, session.config.seed + session.seeds)
  folders = [
    str(
      session.folder.place(
        trial.number, seed if session.seeds > 1 else None
      ).workdir
    )
    for trial in complete
    for seed in seeds
  ]
  is_cut = len(complete) == _REPORTED
  trials = 'the best trials' if is_cut else 'all complete trials'
  words = [*session.import_flags, *folders]
  output = shlex.quote(f'--output={session.folder.path / "report.html"}')
  return (
    f'To write a report on {trials}:\n'
    f'  {command_words()} report {shlex.join(words)} {output}'
  )
