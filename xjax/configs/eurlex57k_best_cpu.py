r"""Trains the best system without a neural part on EURLEX57K.

Six proposers list labels of a document: label trees (eurlex57k_xr_linear), the
nearest training documents, and label names that are found in the document, each
by full text and by title. Gradient-boosted trees (LightGBM, Ke et al. 2017)
rank the listed labels. They learn from training documents that the proposers
have not seen, in four folds. In each fold some labels are hidden, so that
labels without training documents are ranked well too.

  xjax train --config=eurlex57k_best_cpu \
    --config.data.dir=DIR --config.data.labels=LIST --workdir=runs/best_cpu

LIST is a file with the ids of all labels, also of those that no training
document has.

Data: EURLEX57K. Hardware: two CPU cores and 6 GB. Expected: the metrics in
docs/results.md, on dev. Time: half an hour.
"""

from xjax.data.config import TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.stack.proposers import text_and_title_proposers
from xjax.models.stack.stack_model import StackModel, StackTrain

TITLE = ('title',)
TEXT = ('header', 'recitals', 'main_body', 'attachments')


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(zones=TITLE + TEXT, tokens=TfidfConfig()),
    model=StackModel(text_and_title_proposers(TEXT, TITLE)),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )
