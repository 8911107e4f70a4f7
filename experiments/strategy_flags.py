"""Flags that say how labels are chosen."""

from absl import flags

from xjax.core.errors import ConfigError
from xjax.run.strategy import StrategyKind, StrategyRequest

flags.disclaim_key_flags()

# Flag -> (field of StrategyRequest, the strategies that take notice of it).
_FLAGS = {
  'strategy_k': ('k', tuple(StrategyKind)),
  'beta': ('beta', (StrategyKind.COVERAGE,)),
  'strategy_seed': (
    'seed',
    (StrategyKind.COVERAGE, StrategyKind.BOUNDED_RANDOM),
  ),
  'costs': ('costs', (StrategyKind.COST,)),
}


def define(k_default: str) -> None:
  """Defines --strategy and what goes with it.

  Args:
    k_default: what --strategy_k is where it is not given, in words.
  """
  flags.DEFINE_enum_class(
    'strategy',
    None,
    StrategyKind,
    'How labels are chosen, if not the best by score.',
  )
  flags.DEFINE_integer(
    'strategy_k', None, f'Labels chosen for a document; else {k_default}.'
  )
  flags.DEFINE_float(
    'beta', 0.0, 'Of coverage: how much being right counts, beside covering.'
  )
  flags.DEFINE_integer(
    'strategy_seed', 0, "Of coverage's order of documents, and of random draws."
  )
  flags.DEFINE_string(
    'costs', '', 'Of cost: JSON lines {"id", "weight"}; other labels weigh 1.'
  )


def given() -> bool:
  """Whether the flags ask for a strategy."""
  return flags.FLAGS['strategy'].value is not None


def asked(k: int) -> StrategyRequest | None:
  """The strategy that the flags ask for; None: none.

  Args:
    k: labels of a document, unless --strategy_k says so.

  Raises:
    ConfigError: a flag is given that the strategy takes no notice of, or one
      is impossible or missing.
  """
  values = flags.FLAGS
  kind = values['strategy'].value
  for name, (_, kinds) in _FLAGS.items():
    if values[name].present and kind not in kinds:
      which = '' if len(kinds) == len(StrategyKind) else f'={_named(kinds)}'
      raise ConfigError(f'--{name} goes with --strategy{which} only')
  if kind is None:
    return None
  given = {field: values[name].value for name, (field, _) in _FLAGS.items()}
  given['k'] = k if given['k'] is None else given['k']
  return StrategyRequest(kind, **given)


def _named(kinds: tuple[StrategyKind, ...]) -> str:
  return ' or '.join(kind.value for kind in kinds)
