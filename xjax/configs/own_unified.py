r"""Trains the unified form of BIGRU-LWAN on your own documents.

Choose this model if many labels have few training documents or none. The model
extends BIGRU-LWAN (Chalkidis et al. 2019, https://aclanthology.org/P19-1636): a
label is scored by trained weights, by its name and by its alternative names.
The sizes in this file suit TIB-SID, a collection of library records with 26,976
labels. Half of these labels have one training document (D'Souza et al.,
"SemEval-2025 Task 5: LLMs4Subjects", https://aclanthology.org/2025.semeval-1).

  xjax embeddings --config=own_unified \
    --config.data.dir=DIR --output=runs/word_vectors.bin
  xjax train --config=own_unified \
    --config.data.dir=DIR --workdir=runs/own_unified

Labels without training documents are scored only by their names. To make their
scores comparable, training treats 200 rare labels (1 to 20 training documents)
as unseen. If you have fewer such labels, set a smaller number:
--config.model.head.hidden_labels=20.

Data: your own documents. Hardware: a GPU; two CPU cores are slow. Time: 1 to 2
s per step on two CPU cores. Expected: not run to the end yet.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.heads.unified import UnifiedConfig
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=OwnData(
      tokens=WordsConfig(max_tokens=128, buckets=(32, 64, 128)),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(
        dim=200,
        vectors='runs/word_vectors.bin',
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
