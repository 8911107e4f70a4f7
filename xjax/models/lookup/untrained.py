"""Defines what untrained models over features of documents share."""

import dataclasses

from xjax.models.fit_contract import Fit, check_one_process
from xjax.models.linear.sparse_fit import FEATURE_FILES
from xjax.models.sparse_inputs import check_features


@dataclasses.dataclass(frozen=True)
class UntrainedFit(Fit):
  """Computes a model from sparse features and labels, without training."""

  label_free = FEATURE_FILES

  def check_start(self) -> None:
    """Checks the number of processes and the encoder of vectors, if any.

    Raises:
      ConfigError, DataError: there are several processes, or the encoder is
        missing or has a fault.
    """
    check_one_process(self.config)
    check_features(self.config, self.workdir)
