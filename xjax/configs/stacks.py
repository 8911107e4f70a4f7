r"""Trains stacks: several models propose labels, and a ranker judges them.

Proposers are label trees (as in own_linear), the nearest training documents,
and label names that are found in the document. Gradient-boosted trees
(LightGBM, Ke et al. 2017) rank the listed labels. They learn from training
documents that the proposers have not seen, in four folds. In each fold some
labels are hidden, so that labels without training documents are ranked well
too. docs/stacks.md says more.

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/NAME

For EURLEX57K, add --config.data.labels=LIST, a file with the ids of all labels,
also of those that no training document has.

Data: EURLEX57K. Hardware: two CPU cores and 10 GB. Expected: see each system.
Time: 40 minutes.
"""

from xjax.configs import variants
from xjax.configs.eurlex57k_encoders import eurlex57k_minilm
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.own import OwnData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.tokens_config import (
  GivenFeaturesConfig,
  Norm,
  SubwordsConfig,
  TfidfConfig,
)
from xjax.models.contract import Config
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.dual import Loss
from xjax.models.linear.listed import ListedLinear
from xjax.models.lookup.neighbours_model import NeighboursModel
from xjax.models.lookup.prototypes import PrototypesModel
from xjax.models.stack.boosted import BoostedTrees
from xjax.models.stack.proposers import (
  ProposerConfig,
  dated_act_proposers,
  name_parts_proposer,
  prototypes_proposer,
  text_and_title_proposers,
  tree_proposer,
  vector_proposers,
)
from xjax.models.stack.ranker import ListedRanker
from xjax.models.stack.stack_model import StackModel, StackTrain
from xjax.models.trees.tree_model import LinearModel, LinearTrain
from xjax.train.train_config import NoTrain

_TITLE = ('title',)
_TEXT = ('header', 'recitals', 'main_body', 'attachments')


def eurlex57k_best_cpu() -> Config:
  """Trains the best system without a neural part on EURLEX57K.

  There are ten proposers: trees, neighbours, names and parts of names, each by
  full text and by title, centroids, and the laws that cite the same laws. Votes
  of neighbours fade with the time between two laws. Linear classifiers of the
  listed labels read text, title and citations.

  Hardware: two CPU cores and 10 GB. Expected: the metrics in docs/results.md,
  on dev.
  """
  data = Eurlex57kData(zones=_TITLE + _TEXT, tokens=TfidfConfig())
  proposers = (
    *dated_act_proposers(_TEXT, _TITLE),
    prototypes_proposer('centroids', PrototypesModel(names=False), _TEXT),
    name_parts_proposer('name_parts', _TEXT),
    name_parts_proposer('title_name_parts', _TITLE),
  )
  linear = ListedLinear(('neighbours', 'title_neighbours', 'cited'))
  ranker = BoostedTrees(models=3, trees=300, patience=0, leaves=127, rate=0.06)
  return _config(data, StackModel(proposers, linear=linear, ranker=ranker))


@variants('cpu gpu')
def eurlex57k_best(system: str) -> Config:
  """Trains the best system on EURLEX57K, with a pretrained encoder.

  To eurlex57k_best_cpu, an encoder that is not trained, such as
  all-MiniLM-L6-v2 (Wang et al. 2020, https://arxiv.org/abs/2002.10957), adds
  three proposers. They compare the vector of a document with those of training
  documents, of label names, and of the centroids of labels. Give its folder, in
  the form of Hugging Face, as --config.model.encoder=FOLDER. The variant gpu
  reads 512 pieces of each document. It also trains the encoder with a dense
  layer, as one more proposer: once for each of the four folds, and once on all
  training documents.

  Expected on dev, with MiniLM: RP@5 0.835 and nDCG@5 0.859, without dates,
  citations and classifiers of listed labels. Time: an hour on busy cores. The
  variant gpu is not measured yet.
  """
  config = eurlex57k_best_cpu()
  if system == 'cpu':
    config.model.proposers += vector_proposers()
  else:
    config.model.proposers += vector_proposers(max_tokens=512)
    config.model.proposers += (_trained_encoder(),)
  return config


def _trained_encoder() -> ProposerConfig:
  encoder = eurlex57k_minilm()
  model, train = encoder.model, encoder.train
  train.steps, train.warmup, train.rates = 20_000, 1000, ('encoder/*=0.005',)
  train.checkpoint_every, train.judge_every = 5000, 20_000
  tokens = SubwordsConfig(512, (128, 256, 512))
  return ProposerConfig(tokens, (), model, train, 256, 'encoder', depth=30)


def own_rerank_linear() -> Config:
  """Trains a label tree on your own documents, and reranks what it lists.

  A linear classifier per label is trained on the documents that list the label
  alone (squared hinge, Hsieh et al. 2008), and ranks the list. DIR is a file or
  a folder of documents (see docs/data.md).

  Data: your own documents. Hardware: two CPU cores. Expected: a little better
  than own_linear if labels have many documents, worse if most have a few, since
  these get no classifier. Time: six times as long as own_linear.
  """
  model = StackModel(
    (tree_proposer(),), linear=ListedLinear(('tree',)), ranker=ListedRanker()
  )
  return _config(OwnData(tokens=TfidfConfig()), model)


def tib_sid_best() -> Config:
  """Trains the best system without a neural part on TIB-SID library records.

  The proposers are trees, neighbours, names and parts of names, each by all
  text and by title, and centroids. A sixth of the 26,976 labels have no
  training documents, and half of the others have one. So names matter more than
  on EURLEX57K. Some are German, which parts find in English texts.

  Data: TIB-SID, as JSON lines. Hardware: two CPU cores. Expected: the metrics
  in docs/configs.md, on dev.
  """
  text = 'title', 'abstract'
  data = JsonlData(zones=text, labels='all', tokens=TfidfConfig())
  centroids = prototypes_proposer('centroids', PrototypesModel(names=False))
  title_parts = name_parts_proposer('title_name_parts', _TITLE)
  proposers = (
    *text_and_title_proposers(text, _TITLE),
    centroids,
    name_parts_proposer(),
    title_parts,
  )
  return _config(data, StackModel(proposers))


def xc_best() -> Config:
  """Trains the best system on features from the XC Repository.

  DIR has train.txt, test.txt and optionally dev.txt; these files may be
  gzipped. The feature vector of each document is scaled to unit length. Five
  proposers list labels: two support vector machines and a logistic regression
  per label (Fan et al. 2008), and the 10 and 100 nearest training documents.

  Data: feature files of the XC repository. Hardware: two CPU cores. Expected on
  the test split of Bibtex: P@1 0.674, P@5 0.301. Time: a minute on Bibtex.
  """
  logistic = LinearTrain(loss=Loss.LOGISTIC, c=10.0)
  models = {
    'svm': (LinearModel(), LinearTrain()),
    'soft_svm': (LinearModel(), LinearTrain(c=0.3)),
    'logistic': (LinearModel(), logistic),
    'near': (NeighboursModel(10, 1.0), NoTrain()),
    'wide': (NeighboursModel(100, 4.0), NoTrain()),
  }
  proposers = tuple(
    ProposerConfig(_given(), (), model, train, 512, name, depth=30)
    for name, (model, train) in models.items()
  )
  # Chosen on Bibtex, by cross-validation on train. Small corpora need few trees
  # with flat leaves.
  ranker = BoostedTrees(
    models=2, trees=150, patience=0, bins=255, leaves=31, rate=0.04, l2=10.0
  )
  data = XcFeaturesData(tokens=_given())
  return _config(data, StackModel(proposers, ranker=ranker))


def _given() -> GivenFeaturesConfig:
  return GivenFeaturesConfig(norm=Norm.L2)


def _config(data: DataConfig, model: StackModel) -> Config:
  evaluation = EvalConfig(batch_size=512)
  return Config(data=data, model=model, train=StackTrain(), eval=evaluation)
