r"""Trains systems that read words of EURLEX57K, in sizes for two CPU cores.

They are systems in Table 2 of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636), the unified system, and AttentionXML.

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/NAME

Most systems of eurlex57k_small, and eurlex57k_attention_xml, start from the
same word vectors. This command trains these vectors; run it only once:

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin

Data: EURLEX57K. Hardware: two CPU cores. Expected: see each system. Time: ten
minutes to two hours.
"""

import dataclasses

from xjax.configs import variants
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.tokens_config import WordsConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig, BiLSTMConfig
from xjax.networks.heads.attention_mlp import AttentionMLPConfig
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdagrad
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import SWAConfig

# System -> number of training steps. All steps of a system together take about
# ten minutes. A step has 64 documents.
_STEPS = {
  'unified': 1350,
  'bigru_att': 7000,
  'han': 4000,
  'cnn_lwan': 1430,
  'bigru_lwan': 1350,
  'bigru_lwan_l2v': 1350,
  'zero_bigru_lwan': 2200,
}


@variants(*_STEPS)
def eurlex57k_small(system: str) -> Config:
  """Trains one of seven small neural systems on EURLEX57K.

  The systems read 128 words of header and recitals. All except bigru_lwan start
  from word vectors. Without a test split, write the ids of all 4,271 labels to
  a file and set --config.data.labels=FILE. To judge the model on unseen labels,
  hide 300 labels from training with --config.data.hold_out_labels=300.

  Expected: the tables in docs/results.md. Time: ten minutes of training and one
  minute of judging per system.
  """
  tokens = WordsConfig(128, (32, 64, 96, 128))
  if system == 'han':
    tokens = WordsConfig(64, (32, 64), by_zone=True)
  steps = _STEPS[system]
  return Config(
    data=Eurlex57kData(zones=('header', 'recitals'), tokens=tokens),
    model=_small_model(system),
    train=_train(steps, warmup=100, every=steps),
  )


def _train(steps: int, warmup: int, every: int) -> NeuralTrain:
  return NeuralTrain(
    steps=steps,
    learning_rate=2e-3,
    warmup=warmup,
    schedule=Schedule.COSINE,
    clip_norm=20.0,
    checkpoint_every=every,
    judge_every=every,
  )


def _small_model(system: str) -> NeuralModel:
  vectors = EmbeddingConfig(vectors='runs/eurlex57k_l2v.bin', frozen=True)
  bigru = BiGRUConfig(units=100)
  pooled = SelfAttentionConfig(), OneVsAllConfig()
  match system:
    case 'bigru_att':
      return NeuralModel(vectors, bigru, *pooled)
    case 'han':
      return NeuralModel(vectors, HANConfig(100, 1, 100, 0.2), *pooled)
    case 'cnn_lwan':
      return NeuralModel(vectors, CNNConfig(dropout=0.2))
    case 'bigru_lwan':
      return NeuralModel(EmbeddingConfig(), bigru)
    case 'bigru_lwan_l2v':
      return NeuralModel(vectors, bigru)
    case 'zero_bigru_lwan':
      return NeuralModel(vectors, bigru, head=ZeroShotConfig())
    case 'unified':
      descriptor = DescriptorConfig(weights=DescriptorWeights.IDF)
      # The vectors of document words are trained further. Descriptors keep the
      # original vectors.
      tuned = dataclasses.replace(vectors, frozen=False)
      head = UnifiedConfig(descriptor=descriptor)
      return NeuralModel(tuned, bigru, head=head)


def eurlex57k_bigru_lwan_header() -> Config:
  """Trains a small BiGRU-LWAN on the header zone of EURLEX57K, on a CPU.

  The system can be compared with row H in Table 4 of Chalkidis et al.

  Expected: dev RP@5 0.765, nDCG@5 0.798, micro-F1 0.713 (the paper: 0.747,
  0.782, 0.688). Time: 67 minutes on cores that also did other work; a step
  takes 0.35 to 1 s.
  """
  words = EmbeddingConfig(dropout=0.3)
  model = NeuralModel(words, BiGRUConfig(units=200, dropout=0.4))
  return _header(model, steps=7040, warmup=300, every=704)


@variants('adam float32 bfloat16 compensated float8')
def eurlex57k_bigru_att_header(storage: str) -> Config:
  """Trains BIGRU-ATT on EURLEX57K headers, with weights of 4, 2 or 1 bytes.

  The output layer is stored as in ELMO, ICML 2025. In the variant adam, the
  rows are float32, and Adam trains them like all other parameters. In the other
  variants (see the class Storage), Adagrad updates the rows in the same pass
  that computes their gradient.

  Expected all/RP@5 on dev: .667, .671 and .678 for float32 with seeds 0, 1 and
  2; with seed 0, .670 for bfloat16 and .669 for float8. Runs with adam and
  compensated were not finished. Time: eight minutes of training per run, if two
  runs share the cores.
  """
  head = OneVsAllConfig()
  if storage != 'adam':
    head.storage = Storage(storage)
    head.chunk = 8192 if storage == 'float32' else 1024
  model = NeuralModel(
    EmbeddingConfig(), BiGRUConfig(units=200), SelfAttentionConfig(), head
  )
  config = _header(model, steps=1500, warmup=150, every=500)
  if storage != 'adam':
    config.train.rows = FusedAdagrad(learning_rate=0.05)
  return config


def _header(model: NeuralModel, steps: int, warmup: int, every: int) -> Config:
  """Returns a system that reads headers, and is judged every so many steps."""
  return Config(
    data=Eurlex57kData(
      zones=('header',), tokens=WordsConfig(96, (32, 48, 64, 96))
    ),
    model=model,
    train=_train(steps, warmup, every),
  )


def eurlex57k_attention_xml() -> Config:
  """Trains AttentionXML on header and recitals of EURLEX57K, on two CPU cores.

  This is the flat system of You et al., NeurIPS 2019
  (https://arxiv.org/abs/1811.01727): a BiLSTM, attention of each label, an MLP
  that all labels share, and a mean of the weights. Sizes are smaller than in
  the paper. To start from random vectors, set --config.model.embedding.vectors=
  and --config.model.embedding.frozen=False.

  Expected: dev RP@5 0.655 after 2,500 steps; see docs/results.md. Time: an hour
  for 2,500 steps.
  """
  words = EmbeddingConfig(
    word_dropout=0.0, vectors='runs/eurlex57k_l2v.bin', frozen=True
  )
  bilstm = BiLSTMConfig(units=128, dropout=0.3)
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'), tokens=WordsConfig(128, (32, 64, 96, 128))
    ),
    model=NeuralModel(words, bilstm, head=AttentionMLPConfig(mlp=(128,))),
    train=NeuralTrain(
      steps=6000,
      learning_rate=2e-3,
      warmup=100,
      clip_outliers=5.0,
      average=SWAConfig(start=3000, every=100),
      checkpoint_every=1000,
      judge_every=1000,
    ),
  )
