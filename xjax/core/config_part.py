"""The parts of a run's config, and what stands on their fields.

A part is a dataclass below ConfigPart. Its fields carry their help, their
bounds and their value in a tiny twin for tests; its check() yields what fields
ask of one another. An abstract part, such as "an encoder", is chosen among its
kinds: the classes below it that have been imported, by their names.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
import importlib
import importlib.machinery
import inspect
import itertools
import math
import pkgutil
import types
from typing import Any, ClassVar, Self

from xjax.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Bound:
  """The values that a field may have.

  Attributes:
    holds: whether a value is one of them.
    text: what follows "must be" in the error.
  """

  holds: Callable[[Any], bool]
  text: str


AT_LEAST_0 = Bound(lambda value: value >= 0, 'at least 0')
AT_LEAST_1 = Bound(lambda value: value >= 1, 'at least 1')
AT_LEAST_2 = Bound(lambda value: value >= 2, 'at least 2')
RATE = Bound(lambda value: 0 <= value < 1, 'from 0 to below 1')
SHARE = Bound(lambda value: 0 < value <= 1, 'above 0, to 1')
POSITIVE = Bound(lambda value: 0 < value < math.inf, 'above 0')
AMOUNT = Bound(lambda value: 0 <= value < math.inf, 'at least 0')
RATIO = Bound(lambda value: 1 <= value < math.inf, 'at least 1')

_AS_IT_IS = object()


def field(
  default: Any,
  help_: str = '',
  bound: Bound | None = None,
  *,
  may_change: bool = False,
  tiny: Any = _AS_IT_IS,
) -> Any:
  """A field of a part of the config.

  Args:
    default: its value; a class: an object of it.
    help_: what it means, in one or two sentences.
    bound: the values that it may have; None: all of its type.
    may_change: whether a resumed run may have another value; that is printed.
    tiny: its value in the tiny twin of a config, or a function of its value
      that returns that; by default it stays.
  """
  metadata = {'help': help_, 'bound': bound, 'may_change': may_change}
  if tiny is not _AS_IT_IS:
    metadata['tiny'] = tiny if callable(tiny) else lambda _: tiny
  if isinstance(default, type):
    return dataclasses.field(default_factory=default, metadata=metadata)
  return dataclasses.field(default=default, metadata=metadata)


def at_most(limit: float) -> Callable[[float], float]:
  """The smaller one of a value and a limit."""
  return functools.partial(min, limit)


class ConfigPart:
  """A part of a config.

  Attributes:
    abstract: whether a config has one of the classes below it instead.
    earlier_kind: its "kind" in a config.json of an earlier xjax, where that
      does not follow from the class's name.
  """

  abstract: ClassVar[bool] = True
  earlier_kind: ClassVar[str] = ''

  def __init_subclass__(cls, abstract: bool = False, **others: Any) -> None:
    """Notes whether a class is abstract: its subclasses need not be.

    Raises:
      TypeError: a kind that lacks a method which every kind must have.
    """
    super().__init_subclass__(**others)
    lacks = [
      name
      for name, member in inspect.getmembers(cls, inspect.isfunction)
      if hasattr(member, '__isabstractmethod__')
    ]
    # A class that is refused is not chosen while it is not collected yet.
    cls.abstract = abstract or bool(lacks)
    if lacks and not abstract:
      raise TypeError(f'{cls.__name__} must define {", ".join(lacks)}()')

  def check(self, config: Any, path: str) -> Iterator[str]:
    """Yields what is wrong between fields, each naming a field.

    It is called once every field is within its bounds.

    Args:
      config: the whole config of the run.
      path: where this part is, such as 'config.model.encoder'.
    """
    yield from ()

  def tiny(self) -> Self:
    """A twin for tests: every size is small, and no file is read."""
    sizes = {}
    for field_ in dataclasses.fields(self):
      value = getattr(self, field_.name)
      if 'tiny' in field_.metadata:
        sizes[field_.name] = field_.metadata['tiny'](value)
      elif isinstance(value, ConfigPart):
        sizes[field_.name] = value.tiny()
    return dataclasses.replace(self, **sizes)

  @classmethod
  def from_earlier(cls, fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON fields of this part, from those that an earlier xjax saved."""
    return fields

  @classmethod
  def bounds(cls, name: str) -> tuple[Bound, ...]:
    """The bounds of a field, those of the classes above it as well."""
    fields = (
      getattr(base, '__dataclass_fields__', {}).get(name)
      for base in cls.__mro__
    )
    every = (field_.metadata.get('bound') for field_ in fields if field_)
    return tuple(dict.fromkeys(bound for bound in every if bound))


def kinds(base: type) -> tuple[type, ...]:
  """The kinds among which an abstract part is chosen; else none.

  Args:
    base: any class.

  Returns:
    All imported classes below it that are not abstract, in the order of their
    names.

  Raises:
    ConfigError: two of them have one name.
  """
  if not (issubclass(base, ConfigPart) and base.abstract):
    return ()
  named = {}
  for kind in set(_below(base)):
    other = named.setdefault(kind.__name__, kind)
    if other is not kind:
      raise ConfigError(
        f'two kinds of {base.__name__} are called {kind.__name__}: those of '
        f'{" and ".join(sorted((kind.__module__, other.__module__)))}; give '
        'yours another name'
      )
  return tuple(kind for _, kind in sorted(named.items()))


def kinds_that(attribute: str, base: type) -> str:
  """Names the kinds that have an attribute, for errors.

  Args:
    attribute: of the classes; true of those that are named.
    base: an abstract part.

  Returns:
    As 'BertConfig(...) or YourConfig(...)'.
  """
  able = (kind.__name__ for kind in kinds(base) if getattr(kind, attribute))
  return ' or '.join(f'{name}(...)' for name in able)


def modules_of(part: ConfigPart) -> list[str]:
  """The modules that define a part and the parts in it, where not xjax's.

  A config file, which may define some, cannot be imported, and is left out.
  """
  inner = (getattr(part, each.name) for each in dataclasses.fields(part))
  below = (modules_of(each) for each in inner if isinstance(each, ConfigPart))
  own = type(part).__module__
  named = dict.fromkeys(itertools.chain([own], *below))
  return [
    name
    for name in named
    if not name.startswith('xjax.')
    and importlib.machinery.PathFinder.find_spec(name.partition('.')[0])
  ]


def _below(base: type) -> Iterator[type]:
  for one in base.__subclasses__():
    if not one.abstract:
      yield one
    yield from _below(one)


def import_modules(package: types.ModuleType) -> None:
  """Imports every module below a folder: kinds in them can be chosen then."""
  inside = f'{package.__name__}.'
  for module in pkgutil.walk_packages(package.__path__, inside):
    importlib.import_module(module.name)
