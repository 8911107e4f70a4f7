"""Defines the flags of --plan and prints the plan."""

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

_PLAN_FLAGS = ('chip', 'devices', 'plan_labels', 'plan_documents')


def define() -> None:
  """Defines --plan and its flags; --workdir etc. must be defined before."""
  chips = f'Chip to plan for (default: this machine): {", ".join(CHIPS)}.'
  numbers = {
    'devices': 'Number of devices (default: mesh.data x mesh.label, where -1 '
    'means all devices of this machine, or 1 with --chip).',
    'plan_labels': 'Number of labels, to plan without reading the corpus.',
    'plan_documents': 'Number of training documents, with --plan_labels.',
  }
  flags.DEFINE_bool(
    'plan', False, 'Print the memory and time of training; do not train.'
  )
  flags.DEFINE_string('chip', '', chips)
  for name, text in numbers.items():
    flags.DEFINE_integer(name, None, text, lower_bound=1)
  names = ['plan', 'workdir', 'multihost', 'profile', *_PLAN_FLAGS]
  flags.register_multi_flags_validator(names, _check)


def _check(values: dict[str, Any]) -> bool:
  """Checks that no flag is useless and that no required flag is missing."""
  names = {name for name, value in values.items() if value}
  unused = {f'--{name} needs --plan': name in names for name in _PLAN_FLAGS}
  faults = {
    '--workdir is missing: name a folder for the run': 'workdir' not in names,
  }
  sizes = names & {'plan_labels', 'plan_documents'}
  if 'plan' in names:
    unused = {}
    faults = {
      '--plan and --multihost cannot be combined': 'multihost' in names,
      '--plan and --profile cannot be combined': 'profile' in names,
      '--plan_documents is missing': sizes == {'plan_labels'},
      '--plan_labels is missing': sizes == {'plan_documents'},
    }
  for message, holds in (unused | faults).items():
    if holds:
      raise flags.ValidationError(message)
  return True


def print_plan(config: Config) -> bool:
  """Prints the plan, and suggests changes to the config if it does not fit.

  Returns:
    Whether the plan fits the memory of the devices.

  Raises:
    ConfigError, DataError: training would raise the same error.
  """
  name, devices, *numbers = (flags.FLAGS[name].value for name in _PLAN_FLAGS)
  chip, devices = chip_named(name), devices or devices_of(config.mesh, name)
  planned_mesh(config, devices)  # raises errors before the corpus is read
  by_corpus = numbers[0] is None
  sizes = corpus_sizes(config) if by_corpus else assumed_sizes(config, *numbers)
  planner = Planner(sizes, chip)
  plan = planner.plan(config, devices, compile_=True)
  print(plan_text(plan, None if plan.fits else advice(plan, planner)))
  return plan.fits


def devices_of(mesh: MeshConfig, chip: str) -> int:
  """Returns the number of devices of a mesh.

  An axis of -1 means all devices of this machine, or one device if a chip is
  named.
  """
  if not chip and -1 in (mesh.data, mesh.label):
    return jax.device_count()
  return max(1, mesh.data) * max(1, mesh.label)
