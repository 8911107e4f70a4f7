"""Defines the flags that choose how labels are selected."""

import typing

from absl import flags

from xjax.commands.flags.required import check_absent

if typing.TYPE_CHECKING:
  from xjax.run.strategies.strategy_request import StrategyRequest

TITLE = 'Strategies'


def define(k_default: str) -> None:
  """Defines --strategy and its flags; the help text shows `k_default`."""
  flags.DEFINE_enum(
    'strategy',
    None,
    ('propensity', 'coverage'),
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


def has_strategy() -> bool:
  """Returns whether the flags request a strategy."""
  return flags.FLAGS['strategy'].value is not None


def requested_strategy(k: int) -> 'StrategyRequest | None':
  """Returns the strategy of the flags, by default with k labels, or None."""
  values = flags.FLAGS
  if values.strategy != 'coverage':
    check_absent(('beta', 'strategy_seed'), 'strategy=coverage')
  if values.strategy is None:
    check_absent(['strategy_k'], 'strategy')
    return None
  from xjax.run.strategies.strategy_request import StrategyKind, StrategyRequest

  return StrategyRequest(
    StrategyKind(values.strategy),
    k if values.strategy_k is None else values.strategy_k,
    values.beta,
    values.strategy_seed,
  )
