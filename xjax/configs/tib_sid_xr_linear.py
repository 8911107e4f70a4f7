r"""Trains XR-Linear on titles and abstracts of TIB-SID library records.

Half of the 26,976 labels have one training document. The model is by Yu et al.
2022, as in eurlex57k_xr_linear.py, but the search has a wider beam.

  xjax train --config=tib_sid_xr_linear \
    --config.data.dir=DIR --workdir=runs/tib_sid_xr_linear

Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected: RP@5 0.441,
nDCG@5 0.417 on dev. Time: 3 minutes.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.trees.tree_model import TreeModel, TreeTrain


def get_config() -> Config:
  return Config(
    data=JsonlData(
      zones=('title', 'abstract'), labels='all', tokens=TfidfConfig()
    ),
    model=TreeModel(beam=20),
    train=TreeTrain(),
    eval=EvalConfig(batch_size=512),
  )
