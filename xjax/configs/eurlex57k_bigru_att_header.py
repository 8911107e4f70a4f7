r"""Trains BIGRU-ATT on EURLEX57K headers, with weights of 4, 2 or 1 bytes.

BIGRU-ATT is a system of Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). Its output layer is stored as in ELMO, ICML
2025.

  xjax train --config=eurlex57k_bigru_att_header:STORAGE \
    --config.data.dir=DIR --workdir=runs/eurlex57k_bigru_att_header/STORAGE

If STORAGE is adam, the rows are float32, and Adam trains them like all other
parameters. The other choices of STORAGE are float32, bfloat16, compensated and
float8 (see the class Storage). With these, Adagrad updates the rows in the same
pass that computes their gradient.

Data: EURLEX57K. Hardware: two CPU cores. Expected all/RP@5 on dev: .667, .671
and .678 for float32 with seeds 0, 1 and 2; with seed 0, .670 for bfloat16 and
.669 for float8. Runs with adam and compensated were not finished. Time: eight
minutes of training per run, if two runs share the cores.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import SelfAttentionConfig
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import ByOptimizer, FusedAdagrad, RowUpdateConfig
from xjax.train.neural_train import NeuralTrain, Schedule

SYSTEMS = 'adam', 'float32', 'bfloat16', 'compensated', 'float8'


def get_config(kind: str = 'adam') -> Config:
  head, rows = _rows(kind)
  return Config(
    data=Eurlex57kData(
      zones=('header',),
      tokens=WordsConfig(max_tokens=96, buckets=(32, 48, 64, 96)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(dim=200, dropout=0.2, word_dropout=0.02),
      encoder=BiGRUConfig(units=200, dropout=0.2),
      pooling=SelfAttentionConfig(),
      head=head,
    ),
    train=NeuralTrain(
      batch_size=64,
      steps=1500,
      learning_rate=2e-3,
      warmup=150,
      schedule=Schedule.COSINE,
      clip_norm=20.0,
      rows=rows,
      judge_every=500,
    ),
  )


def _rows(kind: str) -> tuple[OneVsAllConfig, RowUpdateConfig]:
  if kind not in SYSTEMS:
    raise ValueError(f'{kind!r} is not one of {", ".join(SYSTEMS)}')
  if kind == 'adam':
    return OneVsAllConfig(), ByOptimizer()
  storage = Storage(kind)
  head = OneVsAllConfig(chunk=_chunk(storage), storage=storage)
  return head, FusedAdagrad(learning_rate=0.05)


def _chunk(storage: Storage) -> int:
  """Returns the number of labels per chunk; for FLOAT32, one chunk has all."""
  return 8192 if storage is Storage.FLOAT32 else 1024
