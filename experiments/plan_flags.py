"""The flags of a plan, and what it prints."""

from absl import flags

from xjax.core.chips import CHIPS, chip_named
from xjax.core.errors import ConfigError
from xjax.report.plan_text import plan_text
from xjax.train.config import Config
from xjax.train.plan import Planner
from xjax.train.plan_advice import advice
from xjax.train.plan_sizes import corpus_sizes, given_sizes

flags.disclaim_key_flags()

_OTHERS = ('chip', 'devices', 'plan_labels', 'plan_documents')


def define() -> None:
  """Defines --plan and what it is of."""
  flags.DEFINE_bool(
    'plan', False, 'Print memory and time of the run; train nothing.'
  )
  flags.DEFINE_string(
    'chip', '', f'What to plan for: {", ".join(CHIPS)}; empty: this machine.'
  )
  flags.DEFINE_integer(
    'devices', None, 'How many; else mesh.data x mesh.label.', lower_bound=1
  )
  flags.DEFINE_integer(
    'plan_labels', None, 'Plan without the corpus: its labels.', lower_bound=1
  )
  flags.DEFINE_integer(
    'plan_documents', None, 'and its training documents.', lower_bound=1
  )


def asked() -> bool:
  """Whether a plan is asked for.

  Raises:
    ConfigError: a flag is given that is of no use.
  """
  given = {name for name in _OTHERS if flags.FLAGS[name].present}
  if not flags.FLAGS['plan'].value:
    if given:
      raise ConfigError(f'--{sorted(given)[0]}: needs --plan')
    return False
  if flags.FLAGS['multihost'].value:
    raise ConfigError('--multihost: a plan is made by one process')
  if len(given & {'plan_labels', 'plan_documents'}) == 1:
    raise ConfigError('--plan_labels, --plan_documents: give both or neither')
  return True


def run(config: Config) -> bool:
  """Prints the plan, and what to change if it does not fit.

  Returns:
    Whether it fits.

  Raises:
    ConfigError, DataError: as training.
  """
  values = {name: flags.FLAGS[name].value for name in _OTHERS}
  chip = chip_named(values['chip'])
  devices = values['devices']
  if devices is None:
    devices = max(1, config.mesh.data) * max(1, config.mesh.label)
  if values['plan_labels'] is None:
    sizes = corpus_sizes(config)
  else:
    sizes = given_sizes(config, values['plan_labels'], values['plan_documents'])
  planner = Planner(sizes, chip)
  plan = planner.plan(config, devices, compile_=True)
  print(plan_text(plan, None if plan.fits else advice(plan, planner)))
  return plan.fits
