r"""Trains BERT-base with a one-vs-all head on Amazon-3M or similar data.

Amazon-3M has 2,812,281 labels and 1,717,899 training documents, with 36 labels
per document (manikvarma.org/downloads/XC/XMLRepository.html). DIR is the folder
of Amazon-3M, or any folder with trn.json[.gz], tst.json[.gz] and the labels'
names. BERT-base (Devlin et al. 2019, https://aclanthology.org/N19-1423) reads
the first 128 subwords of a document. The head scores all labels at every step
(Renee, Jain et al. 2023). Its weights have 2 bytes, and plain SGD updates them
in the pass that computes their gradient (ELMO, ICML 2025). For 1 byte, set
--config.model.head.storage=FLOAT8.

  xjax train --config=amazon_3m_like \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/amazon_3m_like

FOLDER is a copy of the Hugging Face model bert-base-uncased.

Data: text files of the XC repository. Hardware: one GPU, or several GPUs or
TPUs, which share the labels. Expected: not run yet; the learning rates are
guesses. Time: not known; an epoch has 3,356 steps.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.train.neural_train import Dtype, NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

EPOCH = 3356  # steps


def get_config() -> Config:
  return Config(
    data=XcRepoData(
      tokens=SubwordsConfig(max_tokens=128, buckets=(32, 64, 128)),
    ),
    model=NeuralModel(
      NoEmbedding(),
      # Without attention dropout, GPUs use a flash attention kernel.
      BertConfig(attention_dropout=0.0),
      ClsConfig(dropout=0.1),
      OneVsAllConfig(chunk=8192, storage=Storage.BFLOAT16),
    ),
    train=NeuralTrain(
      batch_size=512,
      steps=30 * EPOCH,
      learning_rate=1e-4,
      warmup=5000,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      rows=FusedSGD(learning_rate=0.05),
      compute_dtype=Dtype.BFLOAT16,
      checkpoint_every=EPOCH,
      judge_every=EPOCH,
      patience=3,
    ),
    eval=EvalConfig(batch_size=512, ks=(1, 3, 5), propensity=(0.6, 2.6)),
  )
