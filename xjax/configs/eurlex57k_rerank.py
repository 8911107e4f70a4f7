r"""Ranks the labels that another run lists again, by MiniLM, on EURLEX57K.

The other run can be of any kind, for example a label tree. It lists 50 labels
of each document. MiniLM (Wang et al. 2020, https://arxiv.org/abs/2002.10957) is
trained as in eurlex57k_minilm.py, over all labels, and ranks the listed labels.
The score of a label is its logit plus the log score of the other run, times 3.
This weight was chosen on dev.

  xjax train --config=eurlex57k_xr_linear:large \
    --config.data.dir=DIR --workdir=runs/tree
  xjax train --config=eurlex57k_rerank \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --config.model.shortlist.workdir=runs/tree --workdir=runs/rerank

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. If you have a run
of eurlex57k_minilm, start from its parameters, and a few steps are enough:
--config.train.init_from=runs/eurlex57k_minilm --config.train.steps=100
--config.train.learning_rate=1e-4.

Data: EURLEX57K. Hardware: two CPU cores. Expected on dev: the table in
docs/results.md. Time: 6 minutes from the parameters of eurlex57k_minilm, else
about 40 minutes.
"""

import dataclasses

from xjax.configs import eurlex57k_minilm, eurlex57k_xr_linear
from xjax.models.contract import Config
from xjax.models.neural.shortlists import RunShortlist


def get_config() -> Config:
  config = eurlex57k_minilm.get_config()
  shortlist = RunShortlist(50, 3.0, in_training=False, workdir='runs/tree')
  # The tree reads full documents. MiniLM reads their first 128 pieces, which
  # are mostly header and recitals.
  zones = eurlex57k_xr_linear.get_config().data.zones
  return dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, zones=zones),
    model=dataclasses.replace(config.model, shortlist=shortlist),
  )
