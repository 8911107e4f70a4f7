r"""EURLEX57K, full documents: TF-IDF and one support vector machine per label.

The baseline of "Re-evaluating XMTC methods in tail label prediction" (paper
000): squared hinge by LIBLINEAR, a label at a time; small weights are left out
as DiSMEC does (Babbar and Schoelkopf 2017).

  python -m experiments.train \
    --config=experiments/configs/eurlex57k_tfidf_svm.py \
    --config.data.dir=DIR --workdir=runs/eurlex57k_tfidf_svm

Hardware: two CPU cores. Expected: not run yet. Time: half an hour.
"""

from xjax.data.config import Eurlex57kData, TfidfConfig
from xjax.models.config import LinearModel
from xjax.train.config import Config, EvalConfig
from xjax.train.linear_config import LinearTrain


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
