r"""Trains MiniLM with the unified head on TIB-SID records with 26,976 labels.

English records of the TIB-SID collection with GND subjects (D'Souza et al.,
"SemEval-2025 Task 5: LLMs4Subjects", https://aclanthology.org/2025.semeval-1).
Half of the labels have one training document, and thousands have none, so
labels are also scored by their names and alternative names, embedded by
all-MiniLM-L6-v2 (Wang et al. 2020, https://arxiv.org/abs/2002.10957). The head
is the unified form of BIGRU-LWAN's head (Chalkidis et al. 2019,
https://aclanthology.org/P19-1636).

  python -m experiments.train \
    --config=experiments/configs/tib_sid_minilm.py \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/tib_sid_minilm

FOLDER is a copy of the Hugging Face model.

Hardware: a GPU; two CPU cores are slow. Expected: not run yet. Time: 10,000
steps.
"""

from xjax.config.optimizer import AdamW
from xjax.config.run import Config
from xjax.config.train import NeuralTrain, Schedule
from xjax.data.config import SubwordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.score.encoders.bert import BertConfig
from xjax.score.encoders.contract import NoEmbedding
from xjax.score.heads.contract import DescriptorConfig
from xjax.score.heads.unified import UnifiedConfig
from xjax.score.text_model import NeuralModel


def get_config() -> Config:
  return Config(
    data=JsonlData(
      labels='all',
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
