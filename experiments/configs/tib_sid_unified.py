r"""TIB-SID library records, 26,976 labels: trained weights and descriptors.

English records of the TIB-SID collection with GND subjects (D'Souza et al.,
"SemEval-2025 Task 5: LLMs4Subjects", https://aclanthology.org/2025.semeval-1).
Half of the labels have one training document, and thousands have none, so
labels are also scored by their names and alternative names. The encoder is that
of BIGRU-LWAN (Chalkidis et al. 2019, https://aclanthology.org/P19-1636).

  python -m experiments.embeddings \
    --config=experiments/configs/tib_sid_unified.py \
    --config.data.dir=DIR --output=runs/tib_sid_vectors.bin
  python -m experiments.train \
    --config=experiments/configs/tib_sid_unified.py \
    --config.data.dir=DIR --workdir=runs/tib_sid_unified

Hardware: a GPU, or two CPU cores with patience. Expected: not run yet. Time:
1 to 2 s per step on two CPU cores.
"""

from xjax.config.run import Config
from xjax.config.train import NeuralTrain
from xjax.data.config import WordsConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.score.encoders.bigru import BiGRUConfig
from xjax.score.encoders.layers import EmbeddingConfig
from xjax.score.heads.contract import DescriptorConfig, DescriptorWeights
from xjax.score.heads.unified import UnifiedConfig
from xjax.score.text_model import NeuralModel


def get_config() -> Config:
  return Config(
    data=JsonlData(
      labels='all',
      tokens=WordsConfig(max_tokens=128, buckets=(32, 64, 128)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(
        dim=200,
        vectors='runs/tib_sid_vectors.bin',
      ),
      encoder=BiGRUConfig(units=100),
      head=UnifiedConfig(
        descriptor=DescriptorConfig(alt=True, weights=DescriptorWeights.IDF),
        hidden_labels=200,
      ),
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
