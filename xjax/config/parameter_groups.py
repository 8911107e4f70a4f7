"""Groups of parameters, named by globs over their paths."""

from collections.abc import Iterable, Sequence
import difflib
import fnmatch
import math
import re
import typing

from xjax.core.config_part import kinds_that
from xjax.core.errors import ConfigError
from xjax.score.encoders.contract import EncoderConfig

if typing.TYPE_CHECKING:
  from xjax.config.train import NeuralTrain

_LAYER = re.compile(r'encoder/layers/(\d+)/')
_EMBEDDINGS = 'encoder/embeddings/'
_SHOWN = 3  # paths that an error names


def is_glob(text: str) -> bool:
  """Whether a text can be a glob over paths such as 'encoder/layers/0/bias'."""
  return bool(text) and not re.search(r'[\s=,]', text)


def parse_rate(entry: str) -> tuple[str, float] | None:
  """(glob, factor) of 'GLOB=FACTOR'; None: it is not that."""
  glob, _, number = entry.rpartition('=')
  try:
    factor = float(number)
  except ValueError:
    return None
  return (glob, factor) if is_glob(glob) and 0 < factor < math.inf else None


def in_group(path: str, globs: Iterable[str]) -> bool:
  """Whether a parameter is of a group; case counts, * spans slashes."""
  return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def rate_factors(
  config: 'NeuralTrain', paths: Iterable[str]
) -> dict[str, float]:
  """What each parameter's learning rate is multiplied by.

  Discriminative fine-tuning (Howard & Ruder 2018, Section 3.2): with
  layer_decay the highest layer has the full rate, each below it a part of that
  of the one above, and the embeddings a part of that of the lowest layer.

  Args:
    config: whose rates and layer_decay count, both.
    paths: of parameters; the highest layer is found by them.
  """
  paths = list(paths)
  rates = [parse_rate(entry) for entry in config.rates]
  top = max((_height(path, 0) for path in paths), default=0)

  def factor(path: str) -> float:
    found = (by for glob, by in rates if in_group(path, [glob]))
    return next(found, 1.0) * config.layer_decay ** (top - _height(path, top))

  return {path: factor(path) for path in paths}


def check_groups(
  config: 'NeuralTrain',
  paths: Sequence[str],
  trained: Sequence[str],
  rows: Sequence[str],
) -> None:
  """Refuses groups that are empty, and a model of which nothing is trained.

  Args:
    config: of training.
    paths: of all parameters of the model.
    trained: those of them that the optimizer trains.
    rows: those of them that config.rows trains instead.

  Raises:
    ConfigError: with the field, and the paths that come close.
  """
  for glob in config.freeze:
    if not any(in_group(path, [glob]) for path in paths):
      raise ConfigError(f'config.train.freeze: {_no_match(glob, glob, paths)}')
    if any(in_group(path, [glob]) for path in rows):
      raise ConfigError(
        f'config.train.freeze: {glob!r} matches label rows, which '
        'config.train.rows trains: leave them out of freeze, or set '
        'config.train.rows=ByOptimizer()'
      )
  if not trained and not rows:
    raise ConfigError(
      f'config.train.freeze={config.freeze}: nothing would be left to train'
    )
  left = list(trained)
  for entry in config.rates:
    glob, _ = parse_rate(entry)
    found = [path for path in left if in_group(path, [glob])]
    if not found:
      said = _never_counts(entry, glob, paths, trained)
      raise ConfigError(f'config.train.rates: {said}')
    left = [path for path in left if path not in found]
  if config.layer_decay != 1 and not any(map(_LAYER.match, trained)):
    raise ConfigError(
      f'config.train.layer_decay={config.layer_decay}: needs parameters '
      'encoder/layers/<i>/... that are trained, which config.model.encoder='
      f'{kinds_that("pretrained", EncoderConfig)} has; set it to 1'
    )


def _height(path: str, other: int) -> int:
  """0 of embeddings, 1 of the lowest layer; `other` of all but the encoder."""
  if path.startswith(_EMBEDDINGS):
    return 0
  layer = _LAYER.match(path)
  return 1 + int(layer[1]) if layer else other


def _never_counts(
  entry: str, glob: str, paths: Sequence[str], trained: Sequence[str]
) -> str:
  if any(in_group(path, [glob]) for path in trained):
    return f'{entry!r} never counts: entries before it match the same'
  if any(in_group(path, [glob]) for path in paths):
    return (
      f'{entry!r} matches only what the optimizer does not train: leave it out'
    )
  return _no_match(entry, glob, paths)


def _no_match(entry: str, glob: str, paths: Sequence[str]) -> str:
  near = difflib.get_close_matches(glob, paths, n=_SHOWN, cutoff=0.0)
  return f'{entry!r} matches no parameter; close to it are {", ".join(near)}'
