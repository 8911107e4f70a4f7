"""The flags of a plan, and what it prints."""

from collections.abc import Callable
from typing import Any

from absl import flags
import jax

from xjax.config.run import Config
from xjax.core.mesh import MeshConfig
from xjax.plan.advice import advice
from xjax.plan.chips import CHIPS, chip_named
from xjax.plan.plan import Planner, planned_mesh
from xjax.plan.sizes import corpus_sizes, given_sizes
from xjax.report.terminal.plan import plan_text

flags.disclaim_key_flags()

_SIZES = ('plan_labels', 'plan_documents')
_OTHERS = ('chip', 'devices', *_SIZES)


def define() -> None:
  """Defines --plan and what it is of; --workdir and --multihost are there."""
  flags.DEFINE_bool(
    'plan', False, 'Print memory and time of the run; train nothing.'
  )
  flags.DEFINE_string(
    'chip', '', f'What to plan for: {", ".join(CHIPS)}; empty: this machine.'
  )
  flags.DEFINE_integer(
    'devices',
    None,
    'How many; else mesh.data x mesh.label, of which -1 is all that this '
    'machine has; with --chip it is 1.',
    lower_bound=1,
  )
  flags.DEFINE_integer(
    'plan_labels', None, 'Plan without the corpus: its labels.', lower_bound=1
  )
  flags.DEFINE_integer(
    'plan_documents', None, 'and its training documents.', lower_bound=1
  )
  _refuse_what_is_of_no_use()


def _refuse_what_is_of_no_use() -> None:
  for name in _OTHERS:
    _check((name, 'plan'), lambda _, plan: plan, f'--{name} needs --plan')
  _check(
    ('multihost', 'plan'),
    lambda _, plan: not plan,
    'one process makes a plan',
  )
  _check(('profile', 'plan'), lambda _, plan: not plan, 'a plan takes no steps')
  for one, other in (_SIZES, _SIZES[::-1]):
    _check((one, other), lambda _, other: other, f'--{other} is missing')
  flags.register_multi_flags_validator(
    ['workdir', 'plan'],
    lambda values: values['workdir'] or values['plan'],
    '--workdir is missing, the folder of the run',
  )


def _check(
  names: tuple[str, str], allowed: Callable[[Any, Any], Any], message: str
) -> None:
  """Refuses the first of two flags where it is set and not allowed."""
  flags.register_multi_flags_validator(
    names,
    lambda values: (
      not values[names[0]] or bool(allowed(*map(values.get, names)))
    ),
    message,
  )


def print_plan(config: Config) -> bool:
  """Prints the plan, and what to change if it does not fit.

  Returns:
    Whether it fits.

  Raises:
    ConfigError, DataError: as training.
  """
  values = {name: flags.FLAGS[name].value for name in _OTHERS}
  chip = chip_named(values['chip'])
  devices = values['devices'] or devices_of(config.mesh, values['chip'])
  planned_mesh(config, devices)  # refused before the corpus is read
  if values['plan_labels'] is None:
    sizes = corpus_sizes(config)
  else:
    sizes = given_sizes(config, values['plan_labels'], values['plan_documents'])
  planner = Planner(sizes, chip)
  plan = planner.plan(config, devices, compile_=True)
  print(plan_text(plan, None if plan.fits else advice(plan, planner)))
  return plan.fits


def devices_of(mesh: MeshConfig, chip: str) -> int:
  """Those of the mesh.

  Args:
    mesh: of the run; -1 is 1, but all that are left on this machine.
    chip: as asked for; empty: this machine's.
  """
  if not chip and -1 in (mesh.data, mesh.label):
    return jax.device_count()
  return max(1, mesh.data) * max(1, mesh.label)
