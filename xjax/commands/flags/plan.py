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

_PLAN_FLAGS = ('chip', 'devices', 'plan_labels', 'plan_documents')


def define() -> None:
  """Defines --plan; --workdir, --multihost and --profile come before."""
  chips = f'Chip to plan for (default: this machine): {", ".join(CHIPS)}.'
  numbers = {
    'devices': 'Number of devices. Default: mesh.data x mesh.label. If one of '
    'the two is -1, the default is all devices of this machine; but with '
    '--chip, -1 counts as 1.',
    'plan_labels': 'Number of labels, to plan without reading the corpus.',
    'plan_documents': 'Number of training documents; needs --plan_labels.',
  }
  flags.DEFINE_bool(
    'plan', False, 'Print the memory and time of training; do not train.'
  )
  flags.DEFINE_string('chip', '', chips)
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
  from xjax.data.load import load_corpus
  from xjax.plan.plan import make_plan, planned_mesh
  from xjax.plan.sizes import assumed_sizes, corpus_sizes, trained_models
  from xjax.report.terminal.plan_lines import plan_text

  name, devices, *numbers = (flags.FLAGS[name].value for name in _PLAN_FLAGS)
  chip, devices = chip_named(name), devices or devices_of(config.mesh, name)
  by_corpus = numbers[0] is None
  models, fits = trained_models(config), True
  for model in models:  # errors are raised before the corpus is read
    if model.planned:
      planned_mesh(model.config, devices)
  if by_corpus:
    leave_out = config.eval.leave_out
    corpus = load_corpus(config.data, config.seed, leave_out=leave_out)
  for number, model in enumerate(models):
    line = '\n' * (number > 0)  # a blank line between two models
    if not model.planned:
      show(line + model.title())
      continue
    if by_corpus:
      sizes = corpus_sizes(model.config, corpus, model.clusters)
    else:
      sizes = assumed_sizes(model.config, *numbers, model.clusters)
    show(line + model.title(sizes))
    plan = make_plan(model.config, sizes, chip, devices, compile_=True)
    show(plan_text(plan))
    fits &= plan.fits
  return fits


def devices_of(mesh: 'MeshConfig', chip: str) -> int:
  """Returns the devices of a mesh; -1 is all devices here, or 1 of a chip."""
  import jax

  if not chip and -1 in (mesh.data, mesh.label):
    return jax.device_count()
  return max(1, mesh.data) * max(1, mesh.label)
