r"""Trains a pretrained encoder with the unified head on your own documents.

The encoder is all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957) or any other encoder of the BERT family. It
reads the first 256 word pieces of a document. It also embeds the names of
labels, so that labels with few training documents or none are scored too. The
head is the unified form of BIGRU-LWAN's head (Chalkidis et al. 2019,
https://aclanthology.org/P19-1636). The sizes suit TIB-SID, library records with
26,976 labels (D'Souza et al., "SemEval-2025 Task 5: LLMs4Subjects",
https://aclanthology.org/2025.semeval-1).

  xjax train --config=own_minilm \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/own_minilm

FOLDER is a copy of the Hugging Face model.

Unseen labels are scored only by their names. To make their scores comparable,
training treats 200 rare labels (1 to 20 training documents) as unseen. If you
have fewer such labels, set a smaller number:
--config.model.head.hidden_labels=20.

Data: your own documents. Hardware: a GPU; two CPU cores are slow. Expected: not
run yet. Time: not measured; training has 10,000 steps.
"""

from xjax.data.config import SubwordsConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import DescriptorConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW


def get_config() -> Config:
  return Config(
    data=OwnData(
      tokens=SubwordsConfig(max_tokens=256, buckets=(64, 128, 192, 256)),
    ),
    model=NeuralModel(
      NoEmbedding(),
      BertConfig(),
      head=UnifiedConfig(
        aligned=True,
        descriptor=DescriptorConfig(alt=True),
        hidden_labels=200,
      ),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=10_000,
      learning_rate=2e-3,
      rates=('encoder/*=0.1',),
      warmup=500,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      clip_norm=1.0,
      checkpoint_every=1000,
      judge_every=1000,
      patience=3,
    ),
  )
