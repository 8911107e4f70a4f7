r"""Trains adaptive label clusters (APLC) on texts of the XC repository.

APLC-XLNet is the system of Ye et al., ICML 2020
(https://arxiv.org/abs/2007.02439). The variants whose names end in _xlnet have
its encoder, XLNet-base. The other variants are APLC-BERT: their encoder is
BERT-base (Devlin et al. 2019, https://aclanthology.org/N19-1423). The head, the
sizes and the three learning rates (of the encoder, the pooler and the head) are
those of the authors' code for the dataset.

  xjax train --config=xc_aplc:SYSTEM \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/xc_aplc

SYSTEM is one of SYSTEMS below (default: eurlex_4k). DIR is the folder of the
dataset, with trn.json[.gz], tst.json[.gz], and the labels' names in
lbl.json[.gz] or Y.txt. FOLDER is a copy of the Hugging Face model
bert-base-uncased or xlnet-base-cased. The rare half of the labels has rows of
half the width; amazon_670k_xlnet and wiki_500k_xlnet cut the labels into more
parts. The learning rates of these two are those of amazoncat_13k.

Differs from the paper: the authors chose the best checkpoint on test. Here, it
is chosen on dev.json[.gz] if there is such a file; if not, the last checkpoint
is used. The learning rate falls linearly, as in the authors' code.

Data: text files of the XC repository. Hardware: a GPU (add
--config.train.compute_dtype=bfloat16). Expected: not run yet; the paper has
P@1 .8772 (eurlex_4k_xlnet), .8944 (wiki10_31k_xlnet) and .9456
(amazoncat_13k_xlnet) on test. Time: not known.
"""

from typing import NamedTuple

from xjax.data.config import SubwordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.xlnet import XLNetConfig
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = (
  'eurlex_4k',
  'wiki10_31k',
  'amazoncat_13k',
  'eurlex_4k_xlnet',
  'wiki10_31k_xlnet',
  'amazoncat_13k_xlnet',
  'amazon_670k_xlnet',
  'wiki_500k_xlnet',
)
_XLNET = '_xlnet'


class _Sizes(NamedTuple):
  documents: int  # of train
  epochs: int
  batch_size: int
  max_tokens: int
  learning_rate: float  # of the head
  rates: tuple[str, ...]
  cutoffs: tuple[int, ...] = ()  # if empty, labels are cut into halves
  last_width: int = 0  # of the rows of the last tail


_FAST = 'encoder/*=0.025', 'pooling/*=0.05'
_SLOW = 'encoder/*=0.01', 'pooling/*=0.1'
_SIZES = {
  'eurlex_4k': _Sizes(15_449, 8, 12, 512, 2e-3, _FAST),
  'wiki10_31k': _Sizes(14_146, 6, 12, 512, 1e-3, _SLOW),
  'amazoncat_13k': _Sizes(1_186_239, 8, 48, 192, 2e-3, _FAST),
  'amazon_670k': _Sizes(
    490_449,
    25,
    32,
    128,
    2e-3,
    _FAST,
    (167_522, 335_045, 502_566),
    512,
  ),
  'wiki_500k': _Sizes(1_779_881, 12, 64, 256, 2e-3, _FAST, (167_000, 334_000)),
}


def get_config(system: str = 'eurlex_4k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = _SIZES[system.removesuffix(_XLNET)]
  epoch = -(-sizes.documents // sizes.batch_size)
  longest = sizes.max_tokens
  return Config(
    data=XcRepoData(
      tokens=SubwordsConfig(
        max_tokens=longest, buckets=(longest // 4, longest // 2, longest)
      ),
    ),
    model=NeuralModel(
      NoEmbedding(),
      XLNetConfig() if system.endswith(_XLNET) else BertConfig(),
      ClsConfig(dropout=0.1, pooler=True),
      AdaptiveConfig(cutoffs=sizes.cutoffs, last_width=sizes.last_width),
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=sizes.batch_size,
      steps=sizes.epochs * epoch,
      learning_rate=sizes.learning_rate,
      rates=sizes.rates,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.0),
      clip_norm=1.0,
      checkpoint_every=epoch,
      judge_every=epoch,
    ),
    eval=EvalConfig(ks=(1, 3, 5)),
  )
