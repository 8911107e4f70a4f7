r"""Trains the best system without a neural part on TIB-SID library records.

The proposers and the ranker (LightGBM, Ke et al. 2017) are those of
eurlex57k_best_cpu. A sixth of the 26,976 labels have no training documents, and
half of the others have one. So names that are found in titles and abstracts
matter more than on EURLEX57K.

  xjax train --config=tib_sid_best \
    --config.data.dir=DIR --workdir=runs/tib_sid_best

Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected: the
metrics in docs/configs.md, on dev. Time: about half an hour.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.stack.proposers import text_and_title_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain

TITLE = ('title',)
TEXT = ('title', 'abstract')


def get_config() -> Config:
  return Config(
    data=JsonlData(zones=TEXT, labels='all', tokens=TfidfConfig()),
    model=StackModel(text_and_title_proposers(TEXT, TITLE)),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )
