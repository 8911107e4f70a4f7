"""Defines the base class for parts of a config, and the fields of parts.

A part is a dataclass that inherits from ConfigPart. Each field of a part has a
help text and bounds. The method faults() of a part yields the faults that
concern several fields. An abstract part, such as "an encoder", has several
kinds: its subclasses in xjax and in imported modules of the user. A config has
one of the kinds in place of the abstract part.
"""

from collections.abc import Callable, Iterator
import dataclasses
import importlib
import importlib.machinery
import inspect
import itertools
import math
import pathlib
import pkgutil
import sys
import types
from typing import Any, ClassVar

from xjax.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Bound:
  """Limits the values that a field can have."""

  holds: Callable[[Any], bool]  # whether a value is allowed
  text: str  # the words after "must be" in the error message


AT_LEAST_0 = Bound(lambda value: value >= 0, 'at least 0')
AT_LEAST_1 = Bound(lambda value: value >= 1, 'at least 1')
AT_LEAST_2 = Bound(lambda value: value >= 2, 'at least 2')
SEED = Bound(lambda value: 0 <= value < 2**32, 'from 0 to 4294967295')
RATE = Bound(lambda value: 0 <= value < 1, 'from 0 to below 1')
SHARE = Bound(lambda value: 0 < value <= 1, 'above 0 and at most 1')
POSITIVE = Bound(lambda value: 0 < value < math.inf, 'above 0')
AMOUNT = Bound(lambda value: 0 <= value < math.inf, 'at least 0')


def field(
  default: Any,
  help_: str = '',
  bound: Bound | None = None,
  *,
  may_change: bool = False,
) -> Any:
  """Defines a field of a config part.

  Args:
    default: the default value; a class or function makes a new one each time.
    help_: the meaning of the field, in one or two sentences.
    bound: None allows all values of the type.
    may_change: whether a resumed run can have another value, which is printed.
  """
  metadata = {'help': help_, 'bound': bound, 'may_change': may_change}
  if callable(default):
    return dataclasses.field(default_factory=default, metadata=metadata)
  return dataclasses.field(default=default, metadata=metadata)


class ConfigPart:
  """Serves as the base class of all config dataclasses."""

  # Whether configs must use a subclass in place of this class.
  abstract: ClassVar[bool] = True
  # Whether inner parts belong to a stage, whose config checks them.
  is_stage: ClassVar[bool] = False

  def __init_subclass__(cls, abstract: bool = False, **others: Any) -> None:
    """Sets `abstract`, and checks that a concrete class has all methods."""
    super().__init_subclass__(**others)
    missing_methods = [
      name
      for name, member in inspect.getmembers(cls, inspect.isfunction)
      if hasattr(member, '__isabstractmethod__')
    ]
    # After the error below, the faulty class stays among the subclasses until
    # it is garbage collected. It is marked as abstract, so that it cannot be
    # chosen as a kind.
    cls.abstract = abstract or bool(missing_methods)
    if missing_methods and not abstract:
      methods = ', '.join(missing_methods)
      raise TypeError(f'{cls.__name__} must define {methods}()')

  def faults(self, config: Any, path: str) -> Iterator[str]:
    """Yields an error message for each fault that concerns several fields.

    Each message has the path of a field. The method is called only if every
    field is within its bounds. `config` is the whole config of the run, and
    `path` is the path of this part, such as 'config.model.encoder'.
    """
    yield from ()

  @classmethod
  def bounds(cls, name: str) -> tuple[Bound, ...]:
    """Returns all bounds of a field, including those of base classes."""
    fields = (
      getattr(base, '__dataclass_fields__', {}).get(name)
      for base in cls.__mro__
    )
    bounds = (field_.metadata.get('bound') for field_ in fields if field_)
    return tuple(dict.fromkeys(bound for bound in bounds if bound))


# Packages whose modules define kinds. A config loads only the modules of its
# own kinds, since all modules together take seconds.
_PACKAGES: dict[str, None] = {}


def offer_kinds(*packages: types.ModuleType) -> None:
  """Adds packages, at any depth, whose modules define kinds of parts."""
  _PACKAGES.update(dict.fromkeys(package.__name__ for package in packages))


def parts_in(value: Any) -> 'tuple[ConfigPart, ...]':
  """Returns the parts in a field: the value, or the parts of a tuple."""
  values = value if isinstance(value, tuple) else (value,)
  return tuple(x for x in values if isinstance(x, ConfigPart))


def has_kinds(base: type) -> bool:
  """Returns whether a config must use a subclass in place of this class."""
  return issubclass(base, ConfigPart) and base.abstract


def kind_named(name: str, base: type) -> type | None:
  """Returns the kind of an abstract part by name, importing xjax's modules."""
  kind = _kind_of_name(base).get(name)
  if kind is None or not kind.__module__.startswith('xjax.'):
    _import_modules_with(f'class {name}(')
    kind = _kind_of_name(base).get(name)
  return kind


def _import_modules_with(text: str) -> None:
  """Imports the modules of the offered packages whose source has a text."""
  for package in _PACKAGES:
    root = pathlib.Path(sys.modules[package].__file__).parent
    for path in sorted(root.rglob('*.py')):
      if text in path.read_text('utf-8'):
        parts = path.relative_to(root).with_suffix('').parts
        importlib.import_module('.'.join([package, *parts]))


def kinds(base: type) -> tuple[type, ...]:
  """Returns the kinds of an abstract part, sorted by name.

  The tuple is empty if `base` is not an abstract part. Two kinds of the same
  name raise a ConfigError.
  """
  if not has_kinds(base):
    return ()
  for package in _PACKAGES:
    import_package(sys.modules[package])
  kind_of_name = _kind_of_name(base)
  return tuple(kind for _, kind in sorted(kind_of_name.items()))


def _kind_of_name(base: type) -> dict[str, type]:
  """Returns the kinds of an abstract part by name; of two, the later."""
  # A notebook may define a class twice at the same place.
  kind_of_name: dict[str, type] = {}
  for kind in dict.fromkeys(_concrete_subclasses(base)):
    other = kind_of_name.get(kind.__name__, kind)
    if _place(other) != _place(kind):
      modules = ' and '.join(sorted((kind.__module__, other.__module__)))
      raise ConfigError(
        f'two kinds of {base.__name__} are called {kind.__name__}, in the '
        f'modules {modules}; give yours another name'
      )
    kind_of_name[kind.__name__] = kind
  return kind_of_name


def _place(kind: type) -> tuple[str, str]:
  return kind.__module__, kind.__qualname__


def kinds_that(attribute: str, base: type) -> str:
  """Returns the kinds for which a class attribute is true, as a text."""
  names = (kind.__name__ for kind in kinds(base) if getattr(kind, attribute))
  return ' or '.join(f'{name}(...)' for name in names)


def modules_of(part: ConfigPart) -> list[str]:
  """Returns the user's modules that define a part or its inner parts."""
  # Config files are left out, because they cannot be imported by name.
  values = (getattr(part, field_.name) for field_ in dataclasses.fields(part))
  inner = (modules_of(x) for value in values for x in parts_in(value))
  modules = dict.fromkeys(itertools.chain([type(part).__module__], *inner))
  return [
    name
    for name in modules
    if not name.startswith('xjax.')
    and importlib.machinery.PathFinder.find_spec(name.partition('.')[0])
  ]


def _concrete_subclasses(base: type) -> Iterator[type]:
  for subclass in base.__subclasses__():
    if not subclass.abstract:
      yield subclass
    yield from _concrete_subclasses(subclass)


def import_package(package: types.ModuleType) -> None:
  """Imports all modules of a package, so that their kinds can be chosen."""
  inside = f'{package.__name__}.'
  for module in pkgutil.walk_packages(package.__path__, inside):
    importlib.import_module(module.name)
