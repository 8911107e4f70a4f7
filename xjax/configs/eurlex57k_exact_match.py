r"""Predicts the labels whose names occur in full documents of EURLEX57K.

This is the system Exact Match of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), Table 2. Nothing is trained, so a label
without training documents is predicted like any other label. Labels whose names
occur more often, and then those with longer names, rank higher; the paper does
not say how it ranks.

  xjax train --config=eurlex57k_exact_match \
    --config.data.dir=DIR --workdir=runs/eurlex57k_exact_match

With --config.model.alt=true, the system also searches for alternative names.
The metrics of the slices few and zero are then better, but the metrics of all
labels are worse.

Data: EURLEX57K. Hardware: one CPU core. Expected: dev RP@5 0.240, nDCG@5 0.221,
micro-F1 0.140; RP@5 of frequent labels 0.314, few 0.223, zero 0.195. For the
same six metrics on test, the paper has 0.097, 0.099, 0.120, 0.219, 0.111 and
0.194. (If this system did not rank the labels that it finds, RP@5 would be
0.115.) Time: a minute, including 3 s to find the names.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.train.train_config import NoTrain


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=WordsConfig(max_tokens=100_000, buckets=(100_000,)),
    ),
    model=ExactMatchModel(),
    train=NoTrain(),
    # A long document contains more than 200 label names, so lists must be long.
    eval=EvalConfig(depth=300),
  )
