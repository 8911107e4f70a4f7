r"""Trains label trees and linear classifiers on sparse features.

XR-Linear is a label tree of linear classifiers (Yu et al., JMLR 2022,
https://jmlr.org/papers/v23/20-1085.html). Labels are clustered by balanced
k-means over the features of their documents. The loss is squared hinge, and the
search is a beam search. A probabilistic label tree (PLT, Jasinska et al., ICML
2016) has logistic regressions, trained as in Schultheis et al. 2022, Section
5.5, and its search for the best labels is exact. An SVM is one classifier per
label with LIBLINEAR's squared hinge loss (Fan et al. 2008); small weights are
removed, as in DiSMEC (Babbar and Schoelkopf 2017).

  xjax train --config=NAME --config.data.dir=DIR --workdir=runs/NAME

The features are TF-IDF of words and pairs of words in full documents. Of xc_*
configs, they are the given features, scaled to unit length: DIR has train.txt,
test.txt and optionally dev.txt, which may be gzipped. With
--config.model.n_trees=3, label trees are an ensemble of three trees.

Data: EURLEX57K. Hardware: two CPU cores. Expected: see each system. Time:
minutes.
"""

from xjax.configs import variants
from xjax.data.formats.data_config import DataConfig
from xjax.data.formats.eurlex57k import Eurlex57kData
from xjax.data.formats.jsonl import JsonlData
from xjax.data.formats.xc_features import XcFeaturesData
from xjax.data.label_trees.clusters import ClusterTree
from xjax.data.tokens_config import GivenFeaturesConfig, Norm, TfidfConfig
from xjax.models.contract import Config, Model
from xjax.models.eval_config import EvalConfig
from xjax.models.linear.dual import Loss
from xjax.models.trees.tree_model import (
  LinearModel,
  LinearTrain,
  TreeModel,
  TreeTrain,
)
from xjax.train.train_config import TrainConfig


@variants('small large')
def eurlex57k_xr_linear(size: str) -> Config:
  """Trains XR-Linear, a label tree of linear classifiers, on EURLEX57K.

  The variant large has only one level of clusters below the root and removes
  fewer weights. It is better, but slower and ten times as large.

  Expected on dev: RP@5 0.801 and nDCG@5 0.826; for the variant large, RP@5
  0.809 and nDCG@5 0.833. Time: 3 minutes.
  """
  return _xr_linear(_eurlex57k(), size)


def eurlex57k_plt() -> Config:
  """Trains a probabilistic label tree (PLT) on full documents of EURLEX57K.

  Expected: RP@5 0.796, nDCG@5 0.820 on dev. Time: 6 minutes.
  """
  return _plt(_eurlex57k())


def eurlex57k_tfidf_svm() -> Config:
  """Trains a support vector machine per label on TF-IDF of EURLEX57K.

  This is the baseline in "Re-evaluating Extreme Multi-label Text Classification
  Methods in Tail Label Prediction".

  Expected: not run yet. Time: half an hour.
  """
  return _config(_eurlex57k(), LinearModel(), LinearTrain())


def eurlex57k_tfidf_lr() -> Config:
  """Trains a logistic regression per label on TF-IDF of EURLEX57K n-grams.

  This is the baseline in Section 4 and Table 2 of Chalkidis et al., ACL 2019
  (https://aclanthology.org/P19-1636). The features are the 200,000 most
  frequent n-grams, with n from 1 to 5.

  Expected: not run yet; the paper has RP@5 0.710, nDCG@5 0.741 and micro-F1
  0.539 on test. Time: an hour.
  """
  data = _eurlex57k()
  data.tokens.max_ngram = 5
  return _config(data, LinearModel(), LinearTrain(loss=Loss.LOGISTIC))


def tib_sid_xr_linear() -> Config:
  """Trains XR-Linear on titles and abstracts of TIB-SID library records.

  Half of the 26,976 labels have one training document. The beam is wider than
  in eurlex57k_xr_linear.

  Data: TIB-SID, as JSON lines. Expected: RP@5 0.441, nDCG@5 0.417 on dev. Time:
  3 minutes.
  """
  data = JsonlData(labels='all', tokens=TfidfConfig())
  data.zones = 'title', 'abstract'
  return _config(data, TreeModel(beam=20), TreeTrain())


def yso_xr_linear() -> Config:
  """Trains XR-Linear on short texts of Finna with YSO subjects.

  The 588,000 texts have 9 words in the median, and there are 25,147 labels.
  They are from the Annif-corpora of the National Library of Finland.

  Data: YSO, as JSON lines. Expected on dev: the table in docs/results.md. Time:
  2 minutes.
  """
  data = JsonlData(labels='all', tokens=TfidfConfig())
  return _config(data, TreeModel(beam=20), TreeTrain())


def xc_xr_linear() -> Config:
  """Trains XR-Linear on features from the Extreme Classification Repository.

  Data: feature files of the XC repository. Expected on the test split of
  Bibtex: P@1 0.637, P@5 0.280. Time: depends on the dataset.
  """
  return _xr_linear(_xc(), 'small')


def xc_plt() -> Config:
  """Trains a PLT on features from the Extreme Classification Repository.

  Data: feature files of the XC repository. Expected on the test split of
  Bibtex: P@1 0.631, P@5 0.286. Time: depends on the dataset.
  """
  return _plt(_xc())


def xc_svm() -> Config:
  """Trains SVMs on features from the Extreme Classification Repository.

  Data: feature files of the XC repository. Expected on the test split of
  Bibtex: P@1 0.637, P@5 0.280. Time: depends on the dataset.
  """
  return _config(_xc(), LinearModel(), LinearTrain())


def _eurlex57k() -> DataConfig:
  zones = 'header', 'recitals', 'main_body', 'attachments'
  return Eurlex57kData(zones=zones, tokens=TfidfConfig())


def _xc() -> DataConfig:
  return XcFeaturesData(tokens=GivenFeaturesConfig(norm=Norm.L2))


def _xr_linear(data: DataConfig, size: str) -> Config:
  if size == 'small':
    return _config(data, TreeModel(), TreeTrain())
  tree = ClusterTree(arity=100, max_leaf=100)
  return _config(data, TreeModel(tree), TreeTrain(threshold=0.01))


def _plt(data: DataConfig) -> Config:
  train = TreeTrain(loss=Loss.LOGISTIC, c=10.0)
  return _config(data, TreeModel(exact=True), train)


def _config(data: DataConfig, model: Model, train: TrainConfig) -> Config:
  evaluation = EvalConfig(batch_size=512)
  return Config(data=data, model=model, train=train, eval=evaluation)
