r"""Trains a logistic regression per label on TF-IDF of EURLEX57K n-grams.

This is the baseline in Section 4 and Table 2 of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). The features are the 200,000 most frequent
n-grams of full documents, with n from 1 to 5.

  xjax train --config=eurlex57k_tfidf_lr \
    --config.data.dir=DIR --workdir=runs/eurlex57k_tfidf_lr

Data: EURLEX57K. Hardware: two CPU cores. Expected: not run yet; the paper has
RP@5 0.710, nDCG@5 0.741 and micro-F1 0.539 on test. Time: an hour.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.linear_model import LinearModel, LinearTrain
from xjax.models.linear.problem import Loss


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=TfidfConfig(max_ngram=5),
    ),
    model=LinearModel(),
    train=LinearTrain(loss=Loss.LOGISTIC),
    eval=EvalConfig(batch_size=512),
  )
