r"""Trains XR-Transformer, a label tree on TF-IDF and an encoder's vectors.

The system is by Zhang et al., NeurIPS 2021 (https://arxiv.org/abs/2110.00685).
The features of a document are its TF-IDF features and its vector, each of
length 1. The tree of linear classifiers on these features ranks the labels.

  xjax train --config=eurlex57k_xr_transformer \
    --config.data.dir=DIR --config.model.vectors.workdir=runs/eurlex57k_minilm \
    --workdir=runs/eurlex57k_xr_transformer

The vectors come from a finished run of any neural model, here from
eurlex57k_minilm. The variant `:full` trains the encoder as the paper does, as a
stage of the run: level by level, from coarse clusters of labels to the labels,
with costs for clusters that have several gold labels. It needs the folder of
the pretrained encoder instead:

  xjax train --config=eurlex57k_xr_transformer:full \
    --config.data.dir=DIR \
    --config.model.vectors.stage.model.encoder.folder=FOLDER \
    --workdir=runs/eurlex57k_xr_transformer_full

The tree is as in eurlex57k_xr_linear:large. In training, the negatives of a
classifier are documents with labels of the same cluster. The paper adds
documents for which the tree predicts the cluster: --config.train.matched=20.
This helps frequent labels only.

Differs from the paper: the encoder is smaller. The classifiers of the tree have
C = 1 for all documents, instead of 2 for documents with the label and 4 for
others (the paper's values for EURLex-4K). The classifiers from which label rows
start in `:full` have C = 1 instead of 100.

Data: EURLEX57K. Hardware: two CPU cores. Expected on dev: the table in
docs/results.md. Time: 10 minutes beyond the run of the encoder.
"""

import dataclasses

from xjax.configs import eurlex57k_xr_linear
from xjax.data.config import SubwordsConfig
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.loss import Reduction
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import LevelShortlist
from xjax.models.stage_config import StageConfig
from xjax.models.trees.vectors import RunVectors, StageVectors, VectorsConfig
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.batches.candidates import Candidates
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = ('ranker', 'full')


def get_config(system: str = 'ranker') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  config = eurlex57k_xr_linear.get_config('large')
  vectors = RunVectors(workdir='runs/eurlex57k_minilm')
  if system == 'full':
    vectors = _trained_vectors()
  model = dataclasses.replace(config.model, vectors=vectors)
  return dataclasses.replace(config, model=model)


def _trained_vectors() -> VectorsConfig:
  shortlist = LevelShortlist(
    levels=LevelsConfig(
      sizes=(16, 256), tree=ClusterTree(arity=16, max_leaf=17)
    ),
    steps=(600, 800),
    kept=20,
    candidates=Candidates.UNION,
    counted=True,
    bootstrap=True,
  )
  return StageVectors(
    stage=StageConfig(
      tokens=SubwordsConfig(max_tokens=128, buckets=(64, 96, 128)),
      zones=('header', 'recitals'),
      model=NeuralModel(
        NoEmbedding(), BertConfig(), ClsConfig(), OneVsAllConfig(), shortlist
      ),
      train=NeuralTrain(
        batch_size=32,
        steps=1200,
        learning_rate=2e-4,  # more would forget the bootstrapped rows
        warmup=100,
        schedule=Schedule.LINEAR,
        optimizer=AdamW(weight_decay=0.01),
        loss=SquaredHingeConfig(reduction=Reduction.MEAN_LABELS),
        clip_norm=1.0,
        checkpoint_every=600,
        judge_every=600,
      ),
    )
  )
