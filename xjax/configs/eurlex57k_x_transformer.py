r"""Trains X-Transformer with MiniLM on EURLEX57K.

The system is by Chang et al., KDD 2020 (https://arxiv.org/abs/1905.02331), but
with the small encoder all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957). The encoder chooses clusters of labels. The
labels of these clusters are ranked by linear classifiers on TF-IDF features and
the encoder's vectors.

  xjax train --config=eurlex57k_x_transformer \
    --config.data.dir=DIR \
    --config.model.matcher.model.encoder.folder=FOLDER \
    --config.model.matcher.train.init_from=runs/eurlex57k_minilm \
    --workdir=runs/eurlex57k_x_transformer

FOLDER is a copy of the Hugging Face model. The encoder starts from the finished
run of eurlex57k_minilm. It can also start from the weights in FOLDER: leave out
init_from, and set --config.model.matcher.train.steps=2400
--config.model.matcher.train.learning_rate=1e-2.

Data: EURLEX57K. Hardware: two CPU cores. Expected: with 300 steps from a
half-trained encoder, the table "Two stages" in docs/results.md. Time: 40
minutes beyond the run of eurlex57k_minilm (an estimate).
"""

import dataclasses

from xjax.configs import eurlex57k_minilm, eurlex57k_xr_linear
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.loss import Reduction
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.stage_config import StageConfig
from xjax.models.trees.tree_model import TreeTrain


def get_config() -> Config:
  encoder = eurlex57k_minilm.get_config()
  matcher = StageConfig(
    tokens=encoder.data.tokens,
    zones=encoder.data.zones,
    model=encoder.model,
    train=dataclasses.replace(
      encoder.train,
      steps=800,
      learning_rate=2e-3,  # the encoder is trained already
      loss=SquaredHingeConfig(reduction=Reduction.MEAN_LABELS),
      checkpoint_every=400,
      judge_every=400,
    ),
  )
  return dataclasses.replace(
    eurlex57k_xr_linear.get_config(),
    model=MatchedModel(
      LevelsConfig((64,), ClusterTree(arity=2, max_leaf=100)), matcher
    ),
    train=TreeTrain(threshold=0.01, matched=10),
  )
