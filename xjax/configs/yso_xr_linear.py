r"""Trains XR-Linear on short texts of Finna with YSO subjects.

The 588,000 texts have 9 words in the median, and there are 25,147 labels. The
model is by Yu et al. 2022, as in eurlex57k_xr_linear.py.

  xjax train --config=yso_xr_linear \
    --config.data.dir=DIR --workdir=runs/yso_xr_linear

Data: YSO, as JSON lines (Annif-corpora of the National Library of Finland).
Hardware: two CPU cores. Expected on dev: the table in docs/results.md. Time:
2 minutes.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain


def get_config() -> Config:
  return Config(
    data=JsonlData(labels='all', tokens=TfidfConfig()),
    model=TreeModel(beam=20),
    train=TreeTrain(),
    eval=EvalConfig(batch_size=512),
  )
