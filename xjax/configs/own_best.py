r"""Trains the best system without a neural part on your own documents.

DIR is a file or a folder (see docs/data.md). Three proposers list labels of a
document: a label tree (own_linear), the nearest training documents, and label
names that are found in the text. Gradient-boosted trees (LightGBM, Ke et al.
2017) rank the listed labels. If labels have no names, the names are left out.

  xjax train --config=own_best \
    --config.data.dir=DIR --workdir=runs/mine

Labels without training documents are ranked too, if they have names. With
another language than English, set the language of the stems in a copy of this
file: names_proposer(language='german').

Data: your own documents. Hardware: two CPU cores. Expected: better metrics than
those of own_linear, above all for rare labels. Time: about ten times as long as
own_linear.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.stack.proposers import text_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain


def get_config() -> Config:
  return Config(
    data=OwnData(tokens=TfidfConfig()),
    model=StackModel(text_proposers()),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )
