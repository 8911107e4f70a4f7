r"""Trains systems for hierarchical text classification on WoS, NYT and RCV1.

These are the datasets, and some of the systems, of Bertalis et al. (2025). The
sizes are those of the systems' own papers.

  xjax train --config=htc_bert:SYSTEM \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/SYSTEM

SYSTEM is a dataset and a system, such as wos_flat (the default). The datasets
are wos, nyt and rcv1. The systems are:

- flat: the token [CLS] and a dense layer (Devlin et al. 2019).
- hgclr: as flat, with views of documents that keep the words which matter for
  the labels (Wang et al. 2022, https://aclanthology.org/2022.acl-long.491).
- hbgl: the labels are generated level by level (Jiang et al. 2022,
  https://arxiv.org/abs/2205.02613). Lists have only the labels that are
  emitted, as Bertalis et al. judge it.
- radar: a decoder that writes label sequences, with the sizes of RADAr++
  (Yousef et al. 2025, https://arxiv.org/abs/2501.13598; Bertalis et al. 2025).
  Its encoder is RoBERTa.

HGCLR, HBGL and RADAr++ differ from the authors' code: the products are
bfloat16, and the best checkpoint is chosen by micro-F1 on dev alone.

HBGL also differs: a label can be emitted only at its own level, and the vectors
of RCV1's labels start at random, because its files have no names.

RADAr++ also differs:

- The learning rates are constant. The code divides them by 10 after 3 epochs
  without a lower loss on dev.
- The end of training is chosen by micro-F1 on dev too, not by the loss.
- The loss of a document is the sum over its symbols. The code divides the sum
  by the padded length, and clips gradients to 1; here they are clipped to 10.
- Input vectors of labels have weight decay too.
- A label is not written twice, and the start, padding and unknown labels are
  not among the symbols that can be written.

DIR has files like wos_train.json and a taxonomy, as in htc_bigru_lwan.
FOLDER is a copy of a BERT model such as bert-base-uncased, or of roberta-base.

Data: HTC files. Hardware: a GPU. Expected: not run yet; the figures of the
papers are in docs/judging.md. Time: not measured.
"""

from typing import NamedTuple

from xjax.configs import variants
from xjax.data.formats.htc import HtcData
from xjax.data.tokens_config import SubwordsConfig
from xjax.losses.bce import BCEConfig
from xjax.losses.loss import Reduction
from xjax.losses.sequence import SequenceLossConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.generation.hbgl import FirstVectors, HBGLConfig
from xjax.networks.heads.generation.label_levels import LabelPretraining
from xjax.networks.heads.generation.radar import RadarConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.views.hierarchy_views import HierarchyViews
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import Adam, AdamW

DATASETS = {'wos': 30_070, 'nyt': 23_345, 'rcv1': 20_833}  # documents of train


@variants(
  'wos_flat wos_hgclr wos_hbgl wos_radar nyt_flat nyt_hgclr nyt_hbgl '
  'nyt_radar rcv1_flat rcv1_hgclr rcv1_hbgl rcv1_radar'
)
def get_config(system: str) -> Config:
  dataset, name = system.split('_')
  config = _flat(dataset)
  model, train = config.model, config.train
  if name == 'hgclr':
    weight, threshold = _VIEWS[dataset]
    model.views = HierarchyViews(weight=weight, threshold=threshold)
    train.optimizer, train.clip_norm = Adam(), 0.0
  elif name == 'hbgl':
    _set_hbgl(config, dataset)
  elif name == 'radar':
    _set_radar(config, dataset)
  return config


def _flat(dataset: str) -> Config:
  batch_size = 12
  epoch = -(-DATASETS[dataset] // batch_size)
  return Config(
    data=HtcData(tokens=SubwordsConfig(512, (128, 256, 512))),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(dropout=0.1), OneVsAllConfig()
    ),
    train=NeuralTrain(
      loss=BCEConfig(reduction=Reduction.MEAN_LABELS),
      batch_size=batch_size,
      steps=40 * epoch,
      learning_rate=3e-5,
      warmup=2000,
      optimizer=AdamW(weight_decay=0.0),
      clip_norm=1.0,
      checkpoint_every=epoch,
      judge_every=epoch,
      best_metric='all/micro-F1',
      patience=6,
    ),
    eval=EvalConfig(ks=(1, 2, 3, 5, 10, 20)),
  )


# The weight of the contrastive loss, and the threshold for words.
_VIEWS = {'wos': (0.05, 0.02), 'nyt': (0.3, 0.002), 'rcv1': (0.3, 0.001)}


class _HbglSizes(NamedTuple):
  """Holds the sizes of HBGL in the authors' code."""

  max_tokens: int
  levels: int
  pretraining: LabelPretraining
  every: int = 1500  # steps between two judgings


_HBGL = {
  'wos': _HbglSizes(509, 2, LabelPretraining(steps=300)),
  'nyt': _HbglSizes(472, 8, LabelPretraining(steps=1000, rate=1e-4)),
  'rcv1': _HbglSizes(492, 4, LabelPretraining(steps=100, growth=0.3), 3000),
}


def _set_hbgl(config: Config, dataset: str) -> None:
  sizes, train = _HBGL[dataset], config.train
  names = FirstVectors.NAMES if dataset != 'rcv1' else FirstVectors.RANDOM
  head = HBGLConfig(
    max_levels=sizes.levels,
    first_vectors=names,
    priors=False,
    pretraining=sizes.pretraining,
  )
  longest = sizes.max_tokens
  config.data.tokens = SubwordsConfig(longest, (128, 256, longest))
  config.model = NeuralModel(NoEmbedding(), BertConfig(), head=head)
  train.steps, train.warmup, train.patience = 96_000, 500, 0
  train.schedule, train.optimizer = Schedule.LINEAR, AdamW(weight_decay=0.01)
  train.checkpoint_every = train.judge_every = sizes.every


def _set_radar(config: Config, dataset: str) -> None:
  train, batch_size = config.train, 64
  epoch = -(-DATASETS[dataset] // batch_size)
  config.model = NeuralModel(NoEmbedding(), BertConfig(), head=RadarConfig())
  train.loss, train.optimizer = SequenceLossConfig(), AdamW(weight_decay=0.01)
  train.batch_size, train.accumulate, train.steps = batch_size, 2, 50 * epoch
  train.learning_rate = 3e-4
  train.rates = ('encoder/*=0.11667',)  # 3.5e-5
  train.warmup, train.patience = 0, 10
  # The public code clips to 1, after it has divided the loss of a document by
  # the padded length of sequences.
  train.clip_norm = 10.0
  train.checkpoint_every = train.judge_every = epoch
