"""Summarises a sweep: a table of its trials, and commands to run next."""

from collections.abc import Mapping, Sequence
import shlex
from typing import Any

from xjax.core.console import command_words
from xjax.report.table import Table, number_cell, plain_text
from xjax.sweep.session import SweepSession
from xjax.sweep.store import Outcome, TrialStatus, best_trial
from xjax.sweep.trials import fields_of

_ORDER = list(TrialStatus)
_WIDTH = 24  # maximum number of characters of a cell; longer values are cut
_REPORTED = 10  # a report on more systems would be unreadable


def sweep_summary(session: SweepSession, outcomes: Sequence[Outcome]) -> str:
  """Returns the trials by state, a table of all, errors and next commands."""
  ranked = sorted(outcomes, key=_rank)
  counts = ', '.join(
    f'{sum(outcome.state is state for outcome in outcomes)} {state.value}'
    for state in _ORDER
  )
  table = plain_text(_trials(session, ranked))
  parts = [f'dev {session.metric}: {counts}\n{table}']
  if failed := [x for x in outcomes if x.state is TrialStatus.FAILED]:
    parts.append('\n'.join(_failure(session, outcome) for outcome in failed))
  if best := best_trial(outcomes):
    parts.append(
      f'To train the best trial (number {best.number}) again:\n'
      f'  {session.train_again(session.folder.best)}\n'
      f'{_report(session, ranked)}'
    )
  return '\n\n'.join(parts)


def _rank(outcome: Outcome) -> tuple[int, float, int]:
  value = 0.0 if outcome.value is None else outcome.value
  return _ORDER.index(outcome.state), -value, outcome.number


def _trials(session: SweepSession, outcomes: Sequence[Outcome]) -> Table:
  keys = list(
    dict.fromkeys(key for outcome in outcomes for key in outcome.parameters)
  )
  names = short_names(keys)
  several = ['sd'] if session.seeds > 1 else []
  rows = []
  for outcome in outcomes:
    numbers = [outcome.value, *([outcome.deviation] if several else [])]
    rows.append(
      [
        str(outcome.number),
        outcome.state.value,
        *map(number_cell, numbers),
        *(_cell(outcome.parameters, key) for key in keys),
      ]
    )
  columns = 'trial', 'state', 'value', *several, *(names[key] for key in keys)
  return Table.of(columns, rows, n_text=2)


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


def _failure(session: SweepSession, outcome: Outcome) -> str:
  logs = session.folder.path / 'logs'
  return (
    f'! trial {outcome.number} failed: {outcome.error:.160} '
    f'({logs}/{outcome.number:04d}*.txt)'
  )


def _report(session: SweepSession, ranked: Sequence[Outcome]) -> str:
  complete = [
    outcome for outcome in ranked if outcome.state is TrialStatus.COMPLETE
  ][:_REPORTED]
  seeds = range(session.config.seed, session.config.seed + session.seeds)
  folders = [
    str(
      session.folder.place(
        outcome.number, seed if session.seeds > 1 else None
      ).workdir
    )
    for outcome in complete
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
