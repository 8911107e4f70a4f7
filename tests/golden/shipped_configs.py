"""All that the frozen figures need of xjax: configs, and a call that trains.

No other file of this folder imports from xjax, so that code may move without
changes to what is frozen, and how.
"""

import dataclasses
import pathlib
from typing import Any

from absl import logging
import jax

from tests.fixtures.shrink import shrink
from xjax.run.fit import fit
from xjax.run.named_configs import config_file, named_config, shipped_configs
from xjax.sweep.session import read_sweep
from xjax.sweep.trials import override

# A shrunk config has 16 documents and labels. With these sizes, lists are
# shorter than the number of labels, and every slice has labels.
CORPUS = {'n_train': 120, 'n_dev': 64, 'n_test': 16, 'n_labels': 40}
STEPS = 4


def names() -> list[str]:
  """Returns all shipped configs, as NAME or NAME:VARIANT."""
  return [
    name
    for config in shipped_configs().values()
    for name in [f'{config.name}:{v}' for v in config.variants] or [config.name]
  ]


def shrunk(name: str) -> Any:
  """Returns a small form of a config, which reads no files."""
  config = shrink(config_of(name))
  data = dataclasses.replace(config.data, **CORPUS)
  # Without patience of as many steps, most runs would end after two.
  steps = {
    field: STEPS
    for field in ('steps', 'patience')
    if getattr(config.train, field, 0)
  }
  train = dataclasses.replace(config.train, **steps)
  depth = config.eval.depth
  if 'F1' in getattr(train, 'best_metric', ''):
    depth = CORPUS['n_labels']  # such a metric may need whole lists
  judging = dataclasses.replace(config.eval, depth=depth)
  return dataclasses.replace(config, data=data, train=train, eval=judging)


def config_of(name: str) -> Any:
  """Returns a config; that of a sweep has the last values of its space."""
  config = named_config(name)
  if not name.startswith('sweep_'):
    return config
  space = read_sweep(config_file(name)).search.space
  return override(config, {key: _last(space[key]) for key in space})


def _last(values: Any) -> Any:
  return values.high if hasattr(values, 'high') else values[-1]


def train(name: str, workdir: pathlib.Path) -> None:
  """Trains the small form of a config and judges it."""
  logging.set_verbosity(logging.ERROR)
  fit(shrunk(name), workdir)
  jax.clear_caches()  # a process that trains many configs would grow
