r"""Trains a model that reads the parents of labels, on your own documents.

A BiGRU reads the documents. Its head, the unified form of the head of
BIGRU-LWAN, scores a label by trained weights and by the label's name, and by
the names of its parents and children (Chalkidis et al. 2020,
https://aclanthology.org/2020.emnlp-main.607). The sizes suit a few thousand
documents and two CPU cores.

  xjax train --config=own_graph \
    --config.data.dir=DIR --workdir=runs/own_graph

Give the parents in labels.jsonl, beside the documents. Each line is a label:

  {"id": "3", "name": "apple juice", "parents": ["1"]}

Parents may be labels or other lines of the file that no document has.
docs/hierarchies.md shows the whole way, to a report with hierarchical F1.

If many of your labels have no training documents, let training treat some rare
labels as unseen, so that the scores of both kinds are comparable:
--config.model.head.hidden_labels=20.

Data: your own documents. Hardware: two CPU cores. Expected: depends on the
corpus. Time: about two minutes for 2,000 short documents.
"""

from xjax.data.config import WordsConfig
from xjax.data.formats.own.own import OwnData
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bigru import BiGRUConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.unified import UnifiedConfig
from xjax.networks.label_graph import GraphLayers
from xjax.train.neural_train import NeuralTrain


def get_config() -> Config:
  return Config(
    data=OwnData(
      tokens=WordsConfig(max_tokens=128, buckets=(64, 128), min_count=2),
    ),
    model=NeuralModel(
      EmbeddingConfig(dim=64, dropout=0.3, word_dropout=0.0, init_scale=1.0),
      BiGRUConfig(units=64, dropout=0.3),
      head=UnifiedConfig(hidden_labels=0, graph=GraphLayers()),
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=1000,
      learning_rate=5e-3,
      checkpoint_every=200,
      judge_every=200,
      patience=3,
    ),
  )
