"""Defines --plan and its flags, and prints the plan of a run."""

import typing

from absl import flags

from xjax.commands.flags.required import check_absent
from xjax.core.console import show
from xjax.core.errors import ConfigError
from xjax.plan.chips import CHIPS, chip_named

if typing.TYPE_CHECKING:
  from xjax.core.mesh_config import MeshConfig
  from xjax.models.contract import Config

TITLE = 'Plan'

_TARGET_FLAGS = ('chip', 'topology', 'slices', 'devices')
_PLAN_FLAGS = (*_TARGET_FLAGS, 'plan_labels', 'plan_documents')


def define() -> None:
  """Defines --plan; --workdir, --multihost and --profile come before."""
  chips = f'Chip to plan for (default: this machine): {", ".join(CHIPS)}.'
  numbers = {
    'slices': 'Number of slices of TPUs (default: 1).',
    'devices': 'Number of devices; of GPUs, each host has eight. Not for TPUs. '
    'Default: mesh.data x mesh.label. If one of the two is -1, the default is '
    'all devices of this machine; but with --chip, -1 counts as 1.',
    'plan_labels': 'Number of labels, to plan without reading the corpus.',
    'plan_documents': 'Number of training documents; needs --plan_labels.',
  }
  flags.DEFINE_bool(
    'plan', False, 'Print the memory and time of training; do not train.'
  )
  flags.DEFINE_string('chip', '', chips)
  flags.DEFINE_string('topology', '', 'Shape of a slice of TPUs, such as 4x4.')
  for name, text in numbers.items():
    flags.DEFINE_integer(name, None, text, lower_bound=1)
  flags.register_validator('plan', _check)


def _check(plan: bool) -> bool:
  """Raises an error if a flag has no effect or a required flag is missing."""
  values = flags.FLAGS
  if not plan:
    check_absent(_PLAN_FLAGS, 'plan')
    if not values['workdir'].value:
      raise ConfigError(
        '--workdir is missing; give the folder to write the run to'
      )
    return True
  for name in 'multihost', 'profile':
    if values[name].value:
      raise ConfigError(f'--plan and --{name} cannot be combined')
  if values['plan_documents'].present != values['plan_labels'].present:
    raise ConfigError('give both --plan_labels and --plan_documents, or none')
  return True


def print_plan(config: 'Config') -> bool:
  """Prints a plan for each neural model; returns whether all models fit."""
  import jax

  from xjax.data.load import load_corpus
  from xjax.plan.compiler import make_target
  from xjax.plan.plan import advice, make_plan, planned_mesh
  from xjax.plan.sizes import assumed_sizes, corpus_sizes, trained_models
  from xjax.report.terminal.plan_lines import advice_text, plan_text

  values = {name: flags.FLAGS[name].value for name in _PLAN_FLAGS}
  name, topology, slices, devices, labels, documents = values.values()
  if name:
    # The compilers of other chips may be installed here, but not such devices.
    jax.config.update('jax_platforms', 'cpu')
  chip = chip_named(name)
  devices = devices or (0 if topology else devices_of(config.mesh, name))
  target = make_target(chip, devices, topology, slices or 0)
  models, fits = trained_models(config), True
  for model in models:  # errors are raised before the corpus is read
    if model.planned:
      planned_mesh(model.config, target.devices, target.slices)
  if labels is None:
    leave_out = config.eval.leave_out
    corpus = load_corpus(config.data, config.seed, leave_out=leave_out)
  for number, model in enumerate(models):
    line = '\n' * (number > 0)  # a blank line between two models
    if not model.planned:
      show(line + model.title())
      continue
    if labels is None:
      sizes = corpus_sizes(model.config, corpus, model.clusters)
    else:
      sizes = assumed_sizes(model.config, labels, documents, model.clusters)
    show(line + model.title(sizes))
    plan = make_plan(model.config, sizes, target)
    show(plan_text(plan))
    if not plan.fits:
      show('\n' + advice_text(advice(plan)))
    fits &= plan.fits
  return fits


def devices_of(mesh: 'MeshConfig', chip: str) -> int:
  """Returns the devices of a mesh; -1 is all devices here, or 1 of a chip."""
  import jax

  if not chip and -1 in (mesh.data, mesh.label):
    return jax.device_count()
  return max(1, mesh.data) * max(1, mesh.label)
