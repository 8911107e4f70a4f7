"""Defines the flags that choose how labels are selected."""

import typing

from absl import flags

from xjax.core.errors import ConfigError

if typing.TYPE_CHECKING:
  from xjax.run.strategies.strategy_request import StrategyRequest

TITLE = 'Strategies'

_KINDS = 'propensity', 'coverage', 'cost'
# Flag -> (field of StrategyRequest, the strategies that use the flag).
_FLAGS = {
  'strategy_k': ('k', _KINDS),
  'beta': ('beta', ('coverage',)),
  'strategy_seed': ('seed', ('coverage',)),
  'costs': ('costs', ('cost',)),
}


def define(k_default: str) -> None:
  """Defines --strategy and its flags; the help text shows `k_default`."""
  flags.DEFINE_enum(
    'strategy',
    None,
    _KINDS,
    'Rule that chooses the labels of a document (default: the best scores).',
  )
  flags.DEFINE_integer(
    'strategy_k', None, f'Number of labels per document (default: {k_default}).'
  )
  flags.DEFINE_float(
    'beta',
    0.0,
    'For coverage: a number >= 0. A larger number gives precision more weight '
    'relative to coverage.',
  )
  flags.DEFINE_integer(
    'strategy_seed', 0, 'For coverage: seed of the order of documents.'
  )
  flags.DEFINE_string(
    'costs',
    '',
    'For cost: file of JSON lines {"id", "weight"}; labels that are not in the '
    'file have weight 1.',
  )


def has_strategy() -> bool:
  """Returns whether the flags request a strategy."""
  return flags.FLAGS['strategy'].value is not None


def requested_strategy(k: int) -> 'StrategyRequest | None':
  """Returns the strategy of the flags, by default with k labels, or None."""
  values = flags.FLAGS
  kind = values['strategy'].value
  for name, (_, kinds) in _FLAGS.items():
    if values[name].present and kind not in kinds:
      users = '' if kinds is _KINDS else f'={kinds[0]}'
      raise ConfigError(f'--{name} works only with --strategy{users}')
  if kind is None:
    return None
  fields = {field: values[name].value for name, (field, _) in _FLAGS.items()}
  fields['k'] = k if fields['k'] is None else fields['k']
  from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest

  return StrategyRequest(StrategyKind(kind), **fields)
