r"""Trains the best system on EURLEX57K, with a pretrained encoder.

The proposers and the ranker are those of eurlex57k_best_cpu. An encoder that is
not trained, such as all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957), adds three proposers. They compare the vector
of a document with those of training documents, of label names, and of the
centroids of labels.

  xjax train --config=eurlex57k_best \
    --config.data.dir=DIR --config.data.labels=LIST \
    --config.model.encoder=FOLDER --workdir=runs/best

LIST is a file with the ids of all labels, also of those that no training
document has. FOLDER is the encoder, in the form of Hugging Face. On a GPU,
eurlex57k_best:gpu reads 512 pieces of each document. It also trains the encoder
with a dense layer, as one more proposer: once for each of the four folds, and
once on all training documents.

Data: EURLEX57K. Hardware: two CPU cores and 8 GB. Expected on dev, with
MiniLM: RP@5 0.835 and nDCG@5 0.859. Time: an hour on busy cores. The variant
gpu is not measured yet.
"""

from xjax.data.config import SubwordsConfig, TfidfConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.stack.proposers import (
  ProposerConfig,
  text_and_title_proposers,
  vector_proposers,
)
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import Dtype, NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

TITLE = ('title',)
TEXT = ('header', 'recitals', 'main_body', 'attachments')
SYSTEMS = 'cpu', 'gpu'


def get_config(system: str = 'cpu') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  proposers = text_and_title_proposers(TEXT, TITLE)
  proposers += vector_proposers(max_tokens=512 if system == 'gpu' else 128)
  if system == 'gpu':
    proposers += (_trained_encoder(),)
  return Config(
    data=Eurlex57kData(zones=TITLE + TEXT, tokens=TfidfConfig()),
    model=StackModel(proposers),
    train=StackTrain(),
    eval=EvalConfig(batch_size=512),
  )


def _trained_encoder() -> ProposerConfig:
  model = NeuralModel(
    NoEmbedding(), BertConfig(), ClsConfig(dropout=0.1), OneVsAllConfig()
  )
  train = NeuralTrain(
    batch_size=32,
    steps=20_000,
    learning_rate=1e-2,
    rates=('encoder/*=0.005',),
    warmup=1000,
    schedule=Schedule.LINEAR,
    optimizer=AdamW(weight_decay=0.01),
    clip_norm=1.0,
    compute_dtype=Dtype.BFLOAT16,
    checkpoint_every=5000,
    judge_every=20_000,
  )
  tokens = SubwordsConfig(max_tokens=512, buckets=(128, 256, 512))
  return ProposerConfig(
    tokens, (), model, train, batch_size=256, name='encoder', depth=30
  )
