r"""Trains a probabilistic label tree (PLT) on full documents of EURLEX57K.

Features are TF-IDF of words and pairs of words. Labels are clustered by
balanced k-means, as in eurlex57k_xr_linear.py. Every node has a logistic
regression. This is the PLT of Jasinska et al., ICML 2016. It is trained as in
Schultheis et al. 2022, Section 5.5.

  xjax train --config=eurlex57k_plt \
    --config.data.dir=DIR --workdir=runs/eurlex57k_plt

--config.model.n_trees=3 trains an ensemble of three trees. The search for the
best labels of each tree is exact.

Data: EURLEX57K. Hardware: two CPU cores. Expected: RP@5 0.796, nDCG@5 0.820 on
dev. Time: 6 minutes.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.problem import Loss
from xjax.models.trees.tree_model import TreeModel, TreeTrain


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=TfidfConfig(),
    ),
    model=TreeModel(exact=True),
    train=TreeTrain(loss=Loss.LOGISTIC, c=10.0),
    eval=EvalConfig(batch_size=512),
  )
