import dataclasses
import pathlib

from optuna.trial import FrozenTrial, TrialState, create_trial
import pytest

from xjax.models.contract import Config
from xjax.report.terminal.sweep_lines import sweep_summary
from xjax.sweep.config import Sweep, Tpe
from xjax.sweep.session import SweepFolder, SweepSession
from xjax.sweep.trials import distribution_of

UNITS, RATE = 'model.encoder.units', 'train.learning_rate'
SPACE = {UNITS: (8, 16), RATE: (0.0012345,)}


def trial(number, state, value, units=8, **attributes) -> FrozenTrial:
  parameters = {UNITS: units, RATE: 0.0012345}
  made = create_trial(
    state=state,
    value=value,
    params=parameters,
    distributions={key: distribution_of(SPACE[key]) for key in SPACE},
    user_attrs=attributes,
  )
  made.number = number
  return made


@pytest.fixture
def session() -> SweepSession:
  sweep = Sweep(Tpe(SPACE, 2))
  return SweepSession(sweep, Config(), SweepFolder.at('/at/sweep'))


TRIALS = [
  trial(0, TrialState.PRUNED, 0.9),
  trial(1, TrialState.COMPLETE, 0.25),
  trial(2, TrialState.FAIL, None, error='exit code 1; error: no'),
  trial(3, TrialState.COMPLETE, 0.5, units=16),
  trial(4, TrialState.RUNNING, None),
]


def test_ranks_and_counts(session):
  lines = sweep_summary(session, TRIALS).splitlines()
  assert lines[0] == (
    'dev all/RP@5: 2 complete, 1 pruned, 1 failed, 1 unfinished'
  )
  rows = [line.split() for line in lines[1:7]]
  assert rows == [
    ['trial', 'state', 'value', 'units', 'learning_rate'],
    ['3', 'complete', '0.5000', '16', '0.001234'],
    ['1', 'complete', '0.2500', '8', '0.001234'],
    ['0', 'pruned', '0.9000', '8', '0.001234'],
    ['2', 'failed', '-', '8', '0.001234'],
    ['4', 'unfinished', '-', '8', '0.001234'],
  ]


def test_says_what_failed_and_what_is_next(session):
  text = sweep_summary(session, TRIALS)
  assert '! trial 2 failed: exit code 1; error: no' in text
  assert '--config=/at/sweep/best.py' in text
  folders = [f'/at/sweep/trials/{n}' for n in ('0003', '0001')]
  assert f'xjax report {" ".join(folders)} --output' in text
  assert 'best.py' not in sweep_summary(session, TRIALS[:1])


def test_commands_import_what_the_sweep_imports(session):
  own = dataclasses.replace(session, imports=('mine', 'ours'))
  text = sweep_summary(own, TRIALS)
  flags = '--import=mine --import=ours'
  assert f'xjax train {flags} --config=/at/sweep/best.py' in text
  assert f'xjax report {flags} /at/sweep/trials/0003' in text
  command = own.command(own.folder.place(3, None))
  assert command.index('--import=mine') == command.index('--import=ours') - 1
  assert sweep_summary(session, TRIALS).count('--import') == 0


def test_seeds_have_a_deviation_and_folders(session):
  several = SweepSession(session.sweep, Config(seed=3), session.folder, seeds=2)
  one = trial(0, TrialState.COMPLETE, 0.5, **{'values by seed': [0.4, 0.6]})
  text = sweep_summary(several, [one])
  assert text.splitlines()[2].split()[2:4] == ['0.5000', '0.1414']
  for name in ('0000_seed3', '0000_seed4'):
    assert str(pathlib.Path('/at/sweep/trials') / name) in text
