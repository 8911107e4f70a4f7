r"""Trains BiGRU-LWAN on raw text of the Extreme Classification Repository.

DIR is the folder of a dataset with text (its name starts with LF-). It has
trn.json[.gz], tst.json[.gz], and the labels' names in lbl.json[.gz] or Y.txt.
The model of Chalkidis et al. 2019 (https://aclanthology.org/P19-1636) reads the
first 256 words of a document (its title, then its content).

  xjax train --config=xc_repo_bigru_lwan \
    --config.data.dir=DIR --workdir=runs/xc_repo

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: depends on the dataset.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=XcRepoData(
      tokens=WordsConfig(max_tokens=256, buckets=(32, 64, 128, 256)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200),
      encoder=BiGRUConfig(units=200),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=10_000,
      clip_value=5.0,
      checkpoint_every=1000,
      judge_every=1000,
      patience=3,
    ),
  )
