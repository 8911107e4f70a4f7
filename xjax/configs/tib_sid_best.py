r"""Trains the best system without a neural part on TIB-SID library records.

The proposers and the ranker (LightGBM, Ke et al. 2017) are those of
eurlex57k_best_cpu. A sixth of the
26,976 labels have no training documents, and half of the others have one. So
names that are found in titles and abstracts matter more than on EURLEX57K.

  xjax train --config=tib_sid_best \
    --config.data.dir=DIR --workdir=runs/tib_sid_best

Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected: not measured
yet. Time: not measured yet.
"""

from xjax.config.run import Config, EvalConfig
from xjax.config.stack import (
  StackModel,
  StackTrain,
  names_proposer,
  neighbours_proposer,
  tree_proposer,
)
from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData

TITLE = ('title',)
TEXT = ('title', 'abstract')


def get_config() -> Config:
  proposers = (
    tree_proposer('tree', TEXT),
    neighbours_proposer('neighbours', TEXT, depth=25),
    neighbours_proposer('title_neighbours', TITLE, depth=15),
    names_proposer('names', TEXT, depth=25),
    names_proposer('title_names', TITLE, depth=25),
  )
  return Config(
    data=JsonlData(zones=TEXT, labels='all', tokens=TfidfConfig()),
    model=StackModel(proposers),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )
