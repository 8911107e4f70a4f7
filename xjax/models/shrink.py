"""Shrinks configs for tests."""

import dataclasses

from xjax.core.mesh_config import MeshConfig
from xjax.data.formats.synthetic import SyntheticData
from xjax.models.contract import Config


def shrink(config: Config) -> Config:
  """Returns a tiny copy of a config, for tests on synthetic data.

  The kinds of model, optimizer, losses and schedule stay the same, except that
  label trees stand for the runs of an ensemble. Every size is at most 16, and
  no file outside the workdir is read or written.
  """
  data = SyntheticData(
    n_train=16,
    n_dev=16,
    n_test=16,
    n_labels=16,
    hold_out_labels=min(config.data.hold_out_labels, 2),
    workers=1,
    tokens=config.data.tokens.tiny(),
  )
  tiny = dataclasses.replace(config.tiny(), data=data, mesh=MeshConfig())
  return tiny.model.shrunk(tiny)
