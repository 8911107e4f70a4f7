"""Refuses a config that cannot work, naming the field."""

from collections.abc import Iterable, Iterator
import dataclasses
import difflib
import enum
import re
import types
import typing
from typing import Any

from xjax.config.compatibility import input_faults
from xjax.config.json import choices
from xjax.config.parameter_groups import is_glob, parse_rate
from xjax.config.ranges import RANGES
from xjax.config.run import (
  AverageConfig,
  ByOptimizer,
  Config,
  EvalConfig,
  NeuralTrain,
  NoTrain,
  Optimizer,
  Schedule,
  SWAConfig,
  averages,
)
from xjax.config.sparse import LinearTrain, TreeTrain
from xjax.core.errors import ConfigError
from xjax.data.config import TfidfConfig, TokensConfig
from xjax.judge.metrics.contract import kind_of
from xjax.judge.metrics.protocols import XJAX
from xjax.score.config import (
  ExactMatchModel,
  LinearModel,
  NeuralModel,
  NoPooling,
  OneVsAllConfig,
  TreeModel,
)
from xjax.score.heads.storage import Storage
from xjax.score.trees.config import (
  Clusters,
  ClusterTree,
  LabelFeatures,
  TreeConfig,
)


def recipe_faults(train: NeuralTrain) -> Iterator[str]:
  """Yields what fields of a training ask of one another."""
  if train.batch_size % train.accumulate:
    yield (
      f'config.train.accumulate={train.accumulate}: must divide '
      f'config.train.batch_size={train.batch_size}'
    )
  if train.warmup > train.steps:
    yield (
      f'config.train.warmup={train.warmup}: must be at most '
      f'config.train.steps={train.steps}'
    )
  if train.weight_decay and train.optimizer != Optimizer.ADAMW:
    yield (
      f'config.train.weight_decay={train.weight_decay}: needs '
      'config.train.optimizer=Optimizer.ADAMW'
    )
  if train.ratio != NeuralTrain.ratio and train.schedule != Schedule.SLANTED:
    yield (
      f'config.train.ratio={train.ratio}: needs '
      'config.train.schedule=Schedule.SLANTED'
    )
  if averages(train.average) and train.average.start >= train.steps:
    yield (
      f'config.train.average.start={train.average.start}: must be below '
      f'config.train.steps={train.steps}'
    )
  elif (short := _steps_of_second_point(train.average)) > train.steps:
    yield (
      f'config.train.average.every={train.average.every}: with '
      f'config.train.average.start={train.average.start} the mean takes in a '
      f'second point at step {short}, beyond config.train.steps={train.steps}: '
      'all that is trained after the start would be lost'
    )
  yield from _glob_faults(train)


def _steps_of_second_point(average: AverageConfig) -> int:
  """Steps until a plain mean is of two points; 0 where there is no such."""
  if not isinstance(average, SWAConfig):
    return 0
  return average.start + average.every


def _glob_faults(train: NeuralTrain) -> Iterator[str]:
  for entry in train.rates:
    if parse_rate(entry) is None:
      yield (
        f'config.train.rates={train.rates}: {entry!r} is not GLOB=FACTOR with '
        "a factor above 0, such as 'encoder/*=0.1'"
      )
  for glob in train.freeze:
    if not is_glob(glob):
      yield (
        f'config.train.freeze={train.freeze}: {glob!r} is no glob over the '
        "paths of parameters, such as 'encoder/*'"
      )


_SLICES = ('all', 'frequent', 'few', 'zero', 'held_out')


def field_fault(holder: Any, path: str) -> str | None:
  """Says why a dotted path is no field of a single value, and what is near.

  Args:
    holder: a dataclass.
    path: for example 'train.steps'.

  Returns:
    A message for the user, or None where it is one.
  """
  done = []
  for name in path.split('.'):
    known = _field_names(holder)
    if name not in known:
      where = '.'.join(['config', *done])
      if not known:
        return f'config.{path}: {where} has no fields of its own'
      return f'{where}.{name}: no such field; {_nearest(name, known)}'
    done.append(name)
    holder = getattr(holder, name)
  if known := _field_names(holder):
    return f'config.{path}: set its fields one by one: {", ".join(known)}'
  if dataclasses.is_dataclass(holder):
    return f'config.{path}: another kind is chosen in the config file alone'
  return None


def check_config(config: Config) -> None:
  """Checks names, types, ranges, and what fields ask of one another.

  Raises:
    ConfigError: one line per fault, each naming its field.
  """
  if not isinstance(config, Config):
    raise ConfigError(
      f'get_config() must return a Config, not {type(config).__name__}'
    )
  faults = list(_faults(config, 'config'))
  if not faults:
    faults = list(_joint_faults(config))
  if faults:
    raise ConfigError('\n'.join(faults))


def _field_names(holder: Any) -> tuple[str, ...]:
  if not dataclasses.is_dataclass(holder):
    return ()
  return tuple(field.name for field in dataclasses.fields(holder))


def _nearest(name: str, known: Iterable[str]) -> str:
  near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
  if near:
    return f'did you mean {" or ".join(near)}?'
  return f'the fields there are {", ".join(known)}'


def _faults(holder: Any, where: str) -> Iterator[str]:
  known = _field_names(holder)
  for name in vars(holder).keys() - set(known):
    yield f'{where}.{name}: no such field; {_nearest(name, known)}'
  hints = typing.get_type_hints(type(holder))
  for name in known:
    value, path = getattr(holder, name), f'{where}.{name}'
    if not _is(value, hints[name]):
      yield f'{path}={value!r}: must be {_spell(hints[name])}'
    elif kinds := choices(type(value)):
      names = ', '.join(kind.__name__ for kind in kinds)
      yield f'{path}={type(value).__name__}(...): must be one of {names}'
    elif dataclasses.is_dataclass(value):
      yield from _faults(value, path)
    else:
      yield from _out_of_range(type(holder), name, value, path)


def _out_of_range(
  kind: type, name: str, value: Any, path: str
) -> Iterator[str]:
  for base in kind.__mro__:
    limit = RANGES.get(base, {}).get(name)
    if limit and not limit.holds(value):
      yield f'{path}={value!r}: must be {limit.text}'


def _is(value: Any, hint: Any) -> bool:
  if typing.get_origin(hint) is tuple:
    element = typing.get_args(hint)[0]
    return isinstance(value, tuple) and all(_is(v, element) for v in value)
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    return any(_is(value, part) for part in typing.get_args(hint))
  if hint is float:
    hint = int | float
  # A bool is an int to Python, never to a config.
  if isinstance(value, bool) and hint is not bool:
    return False
  return isinstance(value, hint)


def _spell(hint: Any) -> str:
  if isinstance(hint, type) and issubclass(hint, enum.Enum):
    return f'{hint.__name__}.' + ' or '.join(e.name for e in hint)
  if typing.get_origin(hint) is tuple:
    return f'a tuple of {typing.get_args(hint)[0].__name__}'
  return getattr(hint, '__name__', str(hint))


def _joint_faults(config: Config) -> Iterator[str]:
  yield from input_faults(config)
  yield from _judging_faults(config.eval)
  match config.model, config.train:
    case NeuralModel(), NeuralTrain():
      yield from _part_faults(config.model)
      yield from _row_faults(config)
      yield from recipe_faults(config.train)
      yield from _metric_faults(config.train.best_metric, config.eval.ks)
    case ExactMatchModel(), NoTrain():
      pass
    case LinearModel(), LinearTrain():
      pass
    case TreeModel(), TreeTrain():
      yield from _tree_faults(config.model.tree, config.data.tokens)
    case model, train:
      yield (
        f'config.train={type(train).__name__}(): does not go with '
        f'config.model={type(model).__name__}(): NeuralModel needs NeuralTrain,'
        ' ExactMatchModel NoTrain, LinearModel LinearTrain, TreeModel TreeTrain'
      )


def _tree_faults(tree: TreeConfig, tokens: TokensConfig) -> Iterator[str]:
  if not isinstance(tree, ClusterTree):
    return
  if tree.clusters is Clusters.TWO_MEANS and tree.arity & (tree.arity - 1):
    yield (
      f'config.model.tree.arity={tree.arity}: must be a power of 2 with '
      'config.model.tree.clusters=Clusters.TWO_MEANS'
    )
  texts = isinstance(tokens, TfidfConfig)
  if tree.features is not LabelFeatures.PIFA and not texts:
    yield (
      f'config.model.tree.features={tree.features}: needs texts, '
      'config.data.tokens=TfidfConfig(...); LabelFeatures.PIFA needs none'
    )
  if tree.features is LabelFeatures.PIFA_BY_LENGTH and tree.spherical:
    yield (
      f'config.model.tree.features={tree.features}: needs '
      'config.model.tree.spherical=False; the cosine sees no frequencies'
    )


def _judging_faults(judged: EvalConfig) -> Iterator[str]:
  if not judged.ks or min(judged.ks) < 1 or max(judged.ks) > judged.depth:
    yield (
      f'config.eval.ks={judged.ks}: must be from 1 to '
      f'config.eval.depth={judged.depth}'
    )


def _part_faults(model: NeuralModel) -> Iterator[str]:
  pooled = not isinstance(model.pooling, NoPooling)
  if pooled != isinstance(model.head, OneVsAllConfig):
    yield (
      f'config.model.pooling={type(model.pooling).__name__}(): '
      f'config.model.head={type(model.head).__name__}(...) '
      + ('reads tokens: NoPooling()' if pooled else 'needs a pooling')
    )


def _row_faults(config: Config) -> Iterator[str]:
  """Label rows that training changes by themselves."""
  head, train = config.model.head, config.train
  storage = getattr(head, 'storage', Storage.FLOAT32)
  kind = f'config.train.rows={type(train.rows).__name__}(...)'
  if isinstance(train.rows, ByOptimizer):
    if storage is not Storage.FLOAT32:
      yield (
        f'config.model.head.storage={storage}: needs '
        'config.train.rows=FusedSGD(...) or FusedAdagrad(...); the optimizer '
        'trains float32'
      )
    return
  if not isinstance(head, OneVsAllConfig):
    yield f'{kind}: needs config.model.head=OneVsAllConfig(...)'
  if train.accumulate > 1:
    yield (
      f'{kind}: rows are changed once per batch: '
      f'config.train.accumulate={train.accumulate} must be 1'
    )
  if averages(train.average):
    yield f'{kind}: config.train.average must be NoAverage()'


def _metric_faults(metric: str, ks: tuple[int, ...]) -> Iterator[str]:
  where = f'config.train.best_metric={metric!r}'
  slice_name, _, measure = metric.partition('/')
  kinds, kind = XJAX.simple_kinds, kind_of(measure)
  k = re.search(r'@(\d+)', measure)
  if slice_name not in _SLICES or kind not in kinds or measure.endswith('@k'):
    known = [name.replace('@k', f'@{k[1]}' if k else '@k') for name in kinds]
    near = difflib.get_close_matches(measure, known, 3)
    told = f'near are {", ".join(near)}' if near else ', '.join(known)
    yield f'{where}: must be slice/metric, for example all/RP@5; {told}'
  elif k and int(k[1]) not in ks:
    yield f'{where}: its k must be in config.eval.ks={ks}'
