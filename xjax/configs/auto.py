r"""Chooses a model for your own documents, and says what it chose and why.

DIR is a file or a folder of documents (see docs/data.md). The choice depends on
the number of documents and labels, on the names of labels and on the devices.
Without an accelerator it is a linear model: one classifier per label (squared
hinge loss as in LIBLINEAR, Fan et al. 2008,
https://www.jmlr.org/papers/v9/fan08a.html). If there are many labels, it is the
stack of own_best for 5,000 to 100,000 documents, and else a label tree.

  xjax train --config=auto \
    --config.data.dir=DIR --workdir=runs/mine

With an accelerator and --config.model.encoder=FOLDER, the pretrained encoder in
FOLDER is fine-tuned.

Data: your own documents. Hardware: any. Expected: for 2,400 documents with 200
labels, P@1 as good as that of scikit-learn's TF-IDF and LinearSVC. Time:
seconds for a few thousand documents, half an hour for 50,000 with thousands of
labels.
"""

from xjax.data.config import AutoTfidfConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.auto_model import AutoModel, AutoTrain
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig


def get_config() -> Config:
  return Config(
    data=OwnData(tokens=AutoTfidfConfig()),
    model=AutoModel(),
    train=AutoTrain(),
    eval=EvalConfig(batch_size=512),
  )
