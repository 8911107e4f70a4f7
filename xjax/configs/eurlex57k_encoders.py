r"""Trains MiniLM with several heads on EURLEX57K (header and recitals).

The small encoder is all-MiniLM-L6-v2 (Wang et al. 2020,
https://arxiv.org/abs/2002.10957). The documents are those of Chalkidis et al.,
ACL 2019 (https://aclanthology.org/P19-1636).

  xjax train --config=NAME \
    --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
    --workdir=runs/NAME

FOLDER is a copy of the Hugging Face model all-MiniLM-L6-v2. Without a test
split, write the ids of all 4,271 labels to a file and set
--config.data.labels=FILE.

Data: EURLEX57K. Hardware: two CPU cores. Expected: the tables in
docs/results.md. Time: 40 minutes of training and a few minutes of judging.
"""

from xjax.configs import variants
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.tokens_config import SubwordsConfig
from xjax.models.contract import Config
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.adaptive import AdaptiveConfig
from xjax.networks.heads.cascade import CascadeConfig, Chain
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.head import NoGraph
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers
from xjax.networks.pooling import ClsConfig
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer_config import AdamW


def eurlex57k_minilm() -> Config:
  r"""Trains MiniLM with a dense [CLS] layer on EURLEX57K (header and recitals).

  This is the system BERT-BASE of Chalkidis et al., but with the small encoder.
  On a GPU, use full documents:

    --config.data.zones= --config.data.tokens.max_tokens=512 \
    --config.data.tokens.buckets=128,256,512
  """
  return Config(
    data=Eurlex57kData(
      zones=('header', 'recitals'), tokens=SubwordsConfig(128, (64, 96, 128))
    ),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(), OneVsAllConfig()
    ),
    train=NeuralTrain(
      batch_size=32,
      steps=2400,
      learning_rate=1e-2,
      rates=('encoder/*=0.02',),
      warmup=100,
      schedule=Schedule.LINEAR,
      optimizer=AdamW(weight_decay=0.01),
      clip_norm=1.0,
      checkpoint_every=600,
      judge_every=1200,
    ),
  )


def eurlex57k_minilm_lwan() -> Config:
  """Trains MiniLM with label-wise attention on EURLEX57K (header and recitals).

  The head of BIGRU-LWAN of Chalkidis et al. attends to the tokens of the
  encoder. Chalkidis et al. 2020 use the same head with BERT
  (https://aclanthology.org/2020.emnlp-main.607).
  """
  config = eurlex57k_minilm()
  config.model = NeuralModel(
    NoEmbedding(), BertConfig(), head=LabelAttentionConfig()
  )
  train = config.train
  train.steps, train.checkpoint_every, train.judge_every = 1800, 900, 1800
  return config


@variants('names graph')
def eurlex57k_minilm_unified(system: str) -> Config:
  """Trains MiniLM with the unified head on EURLEX57K (header and recitals).

  The head, with label-wise attention, is as in eurlex57k_unified, so it also
  scores labels without training documents. The sentence encoder (Reimers and
  Gurevych 2019, https://aclanthology.org/D19-1410) embeds documents and names.
  A label starts from the embedding of its name, so names can be compared with
  documents even before training.

  The variant graph adds a graph of labels (Chalkidis et al., EMNLP 2020,
  https://aclanthology.org/2020.emnlp-main.607): the vector of a label also
  depends on the names of its parents and children in EUROVOC. With it, the RP@5
  of hidden labels is .628; without it, it is .595 in the same version.

  To judge the model on unseen labels, hide 300 labels from training with
  --config.data.hold_out_labels=300.
  """
  graph = GraphLayers() if system == 'graph' else NoGraph()
  head = UnifiedConfig(aligned=True, graph=graph)
  config = eurlex57k_minilm()
  config.model = NeuralModel(NoEmbedding(), BertConfig(), head=head)
  train = config.train
  train.learning_rate, train.rates = 2e-3, ('encoder/*=0.1',)
  train.steps, train.checkpoint_every, train.judge_every = 1850, 925, 925
  return config


def eurlex57k_aplc() -> Config:
  """Trains MiniLM with adaptive label clusters (APLC) on EURLEX57K.

  This is the head of Ye et al., ICML 2020 (https://arxiv.org/abs/2007.02439),
  but with MiniLM instead of XLNet. The half of the labels that is rare has rows
  of half the width.

  Differs from the paper: there is no pooler, a dense layer with tanh, and the
  loss is a sum over labels instead of a mean. The head has no biases, so all
  probabilities start at .5, and the first gradients are large. Those of the sum
  are clipped. Those of a mean would not be, and Adam would remember them for
  hundreds of steps.

  Expected: the table "Two stages" in docs/results.md.
  """
  config = eurlex57k_minilm()
  config.model.head = AdaptiveConfig()
  config.train.optimizer = AdamW()
  return config


@variants('lightxml lightxml_flat cascadexml')
def eurlex57k_cascade(system: str) -> Config:
  """Trains LightXML or CascadeXML with MiniLM on EURLEX57K.

  The systems are by Jiang et al. 2021 (https://arxiv.org/abs/2101.03305) and
  Kharbanda et al. 2022 (https://arxiv.org/abs/2211.00640), as in xc_lightxml
  and xc_cascadexml. LightXML (the default) reads the token [CLS] of the last
  five layers. In CascadeXML, coarse clusters read lower layers than labels do.
  The variant lightxml_flat is LightXML as the paper trains it on small
  datasets: a dense layer scores all labels, without clusters.

  Differs from the papers: the schedule, the weight decay, the number of epochs
  and the encoder's learning rate are those of eurlex57k_minilm. The losses of
  levels are sums over clusters and labels, as there, instead of means: a mean
  over 64 clusters would outweigh the mean over 2,144 labels. Dropout is lower,
  and LightXML does not average the weights.

  Expected: after 300 steps from a half-trained encoder, the table "Two stages"
  in docs/results.md.
  """
  config = eurlex57k_minilm()
  model, train = config.model, config.train
  model.encoder.joined = (-5, -4, -3, -2, -1)
  model.pooling.dropout = 0.0
  # Rows that read five layers have a fifth of the learning rate of rows that
  # read one layer. Otherwise a step would change their scores five times as
  # much. A layer that all labels share has even less.
  if system == 'lightxml_flat':
    model.pooling.dropout = 0.2
    train.learning_rate, train.rates = 2e-3, ('encoder/*=0.1',)
  elif system == 'lightxml':
    model.head = CascadeConfig(
      levels=LevelsConfig((64,), ClusterTree(arity=64, max_leaf=67)),
      kept=(32,),
      hidden=(0, 400),
      dropout=(0.2,),
    )
    train.rates += 'head/clusters/*=0.2', 'head/reading/*=0.05'
  else:
    model.encoder.joined = (3, 4, 5, 6)
    model.head = CascadeConfig(
      levels=LevelsConfig((64, 512), ClusterTree(arity=2, max_leaf=9)),
      kept=(32, 64),
      hidden=(384, 0, 0),
      dropout=(0.1, 0.1, 0.2),
      parts=('0+1', '2', '3'),
      chain=Chain.PARENT,
    )
    train.rates += ('head/clusters/0/reading/*=0.1',)
  return config


def eurlex57k_rerank() -> Config:
  r"""Ranks the labels that another run lists again, by MiniLM, on EURLEX57K.

  The other run can be of any kind, for example a label tree. It lists 50 labels
  of each document. MiniLM is trained as in eurlex57k_minilm, over all labels,
  and ranks the listed labels. The score of a label is its logit plus the log
  score of the other run, times 3. This weight was chosen on dev.

    xjax train --config=eurlex57k_xr_linear:large \
      --config.data.dir=DIR --workdir=runs/tree
    xjax train --config=eurlex57k_rerank \
      --config.data.dir=DIR --config.model.encoder.folder=FOLDER \
      --config.model.shortlist.workdir=runs/tree --workdir=runs/rerank

  If you have a run of eurlex57k_minilm, start from its parameters, and a few
  steps are enough: --config.train.init_from=runs/eurlex57k_minilm
  --config.train.steps=100 --config.train.learning_rate=1e-4.

  Expected on dev: the table in docs/results.md. Time: 6 minutes from the
  parameters of eurlex57k_minilm, else about 40 minutes.
  """
  config = eurlex57k_minilm()
  # The tree reads full documents. MiniLM reads their first 128 pieces, which
  # are mostly header and recitals.
  config.data.zones += 'main_body', 'attachments'
  config.model.shortlist = RunShortlist(
    50, 3.0, in_training=False, workdir='runs/tree'
  )
  return config
