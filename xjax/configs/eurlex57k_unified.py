r"""Trains BiGRU-LWAN with the unified head on full documents of EURLEX57K.

The model extends BIGRU-LWAN (L2V) of Table 2 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). The sizes are those of Table 5. Every label
has an embedding of its descriptor (its name). A label with training documents
also has trained weights, except 50 rare labels that training treats as unseen
(model.head.hidden_labels). The first command trains word vectors. The label
embeddings are computed from these vectors and stay fixed; the vectors of
document words are trained further.

  xjax embeddings --config=eurlex57k_unified \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin
  xjax train --config=eurlex57k_unified \
    --config.data.dir=DIR --workdir=runs/eurlex57k_unified

Data: EURLEX57K. Hardware: one GPU. Expected: not run yet; on test, BIGRU-LWAN
(L2V) of the paper has RP@5 0.775 and few-shot RP@5 0.656, and ZERO-BIGRU-LWAN
has zero-shot RP@5 0.438. Time: hours.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.eurlex57k.reader import Eurlex57kData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.heads.unified import UnifiedConfig
from xjax.train.neural_train import NeuralTrain

_EPOCH = 2813  # steps of 16 documents; train has 45,000 documents


def get_config() -> Config:
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals', 'main_body', 'attachments'),
      tokens=WordsConfig(
        max_tokens=5000,
        buckets=(256, 384, 512, 768, 1024, 1536, 2048, 3072, 5000),
      ),
    ),
    model=NeuralModel(
      embedding=EmbeddingConfig(
        dim=200,
        dropout=0.4,
        word_dropout=0.0,
        vectors='runs/eurlex57k_l2v.bin',
      ),
      encoder=BiGRUConfig(units=300, dropout=0.4),
      head=UnifiedConfig(
        descriptor=DescriptorConfig(weights=DescriptorWeights.IDF)
      ),
    ),
    train=NeuralTrain(
      batch_size=16,
      steps=20 * _EPOCH,
      clip_value=5.0,
      checkpoint_every=_EPOCH,
      judge_every=_EPOCH,
      patience=3,
    ),
  )
