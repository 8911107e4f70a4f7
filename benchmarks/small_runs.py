"""Makes small runs on the built-in corpus, whose models are then timed."""

import pathlib

from xjax.data.formats.synthetic import SyntheticData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.load import load_corpus
from xjax.data.tokens_config import SubwordsConfig, TfidfConfig, WordsConfig
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.trees.tree_model import TreeModel, TreeTrain
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.encoders.recurrent_cells import BiGRUConfig
from xjax.run.fit import fit
from xjax.train.neural_train import NeuralTrain


def make_run(system: str, workdir: str, encoder: str = '') -> list[str]:
  """Trains a model with few steps, unless the run is there already.

  Args:
    system: 'tree' (a label tree), 'bigru' (a small BiGRU with label-wise
      attention) or 'minilm' (a pretrained MiniLM).
    workdir: folder of the run.
    encoder: the Hugging Face folder of all-MiniLM-L6-v2, for 'minilm'.

  Returns:
    The texts of the dev documents.
  """
  config = _config_of(system, encoder)
  if not (pathlib.Path(workdir) / 'config.json').exists():
    fit(config, workdir)
  split = load_corpus(config.data, config.seed).split('dev')
  return [split.documents[row].text() for row in range(len(split))]


def _config_of(system: str, encoder: str) -> Config:
  if system == 'tree':
    return Config(
      data=SyntheticData(tokens=TfidfConfig()),
      model=TreeModel(tree=ClusterTree(arity=100, max_leaf=100)),
      train=TreeTrain(threshold=0.01),
      eval=EvalConfig(batch_size=512),
    )
  train = NeuralTrain(batch_size=32, steps=40, learning_rate=5e-3)
  if system == 'bigru':
    tokens = WordsConfig(max_tokens=128, buckets=(64, 128), min_count=1)
    words = EmbeddingConfig(dim=64, dropout=0.1, word_dropout=0.0)
    model = NeuralModel(words, BiGRUConfig(units=64, dropout=0.1))
  else:
    tokens = SubwordsConfig(max_tokens=128, buckets=(64, 128))
    model = NeuralModel(NoEmbedding(), BertConfig(folder=encoder))
    train = NeuralTrain(batch_size=32, steps=4, learning_rate=1e-5)
  return Config(data=SyntheticData(tokens=tokens), model=model, train=train)
