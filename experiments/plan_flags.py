"""The flags of a plan, and what it prints."""

from typing import Any

from absl import flags
import jax

from xjax.config.run import Config
from xjax.core.mesh import MeshConfig
from xjax.plan.advice import advice
from xjax.plan.chips import CHIPS, chip_named
from xjax.plan.plan import Planner, planned_mesh
from xjax.plan.sizes import assumed_sizes, corpus_sizes
from xjax.report.terminal.plan import plan_text

flags.disclaim_key_flags()

_OTHERS = ('chip', 'devices', 'plan_labels', 'plan_documents')


def define() -> None:
  """Defines --plan and its flags; --workdir and --multihost are there."""
  chips = f'What to plan for: {", ".join(CHIPS)}; empty: this machine.'
  numbers = {
    'devices': 'How many; else mesh.data x mesh.label, of which -1 is all that '
    'this machine has; with --chip it is 1.',
    'plan_labels': 'Plan without the corpus: its labels.',
    'plan_documents': 'and its training documents.',
  }
  flags.DEFINE_bool('plan', False, 'Print memory and time; train nothing.')
  flags.DEFINE_string('chip', '', chips)
  for name, text in numbers.items():
    flags.DEFINE_integer(name, None, text, lower_bound=1)
  names = ['plan', 'workdir', 'multihost', 'profile', *_OTHERS]
  flags.register_multi_flags_validator(names, _check)


def _check(values: dict[str, Any]) -> bool:
  """Refuses flags that are of no use, and those that others need."""
  told = {name for name, value in values.items() if value}
  unused = {f'--{name} needs --plan': name in told for name in _OTHERS}
  wrong = {
    '--workdir is missing, the folder of the run': 'workdir' not in told,
  }
  if 'plan' in told:
    unused = {}
    wrong = {
      'one process makes a plan': 'multihost' in told,
      'a plan takes no steps': 'profile' in told,
      '--plan_documents is missing': told & {*_OTHERS[2:]} == {'plan_labels'},
      '--plan_labels is missing': told & {*_OTHERS[2:]} == {'plan_documents'},
    }
  for message, holds in (unused | wrong).items():
    if holds:
      raise flags.ValidationError(message)
  return True


def print_plan(config: Config) -> bool:
  """Prints the plan, and what to change if it does not fit.

  Returns:
    Whether it fits.

  Raises:
    ConfigError, DataError: as training.
  """
  name, devices, *numbers = (flags.FLAGS[name].value for name in _OTHERS)
  chip, devices = chip_named(name), devices or devices_of(config.mesh, name)
  planned_mesh(config, devices)  # refused before the corpus is read
  by_corpus = numbers[0] is None
  sizes = corpus_sizes(config) if by_corpus else assumed_sizes(config, *numbers)
  planner = Planner(sizes, chip)
  plan = planner.plan(config, devices, compile_=True)
  print(plan_text(plan, None if plan.fits else advice(plan, planner)))
  return plan.fits


def devices_of(mesh: MeshConfig, chip: str) -> int:
  """Devices of a mesh, of which -1 is 1; where no chip is named, all here."""
  if not chip and -1 in (mesh.data, mesh.label):
    return jax.device_count()
  return max(1, mesh.data) * max(1, mesh.label)
