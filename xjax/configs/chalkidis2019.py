r"""Trains the systems of Chalkidis et al. 2019, with the sizes of the paper.

The paper is "Large-Scale Multi-Label Text Classification on EU Legislation"
(ACL 2019, https://aclanthology.org/P19-1636). Sizes and training are those of
its Table 5 and Appendix B. Figures are those of its Table 2.

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/NAME

The embeddings of most systems are trained from random values; the paper uses
frozen GloVe vectors. Three kinds of systems have in-domain word vectors, which
the following command trains on the corpus first: the L2V systems (the paper's
vectors are from more legislation, Chalkidis & Kampas 2018), those that score
labels by their names (ZERO-), and eurlex57k_unified.

  xjax embeddings --config=eurlex57k_bigru_lwan_l2v \
    --config.data.dir=DIR --output=runs/eurlex57k_l2v.bin

Data: EURLEX57K. Hardware: one GPU. Expected: not run yet; the figures are those
of the paper. Time: hours.
"""

from xjax.configs import variants
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.tokens_config import SubwordsConfig, WordsConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.lookup.exact_match import ExactMatchModel
from xjax.models.neural.neural_model import NeuralModel
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.cnn import CNNConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.networks.heads.descriptor_heads import UnifiedConfig, ZeroShotConfig
from xjax.networks.heads.head import (
  DescriptorConfig,
  DescriptorWeights,
  NoGraph,
)
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.label_graph import GraphLayers, Joining
from xjax.networks.pooling import ClsConfig, SelfAttentionConfig
from xjax.train.neural_train import NeuralTrain
from xjax.train.train_config import NoTrain

_FULL = ('header', 'recitals', 'main_body', 'attachments')
_DOCUMENTS = 45_000  # of train


def eurlex57k_bigru_att() -> Config:
  """Trains BIGRU-ATT on full documents of EURLEX57K, as in the paper.

  Expected (the paper, on test): RP@5 0.758, nDCG@5 0.789, micro-F1 0.689.
  """
  words, bigru = _words(0.2, 0.02), BiGRUConfig(dropout=0.2)
  model = NeuralModel(words, bigru, SelfAttentionConfig(), OneVsAllConfig())
  return _config(model, batch_size=12)


def eurlex57k_han() -> Config:
  """Trains HAN on full documents of EURLEX57K, as in the paper.

  It reads the first 2,000 words of each zone. Gradients are clipped to +-2, as
  in the authors' code for HAN.

  Expected (the paper, on test): RP@5 0.746, nDCG@5 0.778, micro-F1 0.680.
  """
  words, han = _words(0.3, 0.02), HANConfig()
  config = _config(
    NeuralModel(words, han, SelfAttentionConfig(), OneVsAllConfig())
  )
  buckets = (96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2000)
  config.data.tokens = WordsConfig(2000, buckets, by_zone=True)
  config.train.clip_value = 2.0
  return config


def eurlex57k_cnn_lwan() -> Config:
  """Trains CNN-LWAN on full documents of EURLEX57K, as in the paper.

  The model is by Mullenbach et al. 2018. A filter sees three words, as in the
  code of Chalkidis et al.

  Expected (the paper, on test): RP@5 0.716, nDCG@5 0.746, micro-F1 0.642.
  """
  return _config(NeuralModel(_words(0.1, 0.01), CNNConfig()), batch_size=12)


def eurlex57k_bigru_lwan() -> Config:
  """Trains BIGRU-LWAN on full documents of EURLEX57K, as in the paper.

  Expected (the paper, on dev): RP@5 0.766, nDCG@5 0.797, micro-F1 0.702. To
  read only some zones, as in Table 4, add one of these flags. The numbers are
  the RP@5, nDCG@5 and micro-F1 of the paper on dev.

    --config.data.zones=header           0.747, 0.782, 0.688
    --config.data.zones=recitals         0.734, 0.765, 0.669
    --config.data.zones=header,recitals  0.765, 0.796, 0.701
    --config.data.zones=main_body        0.643, 0.674, 0.590
  """
  return _config(NeuralModel(_words(0.4), BiGRUConfig(dropout=0.4)))


def eurlex57k_bigru_lwan_l2v() -> Config:
  """Trains BIGRU-LWAN with in-domain word vectors on full EURLEX57K documents.

  This is BIGRU-LWAN (L2V) of the paper; the word vectors are frozen.

  Expected (the paper, on test): RP@5 0.775, nDCG@5 0.804, micro-F1 0.711.
  """
  return _config(NeuralModel(_l2v(0.4), BiGRUConfig(dropout=0.4)))


def eurlex57k_bigru_lwan_l2v_512() -> Config:
  """Trains BIGRU-LWAN (L2V) on the first 512 words of EURLEX57K documents.

  Expected (the paper's row with an asterisk, on test): RP@5 0.770, nDCG@5
  0.796, micro-F1 0.709.
  """
  config = eurlex57k_bigru_lwan_l2v()
  config.data.tokens = WordsConfig(512, (128, 256, 384, 512))
  return config


def eurlex57k_zero_cnn_lwan() -> Config:
  """Trains ZERO-CNN-LWAN on EURLEX57K; it scores labels by their names.

  Word vectors and the label embeddings, which are computed from them, are
  frozen.

  Expected (the paper, on test): RP@5 0.684, nDCG@5 0.717, micro-F1 0.618;
  zero-shot RP@5 0.321, nDCG@5 0.264.
  """
  return _config(NeuralModel(_l2v(0.1), CNNConfig(), head=ZeroShotConfig()))


@variants('names graph')
def eurlex57k_zero_bigru_lwan(system: str) -> Config:
  """Trains ZERO-BIGRU-LWAN on EURLEX57K; it scores labels by their names.

  Word vectors and label embeddings are as in eurlex57k_zero_cnn_lwan. The
  variant graph adds a graph of labels, as the scores "concat" of Chalkidis et
  al., EMNLP 2020 (https://aclanthology.org/2020.emnlp-main.607). It is not
  measured yet.

  Expected (the paper, on test): RP@5 0.718, nDCG@5 0.752, micro-F1 0.652;
  zero-shot RP@5 0.438, nDCG@5 0.345.
  """
  graph = NoGraph()
  if system == 'graph':
    graph = GraphLayers(joining=Joining.CONCAT)
  bigru = BiGRUConfig(units=100, dropout=0.1)
  return _config(
    NeuralModel(_l2v(0.1), bigru, head=ZeroShotConfig(graph=graph))
  )


def eurlex57k_unified() -> Config:
  """Trains BIGRU-LWAN with the unified head on full documents of EURLEX57K.

  Every label has an embedding of its descriptor (its name). A label with
  training documents also has trained weights, except 50 rare labels that
  training treats as unseen (model.head.hidden_labels). The label embeddings are
  computed from the word vectors and stay fixed; the vectors of document words
  are trained further.

  Expected: not run yet; on test, BIGRU-LWAN (L2V) of the paper has RP@5 0.775
  and few-shot RP@5 0.656, and ZERO-BIGRU-LWAN has zero-shot RP@5 0.438.
  """
  descriptor = DescriptorConfig(weights=DescriptorWeights.IDF)
  head = UnifiedConfig(descriptor=descriptor)
  bigru = BiGRUConfig(dropout=0.4)
  return _config(NeuralModel(_l2v(0.4, frozen=False), bigru, head=head))


def eurlex57k_bert() -> Config:
  """Trains BERT-BASE with a dense [CLS] layer on EURLEX57K, as in the paper.

  Add --config.model.encoder.folder=FOLDER, a copy of the Hugging Face model
  bert-base-uncased. There are 4,271 labels: all that occur in train, dev or
  test. An epoch has 5,625 steps.

  Hardware: a GPU. Expected: not run yet; the paper has RP@5 .796
  and nDCG@5 .823 on test.
  """
  epoch = _DOCUMENTS // 8
  return Config(
    data=Eurlex57kData(tokens=SubwordsConfig(512, (128, 256, 512))),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(), OneVsAllConfig()
    ),
    train=NeuralTrain(
      batch_size=8,
      steps=9 * epoch,
      learning_rate=5e-5,
      checkpoint_every=epoch,
      judge_every=epoch,
      patience=1,
    ),
  )


def eurlex57k_exact_match() -> Config:
  """Predicts the labels whose names occur in full documents of EURLEX57K.

  This is Exact Match of the paper. Nothing is trained, so a label without
  training documents is predicted like any other label. Labels whose names occur
  more often, and then those with longer names, rank higher; the paper does not
  say how it ranks. With --config.model.alt=true, the system also searches for
  alternative names. The metrics of the slices few and zero are then better, but
  the metrics of all labels are worse.

  Hardware: one CPU core. Expected: dev RP@5 0.240, nDCG@5 0.221, micro-F1
  0.140; RP@5 of frequent labels 0.314, few 0.223, zero 0.195. For the same six
  metrics on test, the paper has 0.097, 0.099, 0.120, 0.219, 0.111 and 0.194.
  (If this system did not rank the labels that it finds, RP@5 would be 0.115.)
  Time: a minute, including 3 s to find the names.
  """
  # A long document contains more than 200 label names, so lists must be long.
  return Config(
    data=Eurlex57kData(zones=_FULL, tokens=WordsConfig(100_000, (100_000,))),
    model=ExactMatchModel(),
    train=NoTrain(),
    eval=EvalConfig(depth=300),
  )


def _config(model: NeuralModel, batch_size: int = 16) -> Config:
  """Returns a system that reads full documents, for at most 20 epochs."""
  epoch = -(-_DOCUMENTS // batch_size)
  buckets = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 5000)
  return Config(
    data=Eurlex57kData(zones=_FULL, tokens=WordsConfig(5000, buckets)),
    model=model,
    train=NeuralTrain(
      batch_size=batch_size,
      steps=20 * epoch,
      clip_value=5.0,
      checkpoint_every=epoch,
      judge_every=epoch,
      patience=3,
    ),
  )


def _words(dropout: float, word_dropout: float = 0.0) -> EmbeddingConfig:
  return EmbeddingConfig(dropout=dropout, word_dropout=word_dropout)


def _l2v(dropout: float, frozen: bool = True) -> EmbeddingConfig:
  """Returns the word vectors that `xjax embeddings` has trained."""
  words = _words(dropout)
  words.vectors, words.frozen = 'runs/eurlex57k_l2v.bin', frozen
  return words
