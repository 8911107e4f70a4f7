r"""Trains networks on your own documents, and averages finished runs.

DIR is a file or a folder of documents (see docs/data.md).

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/mine

Data: your own documents. Hardware: two CPU cores for small label sets, else a
GPU. Expected: depends on the corpus. Time: depends on the corpus.
"""

import dataclasses

from xjax.configs import variants
from xjax.configs.eurlex57k_encoders import eurlex57k_minilm_unified
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.htc import HtcData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.formats.synthetic import SyntheticData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.formats.xc_text import XcRepoData
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  GivenFeaturesConfig,
  Norm,
  SubwordsConfig,
  WordsConfig,
)
from xjax.models.contract import Config
from xjax.models.ensemble.ensemble_model import EnsembleModel
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import RunShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, NoEncoder
from xjax.networks.encoders.feature_vectors import FeaturesConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.descriptor_heads import UnifiedConfig
from xjax.networks.heads.head import DescriptorConfig, DescriptorWeights
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers
from xjax.networks.pooling import ClsConfig, MeanConfig, SelfAttentionConfig
from xjax.networks.rows.update import FusedAdam
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.train_config import NoTrain


def own_bigru_lwan() -> Config:
  """Trains BiGRU-LWAN on your own documents (see own_linear for their form).

  The model of Chalkidis et al. 2019 (https://aclanthology.org/P19-1636) reads
  the first 256 words of all zones. With 27,000 labels, training needs less than
  8 GiB of memory.

  Expected: metrics well above those of the popularity prior (both are printed).
  """
  return _bigru_lwan(OwnData(tokens=_words()))


def htc_bigru_lwan() -> Config:
  """Trains BiGRU-LWAN on data for hierarchical text classification.

  The model is as in own_bigru_lwan. DIR has files like wos_train.json, and a
  taxonomy file. Each line of wos_train.json is a JSON object with the keys
  doc_token and doc_label. Each line of the taxonomy file has a label and its
  children, separated by tabs. `xjax transfer --to=flat --labels=leaves` writes
  a corpus with only the labels at the bottom of the taxonomy, as methods for
  extreme multi-label classification use it (Bertalis et al. 2025, App. B).

  Data: HTC files. Hardware: a GPU, or two CPU cores for small corpora.
  Expected: not run yet.
  """
  return _bigru_lwan(HtcData(tokens=_words()))


def xc_repo_bigru_lwan() -> Config:
  """Trains BiGRU-LWAN on raw text of the Extreme Classification Repository.

  The model is as in own_bigru_lwan (Chalkidis et al. 2019). DIR is the folder
  of a dataset with text (its name starts with LF-). It has trn.json[.gz],
  tst.json[.gz], and the labels' names in lbl.json[.gz] or Y.txt. A document's
  title is read before its content.

  Data: text files of the XC repository. Hardware: a GPU. Expected: not run yet.
  """
  return _bigru_lwan(XcRepoData(tokens=_words()))


def _words() -> WordsConfig:
  return WordsConfig(256, (32, 64, 128, 256))


def _bigru_lwan(data: DataConfig) -> Config:
  model = NeuralModel(encoder=BiGRUConfig(units=200))
  return Config(data=data, model=model, train=_train())


def _train() -> NeuralTrain:
  return NeuralTrain(
    batch_size=32,
    steps=10_000,
    clip_value=5.0,
    checkpoint_every=1000,
    judge_every=1000,
    patience=3,
  )


def own_graph() -> Config:
  """Trains a model that reads the parents of labels, on your own documents.

  A BiGRU reads the documents. Its head, the unified form of the head of
  BIGRU-LWAN, scores a label by trained weights and by the label's name, and by
  the names of its parents and children (Chalkidis et al. 2020,
  https://aclanthology.org/2020.emnlp-main.607). The sizes suit a few thousand
  documents and two CPU cores.

  Give the parents in labels.jsonl, beside the documents. Each line is a label:

    {"id": "3", "name": "apple juice", "parents": ["1"]}

  Parents may be labels or other lines of the file that no document has.
  docs/hierarchies.md shows the whole way, to a report with hierarchical F1.

  If many of your labels have no training documents, let training treat some
  rare labels as unseen, so that the scores of both kinds are comparable:
  --config.model.head.hidden_labels=20.

  Hardware: two CPU cores. Time: about two minutes for 2,000 short documents.
  """
  return Config(
    data=OwnData(tokens=WordsConfig(128, (64, 128))),
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


def own_unified() -> Config:
  r"""Trains the unified form of BIGRU-LWAN on your own documents.

  Choose this model if many labels have few training documents or none. The
  model extends BIGRU-LWAN (Chalkidis et al. 2019): a label is scored by trained
  weights, by its name and by its alternative names. The sizes suit TIB-SID, a
  collection of library records with 26,976 labels. Half of these labels have
  one training document (D'Souza et al., "SemEval-2025 Task 5: LLMs4Subjects",
  https://aclanthology.org/2025.semeval-1). Train word vectors first:

    xjax embeddings --config=own_unified \
      --config.data.dir=DIR --output=runs/word_vectors.bin

  Labels without training documents are scored only by their names. To make
  their scores comparable, training treats 200 rare labels (1 to 20 training
  documents) as unseen. If you have fewer such labels, set a smaller number:
  --config.model.head.hidden_labels=20.

  Hardware: a GPU; two CPU cores are slow. Expected: not run to the end yet.
  Time: 1 to 2 s per step on two CPU cores.
  """
  descriptor = DescriptorConfig(alt=True, weights=DescriptorWeights.IDF)
  return Config(
    data=OwnData(tokens=WordsConfig(128, (32, 64, 128))),
    model=NeuralModel(
      EmbeddingConfig(vectors='runs/word_vectors.bin'),
      BiGRUConfig(units=100),
      head=UnifiedConfig(descriptor=descriptor, hidden_labels=200),
    ),
    train=_train(),
  )


def own_minilm() -> Config:
  """Trains a pretrained encoder with the unified head on your own documents.

  The encoder is all-MiniLM-L6-v2 (Wang et al. 2020,
  https://arxiv.org/abs/2002.10957) or any other encoder of the BERT family:
  give a copy of the Hugging Face model as --config.model.encoder.folder=FOLDER.
  It reads the first 256 word pieces of a document. It also embeds the names of
  labels, so that labels with few training documents or none are scored too.
  The head, the sizes and unseen labels are as in own_unified.

  Hardware: a GPU; two CPU cores are slow. Expected: not run yet. Time: not
  measured; training has 10,000 steps.
  """
  config = eurlex57k_minilm_unified()
  config.data = OwnData(tokens=SubwordsConfig(256, (64, 128, 192, 256)))
  head, train = config.model.head, config.train
  head.descriptor, head.hidden_labels = DescriptorConfig(alt=True), 200
  train.steps, train.warmup, train.patience = 10_000, 500, 3
  train.checkpoint_every = train.judge_every = 1000
  return config


def own_one_vs_all() -> Config:
  r"""Trains a pretrained encoder with a one-vs-all head on your own documents.

  Choose this model if there are many labels, up to millions, and most of them
  have training documents. The encoder is that of own_minilm. The head scores
  all labels at every step (Renee, Jain et al. 2023), and Adam updates their
  rows in the pass that computes the gradient. The rows are divided among all
  devices. Plan the run first:

    xjax train --plan --config=own_one_vs_all --config.data.dir=DIR \
      --config.model.encoder.folder=FOLDER --chip=h100-80 --devices=8

  A weight of a row takes 12 bytes, 4 of its own and 8 of Adam's slots. With
  --config.model.head.storage=BFLOAT16 they are 10; in a copy of this config,
  rows=FusedAdagrad() saves 8. The learning rates are those of
  eurlex57k_minilm; for BERT-BASE, set --config.train.learning_rate=5e-5.

  10,000 steps of 32 documents suit some ten thousand documents. With more, set
  --config.train.batch_size=512 and as many steps as some epochs have, and see
  docs/accelerators.md for the learning rates of larger batches.

  Hardware: a GPU, or several GPUs or TPUs; two CPU cores for small label sets.
  Expected: not run to the end yet; with MiniLM and the documents of
  eurlex57k_minilm, dev RP@5 is 0.519 after 100 steps, 10 of them warm-up, and
  that config has 0.515. Time: not measured; training has 10,000 steps.
  """
  config = own_minilm()
  config.model = NeuralModel(
    NoEmbedding(),
    # Without attention dropout, GPUs use a flash attention kernel.
    BertConfig(attention_dropout=0.0),
    ClsConfig(),
    OneVsAllConfig(),
  )
  config.train = dataclasses.replace(
    config.train, learning_rate=2e-4, rates=(), rows=FusedAdam(1e-2)
  )
  return config


def frozen_features() -> Config:
  """Trains a dense layer on one fixed vector per document.

  Compute a vector for each document with any encoder. Save the vectors as
  DIR/{split}.npy and the document ids as DIR/{split}.ids.txt (see
  docs/data.md), next to {split}.jsonl, or let `xjax embed` do so. Give their
  size as --config.model.embedding.dim=768. Only the output layer is trained.
  Chalkidis et al. 2019 (https://aclanthology.org/P19-1636, Section 4) use the
  same output layer on top of BERT-BASE. To use label-wise attention and a
  vector per token, write a config of your own: set max_tokens and buckets of
  FeatureFilesConfig, and replace MeanConfig() by NoPooling() and
  OneVsAllConfig() by LabelAttentionConfig().

  Data: your own vectors and labels. Hardware: two CPU cores. Expected: depends
  on the encoder. Time: minutes.
  """
  return Config(
    data=JsonlData(labels='all', tokens=FeatureFilesConfig()),
    model=NeuralModel(
      FeaturesConfig(dim=768, dropout=0.1),
      NoEncoder(),
      MeanConfig(),
      OneVsAllConfig(),
    ),
    train=NeuralTrain(
      steps=10_000, checkpoint_every=1000, judge_every=1000, patience=3
    ),
  )


def yso_rerank() -> Config:
  r"""Ranks the labels that another run lists again, by a BiGRU, on YSO.

  The other run lists 50 labels of each document, as in eurlex57k_rerank. The
  encoder, that of BIGRU-ATT (Chalkidis et al. 2019), reads words and is trained
  from scratch.

    xjax train --config=yso_xr_linear \
      --config.data.dir=DIR --workdir=runs/yso_tree
    xjax train --config=yso_rerank \
      --config.data.dir=DIR --config.model.shortlist.workdir=runs/yso_tree \
      --workdir=runs/yso_rerank

  A shortlist of 50 labels must have room for all gold labels of a document. So
  that it also has at least ten wrong labels to learn from, remove the documents
  with more than 40 labels from the training file first (120 of 587,947).

  Data: YSO, as JSON lines. Hardware: two CPU cores. Expected on dev: the table
  in docs/results.md. Time: 7 minutes.
  """
  return Config(
    data=JsonlData(labels='all', tokens=WordsConfig(32, (8, 16, 32))),
    model=NeuralModel(
      EmbeddingConfig(dim=128, word_dropout=0.0),
      BiGRUConfig(units=128),
      SelfAttentionConfig(),
      OneVsAllConfig(),
      shortlist=RunShortlist(50, 3.0, workdir='runs/yso_tree'),
    ),
    train=NeuralTrain(
      batch_size=128,
      steps=3000,
      learning_rate=2e-3,
      schedule=Schedule.LINEAR,
      rows=FusedAdam(learning_rate=2e-3),
      clip_norm=1.0,
      checkpoint_every=1000,
      judge_every=3000,
    ),
    eval=EvalConfig(batch_size=512),
  )


@variants('own eurlex57k xc tib_sid yso synthetic')
def ensemble(system: str) -> Config:
  r"""Averages the lists of finished runs, without training.

  The runs must have been trained on the same corpus, with any models.
  X-Transformer (Chang et al. 2020, https://arxiv.org/abs/1905.02331) averages
  1 / rank over nine runs. XR-Transformer (Zhang et al. 2021,
  https://arxiv.org/abs/2110.00685) averages three runs.

    xjax train --config=ensemble --config.data.dir=DIR \
      --config.model.workdirs=runs/a,runs/b --workdir=runs/both

  The variant own reads your own documents in DIR, as own_linear does. The other
  variants read the data of other configs: eurlex57k EURLEX57K, xc the feature
  files of the Extreme Classification Repository with rows of length 1, tib_sid
  the data of tib_sid_xr_linear, yso the data of yso_xr_linear, and synthetic
  the corpus of quickstart, which needs no DIR. --config.model.combine=SIGMOID
  averages probabilities, which needs runs with a calibration or with logits,
  and SOFTMAX averages the softmax over each list.

  Data: that of the runs. Hardware: that which the runs need for prediction.
  Expected metrics: not measured; often above those of each run. Time: that of
  predicting dev and test with each run.
  """
  words = WordsConfig()
  data = {
    'own': OwnData(tokens=words),
    'eurlex57k': Eurlex57kData(tokens=words),
    'xc': XcFeaturesData(tokens=GivenFeaturesConfig(norm=Norm.L2)),
    'tib_sid': JsonlData(
      zones=('title', 'abstract'), labels='all', tokens=words
    ),
    'yso': JsonlData(labels='all', tokens=words),
    'synthetic': SyntheticData(tokens=words),
  }
  return Config(
    data=data[system],
    model=EnsembleModel(workdirs=('runs/first', 'runs/second')),
    train=NoTrain(),
    eval=EvalConfig(batch_size=256),
  )
