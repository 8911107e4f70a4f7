"""One small finished run that tests of this room share."""

import dataclasses

import pytest

from xjax.train.config import Config, shrink
from xjax.train.fit import fit


@pytest.fixture(scope='session')
def config():
  """Two held-out labels, an epoch and more, a judging on the way."""
  small = shrink(Config())
  return dataclasses.replace(
    small,
    data=dataclasses.replace(small.data, n_train=40, hold_out_labels=2),
    train=dataclasses.replace(
      small.train, steps=6, learning_rate=0.02, judge_every=3
    ),
  )


@pytest.fixture(scope='session')
def finished(config, tmp_path_factory):
  """What fit returned; its workdir must not be changed: copy it."""
  return fit(config, tmp_path_factory.mktemp('finished') / 'run')
