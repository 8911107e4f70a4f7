r"""Trains X-Transformer on raw text of the Extreme Classification Repository.

This is the system of Chang et al., KDD 2020 (https://arxiv.org/abs/1905.02331),
with the sizes of the paper. An encoder, the matcher, chooses the ten best
clusters of labels. Linear classifiers on TF-IDF features and the encoder's
vectors rank the labels of these clusters.

  xjax train --config=xc_x_transformer \
    --config.data.dir=DIR \
    --config.model.matcher.model.encoder.folder=FOLDER \
    --workdir=runs/x_transformer

SYSTEMS below has the variants. DIR is as in xc_attention_xml.py. FOLDER is a
copy of a BERT model; the paper has large models such as
bert-large-uncased-whole-word-masking. Labels are clustered by the TF-IDF
features of their documents.

The paper averages 1 / rank over nine runs: three encoders, each with three
clusterings. Edit the config file for other encoders (RobertaConfig,
XLNetConfig), choose other clusters with
--config.model.levels.tree.features=..., and average the runs with
--config=ensemble.

Differs from the paper: two of its clusterings, by the encoder's vectors and by
label texts, are not here. A classifier of the ranker also learns from the ten
clusters that the matcher chooses, in all variants.

Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
Time: not measured.
"""

from typing import NamedTuple

from xjax.data.config import SubwordsConfig, TfidfConfig
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels_config import LevelsConfig
from xjax.losses.loss import Reduction
from xjax.losses.squared_hinge import SquaredHingeConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.matched.matched_model import MatchedModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.stage_config import StageConfig
from xjax.models.trees.tree_model import TreeTrain
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW

SYSTEMS = ('eurlex_4k', 'wiki10_31k', 'amazoncat_13k', 'wiki_500k')


class _Sizes(NamedTuple):
  """Holds the sizes of a dataset in the authors' code."""

  clusters: int  # at most 100 labels each
  steps: int
  warmup: int
  learning_rate: float


_SIZES = {
  'eurlex_4k': _Sizes(64, 1000, 100, 5e-5),
  'wiki10_31k': _Sizes(512, 1400, 100, 5e-5),
  'amazoncat_13k': _Sizes(256, 20_000, 2000, 8e-5),
  'wiki_500k': _Sizes(8192, 80_000, 1000, 6e-5),
}


def get_config(system: str = 'eurlex_4k') -> Config:
  if system not in SYSTEMS:
    raise ValueError(f'{system!r} is not one of {", ".join(SYSTEMS)}')
  sizes = _SIZES[system]
  return Config(
    data=XcRepoData(tokens=TfidfConfig()),
    model=MatchedModel(
      LevelsConfig((sizes.clusters,), ClusterTree(arity=2, max_leaf=100)),
      _matcher(sizes),
    ),
    train=TreeTrain(threshold=0.01, matched=10),
    eval=EvalConfig(ks=(1, 3, 5)),
  )


def _matcher(sizes: _Sizes) -> StageConfig:
  return StageConfig(
    tokens=SubwordsConfig(max_tokens=128, buckets=(64, 128)),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(pooler=True), OneVsAllConfig()
    ),
    train=NeuralTrain(
      batch_size=256,
      steps=sizes.steps,
      learning_rate=sizes.learning_rate,
      warmup=sizes.warmup,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.0),
      loss=SquaredHingeConfig(reduction=Reduction.MEAN_LABELS),
      clip_norm=1.0,
      checkpoint_every=sizes.steps // 10,
      judge_every=sizes.steps // 10,
    ),
  )
