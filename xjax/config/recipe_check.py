"""Refuses a recipe of training that cannot work, naming the field."""

from collections.abc import Iterator

from xjax.config.parameter_groups import is_glob, parse_rate
from xjax.config.run import NeuralTrain, Optimizer, Schedule
from xjax.train.average import AverageConfig, SWAConfig, averages


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
