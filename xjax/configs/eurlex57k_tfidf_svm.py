r"""Trains a support vector machine per label on TF-IDF of EURLEX57K.

This is the baseline in "Re-evaluating Extreme Multi-label Text Classification
Methods in Tail Label Prediction". It uses LIBLINEAR's squared hinge loss (Fan
et al. 2008) and removes small weights, as DiSMEC does (Babbar and Schoelkopf
2017).

  xjax train --config=eurlex57k_tfidf_svm \
    --config.data.dir=DIR --workdir=runs/eurlex57k_tfidf_svm

Data: EURLEX57K. Hardware: two CPU cores. Expected: not run yet. Time: half an
hour.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.linear_model import LinearModel, LinearTrain


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=TfidfConfig(),
    ),
    model=LinearModel(),
    train=LinearTrain(),
    eval=EvalConfig(batch_size=512),
  )
